"""Looking for the models' own files beside all else."""

import asyncio
import threading

import pytest

from gateway.domain.learning import LearnedLimit
from gateway.models.identity import FamilySource, FoundFiles
from gateway.models.places import Look
from gateway.models.processor_config import parse_model
from gateway.models.served import Engine, ModelTable, Origin
from gateway.pipeline.model_search import THREAD, ModelSearch
from gateway.upstream.state import UpstreamModel, UpstreamState
from tests.support.clock import FakeClock
from tests.support.live_gateway import until

FOUND = FoundFiles(
    parse_model({"architectures": ["Qwen2_5_VLForConditionalGeneration"]}, {"max_pixels": 802_816}, None),
    FamilySource.HUB,
)


def looking():
    """The threads that look just now."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


class AnyPlaces:
    """Answers in turn; the last one again and again. A `Look` is found, an `Event` hangs until it is set, an
    exception is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def look(self, name, root):
        self.asked.append((name, root))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, threading.Event):
            answer.wait()
            return Look()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Searched:
    """A table, what searches for it, and the lists that the server shows."""

    def __init__(self, places, **settings):
        self.table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
        self.search = ModelSearch(self.table, places, **settings)

    def see(self, *names):
        models = tuple(UpstreamModel(name, None, f"org/{name}") for name in names)
        self.table.listed(dict.fromkeys(names), {model.id: Origin(model.root) for model in models})
        self.state = UpstreamState(models=models)
        self.search(self.state)


@pytest.fixture
async def searching(stack):
    async def start(places, **settings):
        searched = Searched(places, **settings)
        await searched.search.start()
        stack.push_async_callback(searched.search.close)
        return searched

    return start


async def test_what_is_found_prices_the_model(searching, caplog):
    places = AnyPlaces(Look(FOUND))
    searched = await searching(places)
    with caplog.at_level("INFO"):
        searched.see("vision")
        assert searched.table.served("vision").is_assumed, "nothing waits for it"
        await until(lambda: not searched.table.served("vision").is_assumed)
    assert places.asked == [("vision", "org/vision")]
    assert "model 'vision': qwen2_5_vl by its own files (hub)" in caplog.text


async def test_of_a_new_list_only_what_is_new_is_looked_for(searching):
    places = AnyPlaces(Look(FOUND), Look())
    searched = await searching(places)
    searched.see("a")
    await until(lambda: len(places.asked) == 1)
    searched.search(searched.state)
    searched.see("a", "b")
    searched.see("a", "b")
    await until(lambda: len(places.asked) == 2)
    searched.see("a", "b", "c")
    await until(lambda: len(places.asked) == 3)
    assert [name for name, _ in places.asked] == ["a", "b", "c"], "what is not there is an answer too"


async def test_after_a_time_files_are_looked_at_again(searching):
    clock = FakeClock()
    places = AnyPlaces(Look(FOUND))
    searched = await searching(places, now=lambda: clock.now)
    searched.see("a")
    await until(lambda: len(places.asked) == 1)
    clock.advance(3599)
    searched.see("a", "b")
    await until(lambda: len(places.asked) == 2)
    clock.advance(1)
    searched.see("a", "b", "c")
    await until(lambda: len(places.asked) == 4)
    assert [name for name, _ in places.asked] == ["a", "b", "a", "c"]


async def test_a_model_that_was_gone_is_looked_for_again(searching):
    places = AnyPlaces(Look(FOUND))
    searched = await searching(places)
    searched.see("a")
    await until(lambda: len(places.asked) == 1)
    searched.see("b")
    await until(lambda: len(places.asked) == 2)
    searched.see("a", "b")
    await until(lambda: len(places.asked) == 3)
    assert [name for name, _ in places.asked] == ["a", "b", "a"]


async def test_one_that_was_gone_for_less_than_a_look_has_its_files_back(searching):
    places = AnyPlaces(Look(FOUND))
    searched = await searching(places)
    searched.see("a")
    await until(lambda: not searched.table.served("a").is_assumed)
    searched.see()
    searched.see("a")
    assert searched.table.served("a").is_assumed
    await until(lambda: not searched.table.served("a").is_assumed)
    assert len(places.asked) == 1


async def test_what_is_in_the_way_is_told(searching, caplog):
    searched = await searching(AnyPlaces(Look(troubles=("hub: asks for consent",))), log_prefix="b: ")
    searched.see("vision")
    await until(lambda: "b: model 'vision': its files: hub: asks for consent" in caplog.text)
    assert searched.table.served("vision").is_assumed


async def test_a_hub_that_could_not_be_reached_is_asked_again_but_not_for_ever(searching):
    places = AnyPlaces(Look(is_worth_another=True))
    searched = await searching(places, again_seconds=(0.01, 0.01))
    searched.see("vision")
    await until(lambda: len(places.asked) == 3)
    await asyncio.sleep(0.1)
    assert len(places.asked) == 3


async def test_what_is_found_then_is_not_asked_for_again(searching):
    places = AnyPlaces(Look(is_worth_another=True), Look(FOUND))
    searched = await searching(places, again_seconds=(0.01, 0.01))
    searched.see("vision")
    await until(lambda: not searched.table.served("vision").is_assumed)
    await asyncio.sleep(0.1)
    assert len(places.asked) == 2


async def test_a_new_list_ends_the_waiting_for_another_try(searching):
    places = AnyPlaces(Look(is_worth_another=True), Look(FOUND))
    searched = await searching(places, again_seconds=(3600.0,))
    searched.see("a")
    await until(lambda: len(places.asked) == 1)
    searched.see("b")
    await until(lambda: not searched.table.served("b").is_assumed)


async def test_what_hangs_is_given_up_and_nothing_else_begun_beside_it(searching, caplog):
    disc = threading.Event()
    places = AnyPlaces(disc, Look(FOUND))
    searched = await searching(places, look_seconds=0.05)
    searched.see("a", "b")
    await until(lambda: "looking for files of models still hangs" in caplog.text)
    assert "model 'a': its files: not found within 0.05 s: a disc or the hub hangs" in caplog.text
    assert len(places.asked) == 1
    disc.set()
    await until(lambda: not looking())
    searched.see("c")
    await until(lambda: not searched.table.served("c").is_assumed)


async def test_it_ends_while_something_hangs(caplog):
    disc = threading.Event()
    searched = Searched(AnyPlaces(disc))
    await searched.search.start()
    searched.see("a")
    await until(looking)
    await searched.search.close()
    assert [thread.daemon for thread in looking()] == [True]
    disc.set()
    await until(lambda: not looking())


async def test_it_ends_in_the_midst_of_many_looks():
    """Also in the turn of the loop in which one has its result."""
    for turns in range(40):
        searched = Searched(AnyPlaces(Look()))
        await searched.search.start()
        searched.see(*(f"model-{index}" for index in range(64)))
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await searched.search.close()


async def test_a_look_that_fails_is_told_and_the_others_go_on(searching, caplog):
    places = AnyPlaces(TypeError("unhashable type: 'dict'"), Look(FOUND))
    searched = await searching(places)
    searched.see("bad", "good")
    await until(lambda: not searched.table.served("good").is_assumed)
    assert "model 'bad': its files: cannot be looked for: TypeError(" in caplog.text
    searched.see("new")
    await until(lambda: not searched.table.served("new").is_assumed)


async def test_files_that_cannot_be_used_are_told_and_the_others_go_on(searching, caplog, monkeypatch):
    searched = await searching(AnyPlaces(Look(FOUND)))
    take = searched.table.found

    def found(wanted, files):
        if wanted.name == "bad":
            raise TypeError("unhashable type: 'list'")
        take(wanted, files)

    monkeypatch.setattr(searched.table, "found", found)
    searched.see("bad", "good")
    await until(lambda: not searched.table.served("good").is_assumed)
    assert "model 'bad': its files cannot be used" in caplog.text


async def test_whatever_fails_the_next_list_is_looked_at(searching, caplog, monkeypatch):
    searched = await searching(AnyPlaces(Look(FOUND)))
    with monkeypatch.context() as broken:
        broken.setattr(searched.table, "wanted", lambda: 1 / 0)
        searched.see("a")
        await until(lambda: "looking for files of models failed" in caplog.text)
    searched.see("b")
    await until(lambda: not searched.table.served("b").is_assumed)


async def test_closing_what_was_not_started_is_no_fault():
    await Searched(AnyPlaces(Look())).search.close()


def test_a_loop_that_has_ended_is_not_told():
    disc = threading.Event()

    async def begin():
        searched = Searched(AnyPlaces(disc))
        await searched.search.start()
        searched.see("a")
        await until(looking)
        await searched.search.close()
        return looking()

    (thread,) = asyncio.run(begin())
    disc.set()
    thread.join(10)
    assert not thread.is_alive()
