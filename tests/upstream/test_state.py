"""What one look after the other makes known."""

import pytest

from gateway.upstream.state import Health, Observation, PollPace, UpstreamModel, UpstreamState, next_state
from gateway.wire.vllm_metrics import EngineReport

TINY = (UpstreamModel("tiny", 32_768),)
REPORT = EngineReport(running=1, waiting=0, kv_usage=0.5, preemptions=0)
UP = Observation(Health.OK, TINY, "0.32.0", REPORT)
SILENT = Observation(Health.SILENT, trouble="/health: did not answer in time")
REFUSING = Observation(Health.REFUSING, trouble="/health: connection refused")


def after(*looks: Observation) -> UpstreamState:
    """The state after looks at seconds 1, 2, 3 ..."""
    state = UpstreamState()
    for second, seen in enumerate(looks, start=1):
        state = next_state(state, seen, float(second))
    return state


def test_before_the_first_answer_it_is_loading() -> None:
    for looks in ([], [REFUSING], [REFUSING, SILENT]):
        state = after(*looks)
        assert (state.is_up, state.is_loading) == (False, True)
    assert after(REFUSING).trouble == "/health: connection refused"


def test_an_answer_brings_it_up_with_all_that_it_told() -> None:
    assert after(REFUSING, UP) == UpstreamState(
        is_up=True,
        has_been_up=True,
        models=TINY,
        version="0.32.0",
        report=REPORT,
        reported_at_seconds=2.0,
        changed_at_seconds=2.0,
        misses=0,
        trouble=None,
        starts=1,
    )


def test_a_refusal_brings_it_down_at_once_and_it_is_not_loading_then() -> None:
    state = after(UP, UP, REFUSING)
    assert (state.is_up, state.is_loading, state.changed_at_seconds) == (False, False, 3.0)


def test_silence_brings_it_down_the_third_time_in_a_row() -> None:
    assert after(UP, SILENT, SILENT).is_up
    assert not after(UP, SILENT, SILENT, SILENT).is_up
    assert after(UP, SILENT, SILENT, UP, SILENT, SILENT).is_up


def test_what_was_known_stays_and_its_age_shows() -> None:
    state = after(UP, SILENT, Observation(Health.OK))
    assert (state.models, state.version, state.report) == (TINY, "0.32.0", REPORT)
    assert state.report_age_seconds(7.5) == 6.5
    assert UpstreamState().report_age_seconds(7.5) is None


def test_models_may_go_while_it_runs() -> None:
    assert after(UP, Observation(Health.OK, models=())).models == ()


@pytest.mark.parametrize(
    ("looks", "is_busy", "chance", "seconds"),
    [
        ([UP], True, 0.5, 1.0),
        ([UP], False, 0.5, 5.0),
        ([UP], True, 0.0, 0.9),
        ([UP], True, 1.0, 1.1),
        ([REFUSING], False, 0.5, 1.0),
        ([REFUSING] * 3, True, 0.5, 4.0),
        ([REFUSING] * 100, True, 0.5, 10.0),
    ],
)
def test_the_pace_follows_work_and_misses(
    looks: list[Observation], *, is_busy: bool, chance: float, seconds: float
) -> None:
    assert PollPace().wait_seconds(after(*looks), is_busy=is_busy, chance=chance) == pytest.approx(seconds)


def reports(**numbers: int) -> Observation:
    return Observation(Health.OK, report=EngineReport(**numbers))


@pytest.mark.parametrize(
    ("looks", "starts"),
    [
        ((UP, UP), 0),
        ((REFUSING, UP), 1),  # it came while it was waited for
        ((UP, REFUSING, UP), 1),
        ((UP, SILENT, UP), 0),
        ((reports(started_at=100), reports(started_at=100)), 0),
        ((reports(started_at=100), reports(started_at=101)), 1),
        ((reports(started_at=100), REFUSING, reports(started_at=100)), 0),  # only the way to it was broken
        ((reports(started_at=100), Observation(Health.OK), reports(started_at=200)), 1),
        ((reports(generated_tokens=9), reports(generated_tokens=0)), 1),
        ((reports(generated_tokens=9), REFUSING, reports(generated_tokens=9)), 0),
        # A balancer with two servers behind it.
        ((reports(started_at=100), *[reports(started_at=200), reports(started_at=100)] * 5), 1),
    ],
)
def test_a_new_start_is_told_from_a_broken_way(looks: tuple[Observation, ...], starts: int) -> None:
    assert after(*looks).starts == starts
