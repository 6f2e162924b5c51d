"""When a server is asked what pictures cost, what that costs, and what follows. The server is a counter of tokens."""

import asyncio
import logging
from dataclasses import replace

import pytest

from gateway.domain.calibration import MOST_COMPLETION_TOKENS, PICTURES, CalibrationState
from gateway.domain.decision import Verdict
from gateway.domain.learning import LearnedLimit
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket
from gateway.emulator.vision import FAMILIES
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.models.identity import FoundFiles
from gateway.models.processor_config import parse_model
from gateway.models.served import Engine, FamilySource, ModelTable, Wanted
from gateway.pipeline.calibration import Calibrator, measure
from gateway.pipeline.follow import list_models
from gateway.upstream.counting import CountError, CountRefusedError, Way
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport
from tests.support.counting_server import TEXT_TOKENS, Counting

QWEN3 = "Qwen/Qwen3-VL-8B-Instruct"
LATER = Ticket(Amounts(0, 1), 0.0, 1e9)
BOTH = (Way.TOKENIZE, Way.COMPLETIONS)


class Looks:
    """A calibrator, and the state that it is told after each look."""

    def __init__(self, names=(QWEN3,), ways=(Way.TOKENIZE,), server=None):
        loop = asyncio.get_running_loop()
        self.gate = Gate(
            LocalLedger(Capacity(None, 128)),
            QueuePolicy(),
            clock=loop.time,
            call_later=loop.call_later,
            jitter=lambda: 0.0,
        )
        self.table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
        self.server = server or Counting()
        self.calibrator = Calibrator(self.table, self.gate, self.server, ways)
        idle = EngineReport(running=0, waiting=0)
        self.state = UpstreamState(is_up=True, has_been_up=True, report=idle, reported_at_seconds=0.0)
        self.list(*names)

    def list(self, *names):
        self.list_these(*(UpstreamModel(name, 4096) for name in names))

    def list_these(self, *models):
        self.state = replace(self.state, models=models)
        list_models(self.table, self.state.models)

    def tell(self, name):
        """Its own files were found, and say that it is a Qwen2.5-VL."""
        config = {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}
        self.table.found(Wanted(name, None), FoundFiles(parse_model(config, None, None), FamilySource.CACHE))

    def see(self, **changes):
        """A look, without waiting for what it begins."""
        self.state = replace(self.state, reported_at_seconds=self.state.reported_at_seconds + 1.0)
        self.state = replace(self.state, **changes)
        self.calibrator(self.state)

    async def look(self, **changes):
        self.see(**changes)
        if self.calibrator._task is not None:
            await asyncio.gather(self.calibrator._task, return_exceptions=True)

    def model(self, name=QWEN3):
        return self.table.served(name)

    def held(self):
        return self.gate.statistics().holdings.held

    @property
    def states(self):
        return [result.state for result in self.calibrator.results.values()]


@pytest.fixture(autouse=True)
def _all_of_the_log(caplog):
    caplog.set_level(logging.INFO)


@pytest.fixture
async def looks():
    return Looks()


def place_of(looks):
    return looks.gate.admit(Ticket(Amounts(0, 1), 0.0, 1e9))


class TestWhatIsTold:
    async def test_a_family_that_agrees(self, caplog):
        looks = Looks(server=Counting("qwen3_vl"))
        await looks.look()
        assert caplog.messages == [f"the model {QWEN3!r}: qwen3_vl agrees with the server on all of 8 pictures"]
        assert (looks.states, looks.model().family.name) == ([CalibrationState.AGREES], "qwen3_vl")
        assert looks.model().family_source is FamilySource.NAME

    async def test_a_family_that_is_another_than_the_servers_and_is_not_overridden(self, looks, caplog):
        await looks.look()
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert (
            "qwen3_vl DISAGREES with the server on 8 of 8 pictures (64x64: predicted 66, measured 6" in record.message
        )
        assert record.message.endswith("until one of the two is put right: see models[].family and processor")
        model = looks.model()
        assert (model.family.name, model.family_source) == ("qwen3_vl", FamilySource.NAME)
        assert (model.family.tokens(PICTURES[0]).prompt, model.family.tokens(PICTURES[0]).least_prompt) == (66, 6)

    async def test_a_family_that_was_not_known(self, caplog):
        looks = Looks(["mine"])
        await looks.look()
        assert "the model 'mine': its family was found by 8 pictures: they cost as with qwen2_vl" in caplog.text
        assert (looks.states, looks.model("mine").is_assumed) == ([CalibrationState.FOUND], False)

    async def test_it_is_told_once(self, looks, caplog):
        for _ in range(3):
            await looks.look()
        assert len(caplog.messages) == 1
        assert (len(looks.server.asked), looks.server.closed) == (1 + len(PICTURES), 1)


class TestHowItIsAsked:
    async def test_by_tokenize_with_pictures_that_no_server_has_seen(self, looks):
        await looks.look()
        assert [(way, size) for way, _, size in looks.server.asked] == [
            (Way.TOKENIZE, size) for size in (None, *PICTURES)
        ]
        await looks.look(starts=1)
        assert len(set(looks.server.pictures)) == 1 + 2 * len(PICTURES)

    async def test_by_answers_of_one_token_where_tokenize_does_not_see_pictures(self):
        looks = Looks(["mine"], BOTH)
        looks.server.expands = {Way.COMPLETIONS}
        await looks.look()
        ways = [way for way, _, size in looks.server.asked]
        assert ways == [Way.TOKENIZE] * (1 + len(PICTURES)) + [Way.COMPLETIONS] * len(PICTURES)
        assert looks.states == [CalibrationState.FOUND]
        assert looks.calibrator.results["mine"].way == "completions"

    async def test_never_by_answers_where_the_settings_leave_it_at_tokenize(self, looks, caplog):
        looks.server.expands = set()
        for _ in range(5):
            await looks.look()
        assert {way for way, _, _ in looks.server.asked} == {Way.TOKENIZE}
        assert looks.states == [CalibrationState.UNANSWERED]
        [message] = caplog.messages
        assert message.startswith(f"the model {QWEN3!r}: not calibrated: its tokenize counts a picture as it stands in")

    async def test_tokens_of_all_answers_together_are_few(self):
        looks = Looks(ways=(Way.COMPLETIONS,))
        await looks.look()
        visual = [
            looks.server.family.visual_tokens(size.width, size.height) for _, _, size in looks.server.asked if size
        ]
        assert sum(visual) + TEXT_TOKENS * len(looks.server.asked) < MOST_COMPLETION_TOKENS

    async def test_each_question_holds_a_place_of_its_own_and_all_are_given_back(self):
        looks = Looks(ways=BOTH)
        looks.server.expands = {Way.COMPLETIONS}
        held = []
        looks.server.before = lambda: held.append((looks.held(), looks.gate.statistics().leases))
        await looks.look()
        assert {leases for _, leases in held} == {1}
        tokenize, completions = held[: 1 + len(PICTURES)], held[1 + len(PICTURES) :]
        assert [amounts[Resource.SEQUENCES] for amounts, _ in tokenize] == [0] * len(tokenize)
        assert [amounts[Resource.SEQUENCES] for amounts, _ in completions] == [1] * len(completions)
        assert tokenize[1][0][Resource.PREPROCESS_PIXELS] == PICTURES[0].pixels
        assert completions[1][0][Resource.KV_BLOCKS] > 0
        assert looks.held() == (0,) * len(Resource)
        assert looks.gate.statistics().leases == 0

    async def test_without_a_way_nothing_is_asked_or_told(self):
        looks = Looks(ways=())
        await looks.look()
        assert (looks.server.asked, looks.calibrator.results) == ([], {})


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


class TestWhatGoesWrong:
    async def test_a_server_that_gives_no_counts_is_asked_three_times(self, looks, caplog):
        looks.server.failure = CountError("/tokenize answered 404")
        for _ in range(5):
            await looks.look()
        assert len(looks.server.asked) == 3
        assert caplog.messages == [f"the model {QWEN3!r}: not calibrated: /tokenize answered 404"]
        assert looks.model().family.name == "qwen3_vl"

    async def test_each_way_says_why(self, caplog):
        looks = Looks(ways=BOTH)
        looks.server.failure = CountError("no")
        for _ in range(3):
            await looks.look()
        assert caplog.messages == [f"the model {QWEN3!r}: not calibrated: no; no"]

    async def test_a_model_that_takes_no_pictures_says_so(self, looks, caplog):
        def refuse_pictures():
            if looks.server.asked[-1][2] is not None:
                looks.server.failure = CountRefusedError("/tokenize answered 400: At most 0 image(s)")
            else:
                looks.server.failure = None

        looks.server.before = refuse_pictures
        for _ in range(3):
            await looks.look()
        assert [size for _, _, size in looks.server.asked] == [None, *[PICTURES[0]] * 3]
        assert "not calibrated: /tokenize answered 400: At most 0 image(s)" in caplog.text

    async def test_a_picture_that_is_refused_is_an_answer(self, looks):
        def refuse_the_strip():
            is_strip = looks.server.asked[-1][2] == PICTURES[1]
            looks.server.failure = CountRefusedError("400") if is_strip else None

        looks.server.before = refuse_the_strip
        await looks.look()
        assert "98x42: predicted 80, measured refused" in looks.calibrator.results[QWEN3].sentence("qwen3_vl")

    async def test_a_fault_of_the_gateway_ends_the_calibration_alone(self, looks, caplog):
        looks.server.failure = ZeroDivisionError("oops")
        for _ in range(3):
            await looks.look()
        assert len(looks.server.asked) == 1
        assert caplog.messages == [f"calibrating the model {QWEN3!r} failed"]
        assert looks.held() == (0,) * len(Resource)


class TestLeaving:
    async def test_what_is_under_way_ends_and_nothing_is_begun(self, looks):
        looks.see()
        await asyncio.sleep(0)
        looks.calibrator.pause()
        await asyncio.gather(looks.calibrator._task, return_exceptions=True)
        assert looks.calibrator._task.cancelled()
        await looks.look()
        assert looks.states == [CalibrationState.WAITING]
        looks.calibrator.resume()
        await looks.look()
        assert looks.states == [CalibrationState.DISAGREES]

    async def test_closing_waits_for_what_is_under_way(self, looks):
        looks.see()
        await asyncio.sleep(0)
        await looks.calibrator.close()
        assert looks.calibrator._task.done()
        assert looks.held() == (0,) * len(Resource)

    async def test_closing_one_that_never_began(self, looks):
        await looks.calibrator.close()
        assert looks.server.asked == []


async def test_the_first_way_that_works_is_the_last_that_is_tried():
    asked = []

    async def ask(way, size):
        asked.append(way)
        return TEXT_TOKENS if size is None else TEXT_TOKENS + 576

    result = await measure(ask, None, BOTH)
    assert (result.state, result.family.name, set(asked)) == (CalibrationState.FOUND, "llava_1_5", {Way.TOKENIZE})
