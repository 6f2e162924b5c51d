"""Every query of every dashboard before a real Prometheus that scraped real gateways under a day of traffic.

Each panel's own expression is asked, with $__rate_interval and $__range set to the whole day: from the scrape before
the first request, when all counters were zero, to the moment of a scrape after the last. So Prometheus extrapolates
over a millisecond at most, for which TOLERANCE stands. Each value must be the one that the load generator counted for
itself: the very number, or, of times that only the gateway can measure, within the bounds that a client sees.
"""

import math

import pytest

from gateway.imaging.processes import WorkerProcesses
from tests.deploy.panels import acts, standstills
from tests.deploy.panels.expected import END, Expected, expectations, series
from tests.deploy.panels.house import JOB, SHADOW_JOB, house, install_nvidia_smi
from tests.deploy.panels.quantiles import at_most, quantile
from tests.deploy.panels.standing import standing
from tests.deploy.panels.tally import Range
from tests.support.dashboards import targets

TOLERANCE = 1e-3
NO_DATA = {
    ("overview", "Log lines lost", 0): "the output of the request log is never slower than the log here",
    ("overview", "Models without series", 0): "it takes more than a hundred served models",
    ("estimates", "Models of unknown family", 0): "the settings name the family of each",
    ("estimates", "Requests with images of no exact price", 0): "size alone decides in the families of the day",
    ("overview", "Gateways that drain", 0): "none of them is told to",
    ("rejections", "Keys in use", 1): "the keys file is good all day",
    ("images", "Videos and audio", 0): "no server here takes any",
    ("budget", "KV blocks beyond the sum", 1): "no two answers here are long enough to end apart",
    ("budget", "Prompt tokens before their first token", 1): "bounded only where a level of service is stated",
    ("budget", "Prompt tokens behind images", 1): "likewise",
    ("estimates", "Calibration, by state", 0): "servers that are watched this closely are asked nothing beside",
    ("estimates", "Pictures that cost another number of tokens", 0): "likewise",
    ("estimates", "Tokens of images: predicted divided by reported", 0): "no server here tells them apart",
    ("upstream", "Gateways of one budget", 0): "no gateway here shares one",
    ("upstream", "Cut off from the shared budget", 0): "likewise",
    ("upstream", "Calls without an answer", 0): "likewise",
}
"""Queries that show nothing, or nothing but zero, on this day, and why."""


class Asked:
    """The queries as they are asked: over the whole day of a job, or at a moment when all stood still."""

    def __init__(self, house, days):
        self._house = house
        self._days = days

    async def __call__(self, target, wanted, **chosen):
        first, last = self._days[wanted.job]
        at = last if wanted.moment == END else self._house.tally.moments[wanted.moment].at
        variables = dict.fromkeys(("instance", "model", "upstream"), ".*") | {"job": wanted.job} | chosen
        found = await self._house.prometheus.query(target.at(round((last - first) * 1000) + 1, **variables), at)
        return {labels: value for labels, value in found.items() if not math.isnan(value)}  # Grafana draws none of them


def complaints(target, found, wanted):
    """What is not as the load generator has it."""
    where = f"{'/'.join(target.key[:2])} [{target.index}]"
    if found.keys() != wanted.values.keys():
        yield f"{where}: has {sorted(found)} instead of {sorted(wanted.values)}"
    if not any(found.values()):
        yield f"{where}: shows nothing but zero"
    for labels in found.keys() & wanted.values.keys():
        low, high = wanted.values[labels]
        if not low * (1 - TOLERANCE) <= found[labels] <= high * (1 + TOLERANCE):
            yield f"{where} {dict(labels)}: {found[labels]:g} instead of {low:g} to {high:g}"


@pytest.mark.system("prometheus")
async def test_every_panel_shows_what_happened(tmp_path, monkeypatch, report_line):
    monkeypatch.setattr("gateway.composing.WorkerProcesses", WorkerProcesses)
    monkeypatch.setenv("CRASH_ONCE", str(tmp_path / "crashed"))
    install_nvidia_smi(tmp_path / "driver", monkeypatch)
    every = {target.key: target for target in targets()}
    async with house(tmp_path) as here:
        await live_through_the_day(here, monkeypatch)
        days = {job: await here.prometheus.day(job) for job in (JOB, SHADOW_JOB)}
        lengths = {job: last - first for job, (first, last) in days.items()}
        told = expectations(here.tally, lengths) | standing(here.tally, f"{here.gateway.host}:{here.gateway.port}")
        wanted = {(*panel, index): each for panel, queries in told.items() for index, each in enumerate(queries)}
        assert wanted.keys() == every.keys() - NO_DATA.keys()
        asked = Asked(here, days)
        found = {key: await asked(every[key], each) for key, each in wanted.items()}
        nothing = {key: await asked(every[key], Expected({})) for key in NO_DATA}
        of_small = await asked(every["overview", "Requests by model", 0], Expected({}), model="small")
    wrong = [line for key, each in wanted.items() for line in complaints(every[key], found[key], each)]
    assert wrong == [], "\n".join(wrong)
    assert [key for key, values in nothing.items() if any(values.values())] == []
    assert of_small == {
        labels: value
        for labels, value in found["overview", "Requests by model", 0].items()
        if ("model", "small") in labels
    }
    exact = [key for key, each in wanted.items() if all(low == high for low, high in each.values.values())]
    panels = {key[:2] for key in every}
    with_data = {key[:2] for key in wanted}
    report_line(
        f"dashboards before Prometheus: {len(with_data)} of {len(panels)} panels have data; {len(exact)} of "
        f"{len(every)} queries equal what the load generator counted, {len(wanted) - len(exact)} lie within its "
        f"bounds, {len(NO_DATA)} cannot have data here"
    )


async def live_through_the_day(here, monkeypatch):
    await acts.plain_requests(here)
    await acts.pictures_of_all_kinds(here)
    await acts.faults_of_clients(here)
    await acts.pictures_by_address(here)
    await acts.workers_that_die(here, monkeypatch)
    await standstills.in_shadow(here)
    await standstills.a_full_house(here)
    await standstills.an_engine_that_others_use(here)
    await standstills.a_connection_that_breaks(here)
    await standstills.answers_that_end_early(here, monkeypatch)
    await standstills.a_server_that_turns_away(here)
    await standstills.a_server_that_goes(here)


class TestWhatTheTestItselfCountsBy:
    def test_a_quantile_as_prometheus_has_it(self):
        """Four observations in buckets up to 1, 2 and 4: the third of them is half-way through the last bucket."""
        observations = [Range.exactly(value) for value in (0.5, 1.5, 3.0, 3.5)]
        assert quantile(0.75, observations, (1, 2, 4)) == (3.0, 3.0)
        assert quantile(0.25, observations, (1, 2, 4)) == (1.0, 1.0)
        assert quantile(0.99, [*observations, Range.exactly(9)], (1, 2, 4)) == (4, 4)

    def test_what_is_known_within_bounds_gives_bounds(self):
        observations = [Range(0.5, 1.5), Range(3, 3)]
        assert quantile(0.5, observations, (1, 2, 4)) == (1.0, 2.0)
        assert at_most(1, observations) == (0, 1)

    def test_a_value_that_is_off_a_series_too_many_and_nothing_but_zero_are_told(self):
        target, tiny, other = next(targets()), (("model", "tiny"),), (("model", "other"),)
        three, none = (Expected(series("model", {"tiny": value})) for value in (3, 0))
        assert list(complaints(target, {tiny: 3.0}, three)) == []
        for found, wanted in (({tiny: 3.1}, three), ({tiny: 3.0, other: 1.0}, three), ({tiny: 0.0}, none)):
            assert len(list(complaints(target, found, wanted))) == 1
