"""What each look at the upstream changes."""

import asyncio
import logging
from dataclasses import replace

import pytest

from gateway.domain.learning import LearnedLimit
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.ledger.base import SharedStanding
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.models.configure import configured_model
from gateway.models.served import Engine, ModelTable
from gateway.pipeline.follow import EngineFollower
from gateway.telemetry.metrics import Metrics
from gateway.upstream.state import Health, Observation, UpstreamModel, UpstreamState, next_state
from gateway.wire.vllm_metrics import EngineReport


class Looks:
    """A follower, and the state that it is told after each look."""

    def __init__(self, **settings):
        loop = asyncio.get_running_loop()
        self.gate = Gate(
            LocalLedger(Capacity(None, 128)),
            QueuePolicy(),
            clock=loop.time,
            call_later=loop.call_later,
            jitter=lambda: 0.0,
        )
        self.table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
        self.state, self.now = UpstreamState(), 0.0
        self.follower = EngineFollower(self.table, self.gate, Metrics(), clock=lambda: self.now, **settings)

    def see(self, report=None, *, health=Health.OK, models=None):
        self.now += 1.0
        self.state = next_state(self.state, Observation(health, models, None, report), self.now)
        self.follower(self.state)

    def capacity(self, resource):
        return self.gate.statistics().holdings.capacity[resource]


@pytest.fixture
async def looks():
    return Looks()


async def test_it_loads_until_it_was_up_once(looks):
    looks.see(health=Health.REFUSING)
    assert looks.table.engine.is_loading
    looks.see()
    looks.see(health=Health.REFUSING)
    assert not looks.table.engine.is_loading


async def test_names_get_their_family_and_their_context(looks):
    looks.see(models=(UpstreamModel("Qwen/Qwen2.5-VL-7B-Instruct", 4096), UpstreamModel("mystery", None)))
    known, guessed = looks.table.served("Qwen/Qwen2.5-VL-7B-Instruct"), looks.table.served("mystery")
    assert (known.is_assumed, known.max_model_len) == (False, 4096)
    assert (guessed.is_assumed, guessed.max_model_len) == (True, None)
    assert looks.table.names == ("Qwen/Qwen2.5-VL-7B-Instruct", "mystery")
    assert looks.table.served(None) is looks.table.served("") is known


async def test_names_that_went_are_forgotten_and_those_that_stay_keep_what_they_learned(looks):
    looks.see(models=(UpstreamModel("a", None), UpstreamModel("b", None)))
    kept = looks.table.served("b")
    looks.see(models=(UpstreamModel("b", 4096), UpstreamModel("c", None)))
    assert looks.table.names == ("b", "c")
    assert (looks.table.served("b"), kept.max_model_len) == (kept, 4096)
    assert looks.table.served("a").name == "other"


async def test_names_of_the_settings_stay(looks):
    looks.follower.models = ModelTable(
        [configured_model("mine", family=None, folder=None, processor=None)], looks.table.engine
    )
    looks.see(models=(UpstreamModel("theirs", None),))
    assert looks.follower.models.names == ("mine", "theirs")


@pytest.mark.parametrize("report", [EngineReport(num_gpu_blocks=3, engines=4), EngineReport(num_gpu_blocks=0)])
async def test_a_pool_smaller_than_any_is_not_known(looks, report):
    looks.see(report)
    assert (looks.table.engine.kv_blocks, looks.capacity(Resource.KV_BLOCKS)) == (None, None)


async def test_without_any_name_a_request_is_priced_by_the_guess(looks):
    assert looks.table.served(None).is_assumed


async def test_kv_blocks_less_vllms_own_and_the_head_room(looks):
    looks.see(
        EngineReport(
            num_gpu_blocks=1001, block_size=32, engines=1, enable_prefix_caching=False, longest_request_blocks=77
        )
    )
    engine = looks.table.engine
    assert (engine.kv_blocks, engine.kv_block_tokens, engine.prefix_caching) == (1000, 32, False)
    assert engine.longest_request_blocks == 77
    assert looks.capacity(Resource.KV_BLOCKS) == 950


async def test_the_operators_blocks_are_never_raised():
    looks = Looks(kv_blocks=500)
    looks.see(EngineReport(num_gpu_blocks=1001, engines=1))
    assert looks.table.engine.kv_blocks == 500
    looks.see(EngineReport(num_gpu_blocks=401, engines=1))
    assert looks.table.engine.kv_blocks == 400


async def test_a_queue_that_stands_at_the_engine_lowers_the_ceiling(looks):
    looks.gate.grow(Amounts(0, 43))
    for _ in range(3):
        looks.see(EngineReport(running=40, waiting=3))
    assert looks.capacity(Resource.SEQUENCES) == 45


async def test_a_report_that_could_not_be_renewed_is_no_second_look(looks):
    looks.see(EngineReport(running=40, waiting=3))
    looks.see(None)
    looks.see(health=Health.SILENT)
    assert looks.capacity(Resource.SEQUENCES) == 128


async def test_the_operators_sequences_stand():
    looks = Looks(sequences=64)
    for _ in range(2):
        looks.see(EngineReport(running=40, waiting=3))
    assert looks.capacity(Resource.SEQUENCES) == 64


async def test_what_the_engine_named_is_forgotten_when_it_comes_back(looks):
    looks.see(EngineReport())
    looks.table.engine.image_limit.learn(4)
    looks.table.engine.encoder_tokens.learn(2048)
    looks.table.engine.refuses_stream_options = True
    looks.see(EngineReport())
    assert looks.capacity(Resource.ENCODER_TOKENS) == 2048
    looks.see(health=Health.REFUSING)
    looks.see(EngineReport())
    assert looks.table.engine.image_limit.value is None
    assert not looks.table.engine.refuses_stream_options
    assert looks.capacity(Resource.ENCODER_TOKENS) is None


async def test_what_was_learned_of_it_before_the_first_look_stays(looks):
    looks.table.engine.image_limit.learn(4)
    looks.see(EngineReport())
    assert looks.table.engine.image_limit.value == 4


POOL = EngineReport(running=0, waiting=0, kv_usage=0.0, preemptions=0, num_gpu_blocks=1001, engines=1, started_at=100)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records if record.name == "gateway.pipeline.follow"]


async def test_preemptions_lower_what_is_let_in_and_quiet_looks_raise_it(looks, said):
    looks.see(POOL)
    looks.see(replace(POOL, preemptions=4))
    assert (looks.capacity(Resource.KV_BLOCKS), looks.follower.ceiling_ratio) == (855, 0.9)
    assert looks.capacity(Resource.SEQUENCES) == 128
    for _ in range(10):
        looks.see(replace(POOL, preemptions=4))
    assert (looks.capacity(Resource.KV_BLOCKS), looks.follower.ceiling_ratio) == (950, 1.0)
    assert said() == [
        "admission is at 90 % of its budget: the engine preempts, or lets requests wait for KV blocks",
        "admission is back at its whole budget",
    ]


async def test_where_the_pool_is_not_known_preemptions_lower_the_sequences(looks):
    looks.see(replace(POOL, num_gpu_blocks=None))
    looks.see(replace(POOL, num_gpu_blocks=None, preemptions=4))
    assert (looks.capacity(Resource.KV_BLOCKS), looks.capacity(Resource.SEQUENCES)) == (None, 115)
    assert looks.follower.ceiling_ratio == 115 / 128


async def test_requests_that_stand_waiting_for_blocks_while_the_gateway_is_at_its_ceiling(looks):
    looks.see(POOL)
    looks.gate.grow(Amounts(900, 9))
    for _ in range(2):
        looks.see(replace(POOL, running=7, waiting=2, kv_usage=0.97))
    assert looks.follower.ceiling_ratio == 0.9


async def test_what_others_have_at_the_engine_is_taken_off(looks, said):
    looks.gate.grow(Amounts(100, 8))
    for _ in range(3):
        looks.see(replace(POOL, running=28, kv_usage=0.5))
    assert looks.capacity(Resource.SEQUENCES) == 128 - 19
    assert looks.capacity(Resource.KV_BLOCKS) == 950 - 388
    assert said() == ["admission is at 59 % of its budget: others use the engine too"]


async def test_a_new_start_lets_in_a_quarter_and_forgets_what_the_old_one_knew(looks, said):
    looks.see(POOL)
    looks.table.engine.image_limit.learn(4)
    ratios = []
    for _ in range(3):
        looks.see(replace(POOL, started_at=200))
        ratios.append(looks.follower.ceiling_ratio)
    assert (ratios, looks.table.engine.image_limit.value) == ([237 / 950, 0.5, 1.0], None)
    assert said() == [
        "admission is at 25 % of its budget: the upstream was started anew",
        "admission is back at its whole budget",
    ]


async def test_numbers_that_are_not_renewed_count_for_nothing_after_three_looks(looks, said):
    looks.see(POOL)
    looks.see(replace(POOL, preemptions=4))
    looks.see(None)
    looks.see(None)
    assert looks.follower.ceiling_ratio == 0.9
    looks.see(None)
    assert looks.follower.ceiling_ratio == 1.0
    looks.see(replace(POOL, preemptions=9))
    assert looks.follower.ceiling_ratio == 1.0
    assert said()[1:] == [
        "admission is at 100 % of its budget: the upstream's metrics cannot be read any more",
        "admission is back at its whole budget",
    ]


async def test_of_a_server_that_is_away_nothing_is_told(looks, said):
    looks.see(POOL)
    looks.see(replace(POOL, preemptions=4))
    for _ in range(4):
        looks.see(health=Health.REFUSING)
    assert len(said()) == 1  # of the preemptions


async def test_a_page_without_the_engines_numbers_is_a_look_in_vain(looks):
    looks.see(POOL)
    looks.see(replace(POOL, preemptions=4))
    for _ in range(3):
        looks.see(EngineReport(num_gpu_blocks=1001))
    assert (looks.follower.live.is_stale, looks.follower.ceiling_ratio) == (True, 1.0)


class TestPushedBack:
    async def test_nothing_is_sent_for_a_second_or_as_long_as_the_engine_asks(self, looks, said):
        looks.see(POOL)
        looks.follower.pushed_back(None, 1)
        assert looks.follower.pause_seconds == 1.0
        looks.follower.pushed_back(7.0, 1)
        assert looks.follower.pause_seconds == 7.0
        looks.now += 8.0
        assert looks.follower.pause_seconds == 0.0
        assert said() == ["the upstream turns requests away: nothing is sent for 1.0 s"]

    async def test_what_the_engine_kept_is_the_ceiling_of_sequences(self, looks):
        looks.see(replace(POOL, rejections=0))
        looks.gate.grow(Amounts(0, 13))
        looks.follower.pushed_back(None, 1)
        assert looks.capacity(Resource.SEQUENCES) == 12
        looks.see(replace(POOL, running=12, rejections=1))
        assert looks.capacity(Resource.SEQUENCES) == 12

    async def test_it_is_not_below_what_the_engine_was_seen_to_run(self, looks):
        looks.gate.grow(Amounts(0, 40))
        looks.see(replace(POOL, running=40))
        looks.follower.pushed_back(None, 30)
        assert looks.capacity(Resource.SEQUENCES) == 40

    @pytest.mark.parametrize(("settings", "retry_after"), [({}, 2.0), ({"sequences": 100}, None)])
    async def test_a_time_to_come_back_and_the_operators_number_leave_it_alone(self, settings, retry_after):
        looks = Looks(**settings)
        looks.see(POOL)
        before = looks.capacity(Resource.SEQUENCES)
        looks.follower.pushed_back(retry_after, 1)
        assert looks.capacity(Resource.SEQUENCES) == before


async def test_what_is_sent_in_shadow_without_a_place_takes_nothing_from_the_budget(looks):
    looks.gate.unadmitted = Amounts(kv_blocks=300, sequences=100)
    for _ in range(4):
        looks.see(EngineReport(running=100, waiting=0))
    assert (looks.follower.live.foreign_requests, looks.capacity(Resource.SEQUENCES)) == (0, 128)
    looks.gate.unadmitted = Amounts()
    for _ in range(4):
        looks.see(EngineReport(running=100, waiting=0))
    assert looks.follower.live.foreign_requests == 100


class TestManyGateways:
    @pytest.fixture
    def others(self, looks, monkeypatch):
        """Four of their requests with 40 blocks are at the engine, and three wait."""
        standing = SharedStanding(Amounts(40, 4), 3, gateways=2, failures=0, is_cut_off=False)
        monkeypatch.setattr(Gate, "standing", standing)

    def test_what_other_gateways_hold_is_no_load_of_strangers(self, looks, others):
        report = EngineReport(num_gpu_blocks=101, block_size=16, running=4, waiting=0, kv_usage=0.4)
        for _ in range(4):
            looks.see(report)
        assert (looks.follower.live.foreign_requests, looks.follower.live.foreign_blocks) == (0, 0)

    def test_their_waiting_requests_are_a_reason_to_let_more_run(self, looks, others):
        for _ in range(2):
            looks.see(EngineReport(running=128, waiting=0))
        assert looks.follower.ceiling.sequences == 160

    def test_what_a_refusal_left_running_is_also_theirs(self, looks, others):
        looks.gate._ledger.grow(Amounts(sequences=6))
        looks.follower.pushed_back(None, 1)
        assert looks.follower.ceiling.sequences == 9

    def test_the_room_for_growth_is_nobodys_alone(self, looks, others):
        looks.see(EngineReport(num_gpu_blocks=101, block_size=16, running=0, waiting=0, engines=1))
        assert looks.gate._fit.growth_room_blocks is None
