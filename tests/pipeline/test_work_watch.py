"""A frozen engine behind a server that answers: seen by what is owed and not made."""

from types import SimpleNamespace

import pytest

from gateway.domain.breaker import Breaker
from gateway.pipeline.work_watch import WorkWatch
from gateway.upstream.state import Health, Observation, UpstreamState, next_state
from gateway.wire.vllm_metrics import EngineReport


class Watched:
    """A server as it is looked at each second."""

    def __init__(self):
        self.now, self.state, self.breaker = 0.0, UpstreamState(), Breaker()
        self.statistics = SimpleNamespace(mid_answer=0, pieces=0)
        self.watch = WorkWatch(self.breaker, SimpleNamespace(statistics=lambda: self.statistics), lambda: self.now)

    def look(self, report=None, *, seconds=1):
        for _ in range(seconds):
            self.now += 1.0
            self.state = next_state(self.state, Observation(Health.OK, report=report), self.now)
            self.watch(self.state)

    @property
    def is_open(self):
        return not self.breaker.allows(self.now)


@pytest.fixture
def watched():
    return Watched()


def test_an_answer_that_stands_still(watched, caplog):
    watched.look()
    watched.statistics.mid_answer = 1
    watched.look(seconds=14)
    assert not watched.is_open
    watched.look()
    assert watched.is_open
    watched.look(seconds=20)
    assert watched.is_open
    watched.statistics.pieces += 1
    watched.look()
    assert [record.message for record in caplog.records] == [
        "the upstream owes answers, and has done nothing for 15 s",
        "the upstream works again, or nothing is owed any more",
    ]


def test_answers_that_flow(watched):
    watched.statistics.mid_answer = 1
    for _ in range(60):
        watched.statistics.pieces += 1
        watched.look()
        assert not watched.is_open


def test_no_answer_has_begun_but_the_engine_says_that_it_runs_one_and_takes_no_step(watched):
    watched.look(EngineReport(running=1, steps=7, generated_tokens=3), seconds=17)
    assert watched.is_open


def test_a_long_prefill_takes_steps(watched):
    watched.statistics.mid_answer = 1
    for step in range(60):
        watched.look(EngineReport(running=1, steps=step, generated_tokens=3))
        assert not watched.is_open


@pytest.mark.parametrize(
    "report", [None, EngineReport(running=1), EngineReport(running=0, steps=7), EngineReport(running=None, steps=7)]
)
def test_an_engine_of_which_nothing_is_known_or_that_has_no_work(watched, report):
    watched.look(report, seconds=60)
    assert not watched.is_open


def test_numbers_that_could_not_be_read_again_say_nothing(watched):
    watched.look(EngineReport(running=1, steps=7))
    watched.look(None, seconds=60)
    assert not watched.is_open
