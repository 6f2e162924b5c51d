"""The README's numbers are those of the code: each is read from its sentence, and what happens is compared with it."""

import inspect
import re
from math import inf, nextafter

import pytest
import yaml

from gateway.cli.emulate import emulate
from gateway.domain.breaker import Breaker, Progress
from gateway.domain.ceiling import BackPressure, Ceiling, Look, PressureShare
from gateway.domain.forecast import Forecast
from gateway.domain.order import AGED_EVERY, AGING_SECONDS
from gateway.domain.priority import Priority
from gateway.domain.remembered import Remembered
from gateway.domain.routing import Standing, pick
from gateway.domain.slo import ServiceLevel
from gateway.policies import ByteBudgets, shadow_body_limits_of
from gateway.settings import Settings
from gateway.wire import read
from tests.domain import test_goodput
from tests.support.readme import README, ROOT, TEXT, said


def makefile_says(name):
    return float(re.search(rf"^{name} \?= (\d+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1])


def test_how_often_the_longest_waiting_have_a_turn():
    assert said("# turn in # goes to those that had none for # seconds") == (1, AGED_EVERY, AGING_SECONDS)


def test_what_the_numbers_of_a_body_ask_for():
    (threshold,) = said("(below # interactive, above 0 batch")
    asked = [read.priority(int(threshold) + step) for step in (-1, 0, 1)]
    assert asked == [Priority.INTERACTIVE, Priority.DEFAULT, Priority.BATCH]


def broken(failures, successes):
    """A breaker after so many of each, the successes in between."""
    breaker = Breaker()
    breaker.failed(0.0)
    for _ in range(int(successes)):
        breaker.succeeded(0.0)
    for _ in range(int(failures) - 1):
        breaker.failed(0.0)
    return breaker


def test_when_a_server_is_passed_over_and_for_how_long():
    failures, last, within, open_seconds, one, probe_seconds, longest = said(
        "when # of its last # requests failed within # (for # s, then # request # tries, and each failed try doubles "
        "the time, to # at most)"
    )
    assert broken(failures - 1, last - failures).allows(0.0)
    assert broken(failures, last - failures + 1).allows(0.0)
    breaker = broken(failures - 1, 0)
    breaker.failed(within + 1.0)
    assert breaker.allows(within + 1.0)
    breaker = broken(failures, last - failures)
    times, now = [], 0.0
    while len(times) < 10:
        until = next(second for second in range(1, 1000) if breaker.allows(now + second))
        times.append(until)
        now += until
        tries = 0
        while tries <= one and breaker.allows(now + 0.99 * probe_seconds):
            breaker.sent(now)
            tries += 1
        assert tries == one
        assert breaker.allows(now + probe_seconds)
        breaker.failed(now)
    assert times[:3] == [open_seconds, 2 * open_seconds, 4 * open_seconds]
    assert set(times[5:]) == {longest}


def test_when_a_server_that_owes_answers_is_frozen():
    (seconds,) = said("while it owes answers and does no work for # s,")
    progress = Progress()
    assert not progress.is_frozen(0.0, 1, is_owed=True)
    assert not progress.is_frozen(nextafter(seconds, 0.0), 1, is_owed=True)
    assert progress.is_frozen(seconds, 1, is_owed=True)


def test_from_what_on_an_image_is_sent_elsewhere():
    (most,) = said("Where # of that server are in use it goes to the least used one")
    home = pick([Standing("a"), Standing("b")], b"an image", b"")
    for utilisation, goes_home in ((nextafter(most, 0.0), True), (most, False)):
        standings = [Standing(name, utilisation=utilisation * (index == home)) for index, name in enumerate("ab")]
        assert (pick(standings, b"an image", b"") == home) is goes_home


def test_how_far_what_is_let_in_goes_down_and_up_again():
    down, up = said("Preemptions lower it by #, each quiet look raises it by #.")
    share = PressureShare()
    share.observe(is_pressed=True, fill=1.0)
    assert share.share == 1.0 - down
    share.observe(is_pressed=False, fill=1.0)
    assert share.share == pytest.approx(1.0 - down + up)


def test_with_how_much_a_server_begins():
    first, times = said("A server that has just come up gets #, then # as much with each quiet look.")
    ceiling, seen = Ceiling(), []
    ceiling.started()
    for _ in range(3):
        seen.append(ceiling.kv_blocks(1000, 1000))
        ceiling.look(Look(running=0, waiting=0))
    assert seen == [1000 * first, 1000 * first * times, 1000]


def test_for_how_long_old_numbers_count():
    (looks,) = said("Numbers that could not be read # times in a row count for nothing.")
    ceiling, stale = Ceiling(), []
    for _ in range(int(looks)):
        ceiling.missed()
        stale.append(ceiling.is_stale)
    assert stale == [False] * (len(stale) - 1) + [True]


def test_how_often_vllm_is_looked_at():
    assert said("vLLM is looked at once #,") == (Settings().upstream.poll_seconds,)


def test_for_how_long_nothing_is_sent_to_one_that_turns_requests_away():
    most_named, first, most = said("as its Retry-After says, # s at most, else for # to # s;")
    pressure, now, pauses = BackPressure(), 0.0, []
    for _ in range(8):
        until = pressure.pushed_back(now)
        pauses.append(until - now)
        now = until
    assert (pauses[0], pauses[-1], max(pauses)) == (first, most, most)
    for named in (most_named - 1, most_named, most_named + 1):
        assert BackPressure().pushed_back(0.0, named) == min(named, most_named)


def test_how_much_of_the_time_is_the_engines():
    (share,) = said("No more goes to vLLM at once than begins within # of `first_token_seconds`")
    pace = Forecast.of(ServiceLevel(2.0, inf)).first_token
    assert pace.window_tokens == pace.tokens_per_second * 2.0 * share


def test_how_right_the_forecast_is():
    (room,) = said("the seconds that it may take: # times what its wait would be by the line")
    (of_ten,) = said("# in ten that are refused would have waited for two fifths of their time or longer")
    assert (of_ten / 10, room, 1 / room) == (test_goodput.RIGHT_SHARE, test_goodput.LINE_ROOM, 2 / 5)


def test_how_long_it_is_remembered_what_was_done_to_a_picture():
    (seconds,) = said("stays whole, for # after it was last seen")
    remembered = Remembered[str, str]()
    for picture in ("seen again", "not seen"):
        remembered.keep(picture, "whole", 0.0)
    remembered.keep("seen again", "shrunk", seconds - 1.0)
    assert remembered.recall("seen again", 2 * seconds - 2.0) == "whole"
    assert remembered.recall("not seen", seconds + 1.0) is None


def test_how_much_memory_one_body_may_take_in_shadow_mode():
    (share,) = said("bodies for which there is no memory (# of `budget.body_bytes`)")
    budgets = ByteBudgets.of(Settings.model_validate({"budget": {"body_bytes": 10_000}}).budget, 1 << 30)
    assert shadow_body_limits_of(budgets).max_bytes == 10_000 * share


def test_the_priority_that_nobody_gets_beyond_unasked():
    (most,) = re.findall(r"`most_urgent`, which is (\w+) unless the settings say otherwise", TEXT)
    tenants = Settings.model_validate({"tenants": [{"name": "default"}]}).tenants
    assert tenants[0].most_urgent == most
    named = re.search(r"`x-gateway-priority: (\w+)`, (.*?), else", TEXT)
    assert {named[1], *re.findall(r"`(\w+)`", named[2])} == {priority.label for priority in Priority}


def test_what_the_commands_of_developers_do():
    assert said("everything but the real vLLM, in # processes") == (makefile_says("TEST_PROCESSES"),)
    assert said("# events before the waiting line") == (makefile_says("LONG_EVENTS"),)


def test_what_the_container_runs_as():
    (uid,) = said("makes an image that runs as uid # with a read-only root")
    assert f"\nUSER {uid:.0f}:" in (ROOT / "Dockerfile").read_text()
    compose = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())
    assert compose["services"]["gateway"]["read_only"] is True


def test_the_ports_in_its_snippets_are_those_that_are_listened_on():
    assert f'base_url="http://127.0.0.1:{Settings().server.port}/v1"' in README
    (port,) = said("takes vLLM's place on port #.")
    assert inspect.signature(emulate).parameters["port"].default == port
    assert f"http://127.0.0.1:{port:.0f}\n" in README
