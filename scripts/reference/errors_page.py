"""docs/reference/errors.md, from gateway/domain/errors.py, error_guide.py and the examples beside this."""

import json

from gateway.domain.error_guide import CODES, REASONS, Mender
from gateway.domain.errors import Code, GatewayError
from gateway.wire.errors import anthropic_error_body, error_body, error_headers, openai_type
from scripts.reference.error_examples import EXAMPLES
from scripts.reference.markdown import code, fenced, page, table

_INTRO = """\
Errors have OpenAI's shape on every route: `message` says what is wrong with the numbers and what would help, `param`
names the part, `code` is for programs and `type` is that of OpenAI's SDKs. `x-gateway-reason` says why, in one word;
it is the label of `gateway_rejections_total`. vLLM's own errors pass as they come, with vLLM's words and codes.

400 is never worth sending again and says so (`x-should-retry: false`); 429 and 503 name the time in `Retry-After`.
Where the tables say that time mends it, nothing is wrong: come back then. What the settings allow and an idle server
could serve is never refused for good. `server.overload_status` replaces the status where the gateway is full; codes and
reasons stay.
"""
_SHAPES = """\
## Anthropic's shape

Under `/v1/messages` errors have the shape of Anthropic's API, which has no `param` and no `code`. The header
`x-gateway-reason` is there too.
"""


def errors_page() -> str:
    codes = table(("code", "status", "type", "what it means", "who mends it"), map(_row, Code))
    reasons = table(
        ("reason", "the request was refused because", "who mends it"),
        [(code(reason), guide.meaning, _menders(guide.menders)) for reason, guide in REASONS.items()],
    )
    shape = _SHAPES.rstrip() + "\n\n" + _json(anthropic_error_body(EXAMPLES[Code.PERMISSION_DENIED]))
    return page(
        "Errors",
        "gateway/domain/error_guide.py and scripts/reference/error_examples.py",
        _INTRO.rstrip(),
        "## Codes",
        codes,
        "## Reasons",
        reasons,
        shape,
        "## An example of each",
        *map(_example, Code),
    )


def _status(each: Code) -> int:
    return GatewayError(each, "").status


def _row(each: Code) -> tuple[str, ...]:
    guide, status = CODES[each], _status(each)
    return f"[`{each}`](#{each})", str(status), code(openai_type(status)), guide.meaning, _menders(guide.menders)


def _menders(menders: tuple[Mender, ...]) -> str:
    return ", or ".join(menders)


def _example(each: Code) -> str:
    pieces = [f"### {each}", CODES[each].remedy]
    error = EXAMPLES.get(each)
    if error is not None:
        body = error_body(error)
        told = [pair for pair in error_headers(error, body, jitter=0.0) if not pair[0].startswith(b"content-")]
        shown = ", ".join(code(f"{name.decode()}: {value.decode()}") for name, value in told)
        pieces += [f"Status {error.status}, {shown}:", _json(body)]
    return "\n\n".join(pieces)


def _json(body: bytes) -> str:
    return fenced("json", json.dumps(json.loads(body), indent=2, ensure_ascii=False))
