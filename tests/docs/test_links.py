"""Links between the pages lead somewhere, and every page is found from the index."""

from pathlib import Path

import pytest

from tests.support.markdown import ROOT, Link, Page, pages

PAGES = {page.name: page for page in pages("*.md", "docs/**/*.md", "benchmarks/*.md", "deploy/**/*.md")}


def target_of(page: Page, link: Link) -> tuple[str, str]:
    """A file by its name from the root, and the anchor in it."""
    path, _, anchor = link.target.partition("#")
    target = (page.path.parent / path).resolve() if path else page.path
    return target.relative_to(ROOT).as_posix(), anchor


def is_outside(link: Link) -> bool:
    return link.target.startswith(("https://", "http://", "mailto:"))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_its_links_lead_somewhere(page):
    for link in page.links:
        where = f"{page.name}:{link.line}: {link.target}"
        if is_outside(link):
            assert link.target.startswith("https://"), where
            continue
        name, anchor = target_of(page, link)
        assert Path(ROOT, name).exists(), f"{where}: there is no {name}"
        if anchor:
            assert anchor in Page(ROOT / name).anchors, f"{where}: {name} has no such heading"


def test_every_page_is_found_from_the_readme_over_the_index():
    assert "docs/README.md" in linked_from("README.md")
    found, looked_at = {"docs/README.md"}, set()
    while found - looked_at:
        name = min(found - looked_at)
        looked_at.add(name)
        found |= {target for target in linked_from(name) if target.startswith("docs/") and target in PAGES}
    assert {name for name in PAGES if name.startswith("docs/")} == found


def linked_from(name):
    page = PAGES[name]
    return {target_of(page, link)[0] for link in page.links if not is_outside(link)}


def test_headings_have_the_anchors_that_github_gives_them(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# What the gateway adds to vLLM's own limits\n## `images.remote`\n## Twice\n## Twice\n## a_b: c\n")
    assert Page(path).anchors == {
        "what-the-gateway-adds-to-vllms-own-limits", "imagesremote", "twice", "twice-1", "a_b-c",
    }  # fmt: skip
