from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from gateway.domain.vision.registry import family_for
from gateway.replay.lines import Line
from gateway.replay.pace import Recording
from gateway.replay.synthetic import CONTEXT_TOKENS, PACE, START, Mix, Traffic, generate

TRAFFIC = Traffic("Qwen/Qwen2.5-VL-7B-Instruct", family_for("qwen2_5_vl", None), seconds=1200.0)


def lines(**fields):
    return [msgspec.json.decode(msgspec.json.encode(each), type=Line) for each in generate(replace(TRAFFIC, **fields))]


def test_the_same_seed_makes_the_same_traffic_and_another_seed_another():
    assert lines() == lines()
    assert lines(seed=1) != lines()


def test_lines_come_as_requests_end_within_the_time_that_was_asked_for():
    made = lines(seed=3)
    assert all(one.ended <= later.ended + 1e-3 for one, later in pairwise(made))
    assert min(each.arrived for each in made) >= START
    assert max(each.arrived for each in made) < START + 1200


def test_so_many_begin_a_second_and_more_in_bursts():
    made = lines(mix=Mix(1, 0, 0), per_second=5.0, burst_factor=3.0, burst_seconds=100.0, burst_every_seconds=400.0)
    in_bursts = sum((each.arrived - START) % 400 < 100 for each in made)
    assert in_bursts == pytest.approx(300 * 15, rel=0.1)
    assert len(made) - in_bursts == pytest.approx(900 * 5, rel=0.1)


def test_kinds_and_tenants_by_their_shares():
    made = lines(mix=Mix(text=3, image=1, session=0), per_second=5.0, tenants={"a": 1.0, "b": 4.0})
    assert sum(each.images == 0 for each in made) / len(made) == pytest.approx(0.75, abs=0.05)
    counts = Counter(each.tenant for each in made)
    assert counts["b"] / counts["a"] == pytest.approx(4.0, rel=0.2)


def test_sessions_show_their_old_pictures_again_and_stay_within_the_context():
    made = lines(mix=Mix(0, 0, 1), turns=12.0, per_second=0.2)
    by_length = Counter(each.images for each in made)
    assert max(by_length) >= 5
    for each in made:
        assert len(each.pictures) == each.images
        assert each.new_images in (0, 1)
        assert each.prompt_tokens <= CONTEXT_TOKENS
    seen = {picture.digest for each in made for picture in each.pictures}
    assert len(seen) < sum(each.images for each in made)


def test_its_engine_is_as_fast_as_was_asked_for():
    pace = Recording(sorted(lines(per_second=3.0), key=lambda each: each.offered)).pace
    assert pace == pytest.approx(PACE, rel=0.05, abs=0.002)
