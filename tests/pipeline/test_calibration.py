"""When a server is asked what pictures cost, what that costs, and what follows. The server is a counter of tokens."""

import asyncio
import logging

import pytest

from gateway.domain.calibration import MOST_COMPLETION_TOKENS, PICTURES, CalibrationState
from gateway.domain.quantities import Resource
from gateway.models.served import FamilySource
from gateway.pipeline.calibration import measure
from gateway.upstream.counting import CountError, CountRefusedError, Way
from tests.support.calibrating import BOTH, QWEN3, Looks
from tests.support.counting_server import TEXT_TOKENS, Counting


@pytest.fixture(autouse=True)
def _all_of_the_log(caplog):
    caplog.set_level(logging.INFO)


@pytest.fixture
async def looks():
    return Looks()


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
