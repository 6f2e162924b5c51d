"""What a router between this gateway and vLLM is told of a request: headers with whose it is, how urgent and how large.

Only values to text; which router reads which name says docs/routers.md. A name that was set goes out with what is
known, or not at all: what a client wrote under it never does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isinf
from urllib.parse import quote

from gateway.domain.cost import RequestCost
from gateway.domain.priority import Priority
from gateway.domain.tenancy import DEFAULT_CLASS


class Carried(StrEnum):
    """What a header may carry."""

    TENANT = "tenant"
    OBJECTIVE = "objective"
    VLLM_PRIORITY = "vllm_priority"
    FIRST_TOKEN_MS = "first_token_ms"  # noqa: S105  a time, no secret
    PROMPT_TOKENS = "prompt_tokens"
    VISUAL_TOKENS = "visual_tokens"
    OUTPUT_TOKENS = "output_tokens"
    KV_BLOCKS = "kv_blocks"
    FIRST_IMAGE = "first_image"


OwnHeaders = Mapping[str, str | None]
"""Headers that the gateway writes to the upstream by name in lower case; None: nothing is known, so none goes out."""

NO_HEADERS: OwnHeaders = {}


@dataclass(frozen=True, slots=True)
class HandOn:
    """What goes out under which name; `objectives` are words for the classes of requests, by their own where unset."""

    headers: Mapping[str, Carried] = field(default_factory=dict)
    objectives: Mapping[Priority, str] = field(default_factory=dict)

    @property
    def names_image(self) -> bool:
        return Carried.FIRST_IMAGE in self.headers.values()


NOTHING = HandOn()


@dataclass(frozen=True, slots=True)
class Known:
    """Of one request. `tenant` is empty for those that nobody named; `first_token_seconds` are left until the first
    token is due, infinite where it never is; `first_image` is a hash.
    """

    tenant: str
    priority: Priority
    first_token_seconds: float
    cost: RequestCost
    first_image: bytes | None


def own_headers(hand_on: HandOn, known: Known) -> OwnHeaders:
    """Every name that was set, with its text."""
    words = _words(hand_on, known)
    return {name: words.get(carried) for name, carried in hand_on.headers.items()}


def _words(hand_on: HandOn, known: Known) -> dict[Carried, str]:
    words = {
        # A name is the operator's free text, and a header is none.
        Carried.TENANT: quote(known.tenant or DEFAULT_CLASS, safe=""),
        Carried.OBJECTIVE: hand_on.objectives.get(known.priority, known.priority.label),
        # vLLM serves lower numbers first, and 0 is what a request has that says nothing.
        Carried.VLLM_PRIORITY: str(known.priority - Priority.DEFAULT),
    }
    if not isinf(known.first_token_seconds):
        words[Carried.FIRST_TOKEN_MS] = str(max(1, int(known.first_token_seconds * 1000)))
    if known.first_image is not None:
        words[Carried.FIRST_IMAGE] = known.first_image.hex()
    return words | _sizes(known.cost)


def _sizes(cost: RequestCost) -> dict[Carried, str]:
    return {
        Carried.PROMPT_TOKENS: str(cost.prompt_tokens.expected),
        Carried.VISUAL_TOKENS: str(cost.visual_tokens),
        Carried.OUTPUT_TOKENS: str(cost.output_tokens * cost.answers),
        Carried.KV_BLOCKS: str(cost.amounts.kv_blocks),
    }
