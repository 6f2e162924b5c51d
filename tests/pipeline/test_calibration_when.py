"""When a server is asked what pictures cost, and when anew."""

import asyncio
import logging
from dataclasses import replace

import pytest

from gateway.domain.calibration import PICTURES, CalibrationState
from gateway.domain.decision import Verdict
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.ticket import Ticket
from gateway.emulator.vision import FAMILIES
from gateway.models.served import FamilySource
from gateway.upstream.counting import CountError, Way
from gateway.upstream.state import UpstreamModel
from gateway.wire.vllm_metrics import EngineReport
from tests.support.calibrating import BOTH, QWEN3, Looks

LATER = Ticket(Amounts(0, 1), 0.0, 1e9)


@pytest.fixture(autouse=True)
def _all_of_the_log(caplog):
    caplog.set_level(logging.INFO)


@pytest.fixture
async def looks():
    return Looks()


def place_of(looks):
    return looks.gate.admit(LATER)


class TestWhenItIsAsked:
    @pytest.mark.parametrize(
        "changes",
        [
            {"report": EngineReport(running=1, waiting=0)},
            {"report": EngineReport(running=0, waiting=1)},
            {"report": EngineReport()},
            {"report": None},
            {"misses": 1},
            {"is_up": False},
            {"reported_at_seconds": None},
        ],
    )
    async def test_not_while_the_server_is_not_known_to_be_idle(self, looks, changes):
        await looks.look(**changes)
        assert looks.server.asked == []
        assert looks.calibrator.results[QWEN3].sentence("qwen3_vl") == "not calibrated yet"

    async def test_an_old_report_is_no_news(self, looks):
        await looks.look(report=EngineReport(running=1, waiting=0))
        looks.calibrator(replace(looks.state, report=EngineReport(running=0, waiting=0)))
        assert looks.calibrator._task is None

    async def test_not_while_this_gateway_has_requests_of_its_own(self, looks):
        lease = await place_of(looks)
        await looks.look()
        assert looks.server.asked == []
        lease.abandon()
        await looks.look()
        assert looks.states == [CalibrationState.DISAGREES]

    async def test_not_while_shadowed_requests_are_there(self, looks):
        looks.gate.unadmitted = Amounts(0, 1)
        await looks.look()
        assert looks.server.asked == []

    async def test_not_while_the_server_turns_requests_away(self, looks):
        looks.gate.pause_until(asyncio.get_running_loop().time() + 60)
        await looks.look()
        assert looks.server.asked == []

    async def test_it_ends_when_a_request_comes_and_begins_anew_afterwards(self, looks):
        leases = []

        def a_request_comes():
            if len(looks.server.asked) == 3 and not leases:
                ticket = Ticket(Amounts(0, 1), 0.0, 1e9)
                assert looks.gate.ask(ticket, leases.append) is Verdict.ADMITTED
                leases.append(looks.gate.lease(ticket, 0.0))

        looks.server.before = a_request_comes
        await looks.look()
        assert (len(looks.server.asked), looks.states) == (3, [CalibrationState.WAITING])
        await looks.look()
        assert len(looks.server.asked) == 3
        leases[0].abandon()
        await looks.look()
        assert looks.states == [CalibrationState.DISAGREES]

    @pytest.mark.parametrize("ways", [(Way.TOKENIZE,), BOTH])
    async def test_what_was_answered_before_a_request_came_is_not_asked_again(self, ways):
        looks = Looks(ways=ways)
        looks.server.expands = {ways[-1]}
        leases = []

        def a_request_comes():
            assert looks.gate.ask(LATER, leases.append) is Verdict.ADMITTED
            leases.append(looks.gate.lease(LATER, 0.0))

        looks.server.before = a_request_comes
        for number in range(1, 1 + len(PICTURES)):
            await looks.look()
            assert len(looks.server.asked) == number
            leases.pop().abandon()
        for _ in range(20):
            await looks.look()
            for lease in leases:
                lease.abandon()
            leases.clear()
        assert looks.states == [CalibrationState.DISAGREES]
        assert len(looks.server.asked) == len(set(looks.server.asked))

    async def test_one_model_with_each_look(self):
        looks = Looks(["mine", QWEN3])
        await looks.look()
        assert looks.states == [CalibrationState.FOUND, CalibrationState.WAITING]
        await looks.look()
        assert looks.states == [CalibrationState.FOUND, CalibrationState.DISAGREES]

    async def test_one_at_a_time(self):
        looks = Looks(["mine", QWEN3])
        looks.see()
        first = looks.calibrator._task
        looks.see()
        assert looks.calibrator._task is first
        await first

    async def test_anew_when_the_server_was_started_anew(self, looks):
        await looks.look()
        looks.server.family = FAMILIES["qwen3_vl"]
        await looks.look()
        assert looks.states == [CalibrationState.DISAGREES]
        await looks.look(starts=1)
        assert (looks.states, looks.model().family.name) == ([CalibrationState.AGREES], "qwen3_vl")
        assert looks.model().family.tokens(PICTURES[0]).is_exact

    async def test_anew_when_it_was_away(self, looks):
        await looks.look()
        await looks.look(is_up=False)
        asked = len(looks.server.asked)
        await looks.look(is_up=True)
        assert len(looks.server.asked) == 2 * asked

    async def test_what_was_under_way_ends_when_the_server_was_started_anew(self, looks):
        looks.see()
        first = looks.calibrator._task
        await asyncio.sleep(0)
        looks.see(starts=1)
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        assert looks.held() == (0,) * len(Resource)
        await looks.look()
        assert looks.states == [CalibrationState.DISAGREES]

    async def test_a_name_that_comes_is_asked_about_and_one_that_comes_back_too(self, looks):
        await looks.look()
        looks.list("mine")
        await looks.look()
        assert list(looks.calibrator.results) == ["mine"]
        looks.list("mine", QWEN3)
        await looks.look()
        assert looks.states == [CalibrationState.FOUND, CalibrationState.DISAGREES]

    async def test_anew_when_something_else_is_known_of_the_model(self, looks):
        await looks.look()
        looks.tell(QWEN3)
        assert looks.states == [CalibrationState.WAITING]
        await looks.look()
        assert (looks.states, looks.model().family.name) == ([CalibrationState.AGREES], "qwen2_5_vl")
        asked = len(looks.server.asked)
        await looks.look()
        assert len(looks.server.asked) == asked

    async def test_an_answer_about_what_was_known_before_is_none(self, looks, caplog):
        looks.see()
        await asyncio.sleep(0)
        looks.tell(QWEN3)
        looks.see()
        await looks.look()
        assert (looks.states, caplog.messages) == ([CalibrationState.WAITING], [])
        await looks.look()
        assert looks.states == [CalibrationState.AGREES]

    @pytest.mark.parametrize("failure", [CountError("no"), ZeroDivisionError("oops")])
    async def test_a_model_that_is_known_anew_has_all_its_attempts_again(self, looks, failure):
        looks.server.failure = failure
        for _ in range(4):
            await looks.look()
        looks.tell(QWEN3)
        looks.server.failure = None
        await looks.look()
        assert looks.states == [CalibrationState.AGREES]

    async def test_adapters_are_not_asked_about_and_take_what_came_of_their_parents(self):
        looks = Looks([])
        parent, adapter, later = (
            UpstreamModel("mine", 4096),
            *(UpstreamModel(name, None, "/adapters", "mine") for name in ("adapter", "later")),
        )
        looks.list_these(parent, adapter)
        await looks.look()
        assert {model for _, model, _ in looks.server.asked} == {"mine"}
        assert looks.model("adapter").calibration is looks.model("mine").calibration
        assert looks.model("adapter").family_source is FamilySource.CALIBRATION
        looks.list_these(parent, adapter, later)
        await looks.look()
        assert looks.model("later").calibration.state is CalibrationState.FOUND
        assert len(looks.server.asked) == 1 + len(PICTURES)

    async def test_an_adapter_whose_parent_is_not_listed_is_asked_about(self):
        looks = Looks([])
        looks.list_these(UpstreamModel("adapter", 4096, None, "gone"), UpstreamModel("own", 4096, None, "own"))
        for _ in range(2):
            await looks.look()
        assert looks.states == [CalibrationState.FOUND] * 2

    async def test_of_very_many_names_some_and_of_endless_ones_none(self):
        looks = Looks(["x" * 201, *(f"alias-{number}" for number in range(20))])
        for _ in range(20):
            await looks.look()
        assert list(looks.calibrator.results) == [f"alias-{number}" for number in range(8)]
        assert len(looks.server.asked) == 8 * (1 + len(PICTURES))
