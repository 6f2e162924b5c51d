"""Every fenced block of the documentation is run, parsed or compared, or says why not."""

from collections import Counter

import pytest

from tests.support.markdown import ROOT, Page, pages
from tests.support.transcript import HANDLERS, Reader, understood

REFERENCE = pages("docs/reference/*.md")
OWN = [page for page in pages("docs/*.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md") if page.blocks]


@pytest.mark.system("curl")
@pytest.mark.parametrize("page", OWN, ids=lambda page: page.name)
def test_a_page_holds_from_top_to_bottom(page, tmp_path, report_line):
    reader = Reader(page, tmp_path)
    reader.play()
    counts = Counter(reader.played)
    report_line(f"{page.name}: {', '.join(f'{count} {word}' for word, count in counts.items())}")


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_commands_of_the_reference_are_understood_and_its_examples_are_json(page, tmp_path):
    """The errors among them are brought about by test_error_examples.py."""
    reader = Reader(page, tmp_path)
    for block in page.blocks:
        assert block.language in {"sh", "json"}, f"{page.name}:{block.line}"
        if block.language == "json":
            reader.compare_json(block)
        else:
            for line in block.text.splitlines():
                understood(line)


def test_every_block_of_the_readme_is_one_that_its_own_tests_look_at():
    """tests/test_readme.py runs the snippet, loads the settings, asks for the JSON, and knows the commands."""
    readme = Page(ROOT / "README.md")
    assert {block.language for block in readme.blocks} == {"sh", "mermaid", "python", "yaml", "json"}
    assert {block.rest for block in readme.blocks} == {""}
    for line in (line for block in readme.blocks if block.language == "sh" for line in block.text.splitlines()):
        if not line.startswith("make "):
            understood(line)


def page_of(text):
    return Page(ROOT / "docs" / "planted.md", text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```sh\nvlm-gateway tokens --family nope 1x1\n```", "ended with 2"),
        ("```sh\nkubectl get pods\n```", "kubectl is not run here"),
        ("```sh not run: no\n```", "say why it is not run"),
        ("```python\nprint(1 / 0)\n```", "ZeroDivisionError"),
        ("```yaml\nqueue: {request: 1}\n```", "there is no such setting"),
        (
            '```sh\nvlm-gateway tokens --family qwen2_vl 56x56 --json\n```\n```json\n{"family": "other"}\n```',
            "qwen2_vl",
        ),
        ("```sh\nvlm-gateway tokens --family qwen2_vl 56x56\n```\n```text\n56x56 … 5 tokens\n```", "it prints"),
        ("```promql\nrate(gateway_nothing_total[5m])\n```", "there is no gateway_nothing_total"),
        ("```json\n{1}\n```", "Expecting property name"),
        ("```ruby\n```", "nobody looks at blocks of 'ruby'"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_found(text, why, tmp_path):
    with pytest.raises(AssertionError, match=why):
        Reader(page_of(text), tmp_path).play()


def test_what_holds_is_played(tmp_path):
    text = """
```python
one = 1
```
```python
print(one, "and", one + 1)
```
```text
1 … 2
```
```yaml file=own.yaml
queue: {requests: 3}
```
```sh exit=2
vlm-gateway check --config own.yaml --set queue.nothing=1
```
```sh not run: needs a cluster
kubectl get pods
```
"""
    reader = Reader(page_of(text), tmp_path)
    reader.play()
    assert reader.played == ["run", "run", "compared", "parsed", "run", "named"]
    assert set(HANDLERS) >= {"sh", "python", "yaml", "json", "text"}
