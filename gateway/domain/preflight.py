"""What would become of a request that came now, with what it would be short of and what would help.

Nothing is taken and nobody joins the queue: admission is only asked (`Admission.would_decide`).
"""

from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import GatewayError
from gateway.domain.never_fits import Misfit
from gateway.domain.remedies import Remedies, Shortage


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
