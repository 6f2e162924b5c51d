"""docs/reference/settings.md, from gateway/settings."""

from gateway.settings import Settings
from scripts.reference.markdown import code, page, sentence, table
from scripts.reference.schema import Section, sections_of

_INTRO = """\
Every name can be set in the file (`--config`), in the environment and as a flag; the flag wins, then the environment.
`queue.requests` is

- `queue: {requests: 64}` in the file,
- `GATEWAY_QUEUE__REQUESTS=64` in the environment, two underscores for each dot,
- `--set queue.requests=64` on the command line of `serve`, `check`, `estimate` and `replay`.

Lists and nested values are YAML wherever they are written. A wrong name or value anywhere ends the start, with every
mistake named. `vlm-gateway check` prints what holds, where it came from and what was discovered; see the
[tuning guide](../tuning.md) for which one to change. Bytes, pixels, seconds and tokens are what the names say.
"""


def settings_page() -> str:
    sections = list(sections_of(Settings.model_json_schema()))
    contents = "\n".join(f"- [{_title(section)}](#{_anchor(section)})" for section in sections)
    return page("Settings", "the descriptions in gateway/settings", _INTRO.rstrip(), contents, *map(_section, sections))


def _title(section: Section) -> str:
    return ", ".join(section.names) if section.names[0] else "Top level"


def _anchor(section: Section) -> str:
    kept = (character for character in _title(section).lower() if character.isalnum() or character in " _-")
    return "".join(kept).replace(" ", "-")


def _section(section: Section) -> str:
    pieces = [f"## {_title(section)}", "\n".join(section.help.split("\n"))]
    if section.is_switch:
        pieces.append("Off unless it is set; `on` takes all its defaults.")
    if section.fields:
        rows = [(code(each.name), each.kind, each.default, sentence(each.help)) for each in section.fields]
        pieces.append(table(("setting", "what it may be", "default", "what it does"), rows))
    return "\n\n".join(pieces)
