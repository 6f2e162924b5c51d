"""The verdict on a request that was only asked for."""

import pytest

from gateway.domain.cost import EngineLimits
from gateway.domain.decision import Prospect, Refusal, Verdict
from gateway.domain.geometry import Size
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.never_fits import find_misfit
from gateway.domain.outcome import Reason
from gateway.domain.preflight import ADMITTED, Foresight, Outlook, foresee, never
from gateway.domain.promise import RetryAdvice
from gateway.domain.quantities import TO_FIRST_TOKEN, Bounds, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.remedies import Remedies, Shortage
from tests.support.costs import FAMILY, cost_of

LIMITS = EngineLimits(kv_blocks=100)
HOLDINGS = HoldingsStatistics(capacity=(95, 8, None, 1_000_000), held=(80, 3, 500, 999_999))
POLICY = QueuePolicy()
COST = cost_of(Size(1_000, 1_000), text=Bounds.exact(100), output_tokens=64)


def told(prospect, cost=COST) -> Foresight:
    return foresee(prospect, cost, LIMITS, FAMILY, HOLDINGS, POLICY, longest_wait_seconds=20.0)


def test_what_fits_is_admitted():
    assert told(Prospect(Verdict.ADMITTED)) == ADMITTED


def test_what_is_short_waits_and_is_told_what_would_fit():
    assert told(Prospect(Verdict.WAITING, Resource.KV_BLOCKS, 4, 2.5)) == Foresight(
        Outlook.WAITING,
        ahead=4,
        expected_wait_seconds=2.5,
        longest_wait_seconds=20.0,
        shortage=Shortage("kv_blocks", 17, 15, 95),
        remedies=Remedies(
            sizes=(("messages[0].content[0].image_url.url", Size(800, 800)),),
            oldest_images=1,
            last_param="messages[0].content[0].image_url.url",
            max_tokens=38,
        ),
    )


def test_who_only_waits_for_others_is_short_of_nothing():
    seen = told(Prospect(Verdict.WAITING, None, 4, None))
    assert (seen.outlook, seen.shortage, seen.remedies) == (Outlook.WAITING, None, Remedies())


def test_what_is_overcommitted_has_nothing_free():
    full = HoldingsStatistics(capacity=(95, 8, None, None), held=(120, 3, 0, 0))
    seen = foresee(
        Prospect(Verdict.WAITING, Resource.KV_BLOCKS), COST, LIMITS, FAMILY, full, POLICY, longest_wait_seconds=20.0
    )
    assert seen.shortage == Shortage("kv_blocks", 17, 0, 95)


def test_a_refusal_carries_its_error_and_what_would_have_fitted():
    refusal = Refusal(Reason.QUEUE_FULL, Resource.SEQUENCES, RetryAdvice(3.0, is_promise=True), 256, 1_000)
    seen = told(Prospect(refusal, Resource.PREPROCESS_PIXELS))
    assert (seen.outlook, seen.error.reason, seen.error.retry_after_seconds) == (Outlook.REFUSED, "queue_full", 3.0)
    assert seen.shortage == Shortage("preprocess_pixels", 1_000_000, 1, 1_000_000)
    assert seen.remedies.oldest_images == 1


@pytest.mark.parametrize("resource", TO_FIRST_TOKEN)
def test_what_waits_for_others_to_begin_is_short_of_nothing_that_it_could_change(resource):
    seen = told(Prospect(Verdict.WAITING, resource))
    assert (seen.outlook, seen.shortage, seen.remedies) == (Outlook.WAITING, None, Remedies())


def test_what_never_fits_is_refused_with_its_400():
    misfit = find_misfit(COST, EngineLimits(max_model_len=150), FAMILY)
    assert never(misfit) == Foresight(Outlook.REFUSED, misfit.error, shortage=misfit.shortage, remedies=misfit.remedies)
