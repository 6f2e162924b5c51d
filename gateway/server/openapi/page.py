"""The OpenAPI document as one page of HTML, for readers: no script, and nothing from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .3rem 0 }
details { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { overflow-x: auto; padding: .5rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
b { display: inline-block; min-width: 4rem }
td, th { vertical-align: top; text-align: left; padding: .2rem .8rem .2rem 0 }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

PAGE_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; img-src data:; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def page_of(document: dict[str, Any]) -> bytes:
    return "\n".join(_lines(document)).encode()


def _lines(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{_text(info['description'])}</p>"
    yield '<p><a href="openapi.json">openapi.json</a></p><h2>Routes</h2>'
    for path, item in sorted(document["paths"].items()):
        for method, operation in item.items():
            yield from _operation(path, method, operation)
    yield "<h2>Bodies</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>'
    yield "</body></html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    where = f"<b>{method.upper()}</b> <code>{escape(path)}</code>"
    yield f"<details><summary>{where} {escape(operation['summary'])}</summary><p>{_text(operation.get('description'))}"
    if body := operation.get("requestBody"):
        yield f"<h3>Body</h3>{_json(body['content'])}"
    if parameters := operation.get("parameters"):
        yield f"<h3>Parameters</h3>{_table((each['name'], each.get('description', '')) for each in parameters)}"
    yield "<h3>Answers</h3><table>"
    for status, answer in operation["responses"].items():
        yield f"<tr><th>{escape(status)}<td>{_text(answer['description'])}{_headers(answer)}"
    yield "</table></details>"


def _headers(answer: dict[str, Any]) -> str:
    names = ", ".join(f"<code>{escape(name)}</code>" for name in answer.get("headers", {}))
    return f"<p>Headers: {names}" if names else ""


def _table(rows: Iterator[tuple[str, str]]) -> str:
    lines = (f"<tr><th><code>{escape(name)}</code><td>{_text(text)}" for name, text in rows)
    return f"<table>{''.join(lines)}</table>"


def _text(text: str | None) -> str:
    return escape(text or "").replace("\n\n", "<br>")


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=1))}</pre>"
