"""Whose a stored answer of the Responses API is: vLLM keeps them under ids that anyone may ask for.

An id that is not known here is not found, whoever asks: one of another tenant's cannot be told from one that never was.
So answers given before the gateway was started are out of reach, and of more than `most` the oldest are.
"""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.media import MediaCost
from gateway.domain.tenant import DEFAULT_CLASS, Tenant

MOST_ANSWERS = 100_000
"""Some 30 MB."""


HIDDEN_HISTORY = MediaCost(None, "previous_response_id", 1 << 17, 1 << 17)
"""What a history that only the server has may cost: more than any context holds, or as much as the model's does."""


@dataclass(frozen=True, slots=True)
class StoringPolicy:
    """What the operator lets clients do with answers that vLLM stores.

    `previous`: a conversation may go on behind one, whose history cannot be seen here. `background`: an answer may be
    made without its client waiting for it.
    """

    previous: bool = False
    background: bool = False


class StoredAnswer(NamedTuple):
    """`owner` may ask for it; `server` is the name of the upstream that has it."""

    owner: str
    server: str


class StoredAnswers:
    """The table. One writer: the event loop."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._answers: OrderedDict[str, StoredAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, answer_id: str, answer: StoredAnswer) -> None:
        """A new answer. An id that is there already stays whose it is: vLLM gives none twice."""
        if answer_id in self._answers:
            return
        self._answers[answer_id] = answer
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def find(self, answer_id: str, owner: str, param: str = "response_id") -> StoredAnswer:
        """Raises GatewayError not_found, in vLLM's own words."""
        answer = self._answers.get(answer_id)
        if answer is None or answer.owner != owner:
            raise GatewayError(Code.NOT_FOUND, f"Response with id '{answer_id[:200]}' not found.", param=param)
        return answer


def owner_of(tenant: Tenant, key: bytes) -> str:
    """Whose answers are whose: of tenants that the operator named the tenant's, of all others the key's.

    Who has no key shares with all who have none.
    """
    if tenant.is_named and tenant.name != DEFAULT_CLASS:
        return f"tenant {tenant.name}"
    return f"key {sha256(key).hexdigest()}"


def refuse_by_policy(policy: StoringPolicy, previous_id: str | None, *, is_background: bool) -> None:
    """Raises GatewayError invalid_request with the setting that would allow it."""
    if previous_id is not None and not policy.previous:
        raise GatewayError(
            Code.INVALID_REQUEST,
            "`previous_response_id` stands for a history that only the model server has: what it costs is not known "
            "here. Send the whole conversation in `input`. The setting responses.allow_previous lets it in, at the "
            "price of the model's whole context.",
            param="previous_response_id",
        )
    if is_background and not policy.background:
        raise GatewayError(
            Code.INVALID_REQUEST,
            "`background` is not let in here: the answer would be made although nobody waits for it. Leave it out, or "
            "ask with `stream`. The setting responses.allow_background lets it in.",
            param="background",
        )
