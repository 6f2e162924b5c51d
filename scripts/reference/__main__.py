"""`python -m scripts.reference`: writes docs/reference anew."""

from pathlib import Path

from scripts.reference.pages import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

FOLDER.mkdir(parents=True, exist_ok=True)
for name, make in PAGES.items():
    (FOLDER / name).write_text(make(), encoding="utf-8")
