"""docs/reference/headers.md, from gateway/wire/headers.py."""

from gateway.wire.headers import HEADERS, HELD_BACK, Carrier
from scripts.reference.markdown import code, page, table

_TITLES = {
    Carrier.REQUEST: "Headers of requests",
    Carrier.SUCCESS: "Headers of answers",
    Carrier.REFUSAL: "Headers of refusals",
    Carrier.SHADOW: "Headers in shadow mode",
    Carrier.TO_VLLM: "Headers that vLLM gets from the gateway",
}
_INTRO = """\
vLLM's own headers pass in both directions unless they are named here. No header of an answer leaves before the
request is admitted, so a refusal always has its status, but for streams that are begun while they wait
(`streaming.keep_alive_after_seconds`): there these headers stand in comments of the stream.
"""


def headers_page() -> str:
    groups = [f"## {title}\n\n{_headers(carrier)}" for carrier, title in _TITLES.items()]
    held_back = (
        "## What vLLM never gets\n\n"
        "All headers that begin with `x-gateway-`, those of one connection and those that `Connection` names, and what "
        f"would let a client steer vLLM past the gateway. Among them: {', '.join(map(code, HELD_BACK))}."
    )
    return page("Headers", "gateway/wire/headers.py", _INTRO.rstrip(), *groups, held_back)


def _headers(carrier: Carrier) -> str:
    rows = [(code(each.name), code(each.example), each.help) for each in HEADERS if each.carrier is carrier]
    return table(("header", "for example", "what it tells or asks for"), rows)
