"""What would become of a request that came now, with what it would be short of and what would help.

Nothing is taken and nobody joins the queue: admission is only asked (`Admission.would_decide`).
"""

from enum import StrEnum
from typing import NamedTuple

from gateway.domain.cost import EngineLimits, RequestCost
from gateway.domain.decision import Prospect, Refusal, Verdict
from gateway.domain.errors import GatewayError
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.never_fits import Misfit
from gateway.domain.quantities import TO_FIRST_TOKEN, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.remedies import Remedies, Shortage, within_free
from gateway.domain.vision.base import VisionFamily


class Outlook(StrEnum):
    """The verdict in a word."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    REFUSED = "refused"


class Foresight(NamedTuple):
    """`error` is what a refused client would get. Of one that would wait: how many of those that wait come before it,
    how long that takes at the present pace (None: not known yet), and after how long it would be refused.
    """

    outlook: Outlook
    error: GatewayError | None = None
    ahead: int | None = None
    expected_wait_seconds: float | None = None
    longest_wait_seconds: float | None = None
    shortage: Shortage | None = None
    remedies: Remedies = Remedies()


ADMITTED = Foresight(Outlook.ADMITTED)


def never(misfit: Misfit) -> Foresight:
    """It could not be served even by an idle engine."""
    return Foresight(Outlook.REFUSED, misfit.error, shortage=misfit.shortage, remedies=misfit.remedies)


def refused(error: GatewayError) -> Foresight:
    """For a reason that has nothing to do with its size."""
    return Foresight(Outlook.REFUSED, error)


def foresee(
    prospect: Prospect,
    cost: RequestCost,
    limits: EngineLimits,
    family: VisionFamily | None,
    holdings: HoldingsStatistics,
    policy: QueuePolicy,
    *,
    longest_wait_seconds: float,
) -> Foresight:
    """What `Admission.would_decide` said, with what would change it. `family` None: sizes are not advised."""
    # What is on its way to its first token has it in a moment: nothing that the request could change is short.
    short = None if prospect.short in TO_FIRST_TOKEN else prospect.short
    shortage = None if short is None else _shortage(cost, short, holdings)
    remedies = Remedies()
    if short is not None and shortage is not None:
        remedies = within_free(cost, short, shortage.available, limits, family)
    if isinstance(prospect.decision, Refusal):
        return Foresight(Outlook.REFUSED, prospect.decision.error(policy), shortage=shortage, remedies=remedies)
    if prospect.decision is Verdict.ADMITTED:
        return ADMITTED
    return Foresight(
        Outlook.WAITING,
        ahead=prospect.ahead,
        expected_wait_seconds=prospect.expected_wait_seconds,
        longest_wait_seconds=longest_wait_seconds,
        shortage=shortage,
        remedies=remedies,
    )


def _shortage(cost: RequestCost, short: Resource, holdings: HoldingsStatistics) -> Shortage:
    capacity = holdings.capacity[short] or 0
    return Shortage(short.label, cost.amounts[short], max(0, capacity - holdings.held[short]), capacity)
