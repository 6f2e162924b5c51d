"""What each look at the upstream changes."""

import asyncio

import pytest

from gateway.domain.learning import LearnedLimit
from gateway.domain.quantities import Resource
from gateway.domain.queue import QueuePolicy
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
            LocalLedger((None, 128, None, None)),
            QueuePolicy(),
            clock=loop.time,
            call_later=loop.call_later,
            jitter=lambda: 0.0,
        )
        self.table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
        self.follower = EngineFollower(self.table, self.gate, Metrics(), **settings)
        self.state, self.now = UpstreamState(), 0.0

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
    looks.see(EngineReport(num_gpu_blocks=1001, block_size=32, engines=1, enable_prefix_caching=False))
    engine = looks.table.engine
    assert (engine.kv_blocks, engine.kv_block_tokens, engine.prefix_caching) == (1000, 32, False)
    assert looks.capacity(Resource.KV_BLOCKS) == 950


async def test_the_operators_blocks_are_never_raised():
    looks = Looks(kv_blocks=500)
    looks.see(EngineReport(num_gpu_blocks=1001, engines=1))
    assert looks.table.engine.kv_blocks == 500
    looks.see(EngineReport(num_gpu_blocks=401, engines=1))
    assert looks.table.engine.kv_blocks == 400


async def test_a_queue_that_stands_at_the_engine_lowers_the_ceiling(looks):
    for _ in range(2):
        looks.see(EngineReport(running=40, waiting=3))
    assert looks.capacity(Resource.SEQUENCES) == 40


async def test_a_report_that_could_not_be_renewed_is_no_second_look(looks):
    looks.see(EngineReport(running=40, waiting=3))
    looks.see(None)
    looks.see(health=Health.SILENT)
    assert looks.capacity(Resource.SEQUENCES) == 128


async def test_the_operators_sequences_stand():
    looks = Looks(sequences=64)
    for _ in range(2):
        looks.see(EngineReport(running=40, waiting=3))
    assert looks.capacity(Resource.SEQUENCES) == 128  # what the gate was given; the follower leaves it alone


async def test_what_the_engine_named_is_forgotten_when_it_comes_back(looks):
    looks.see(EngineReport())
    looks.table.engine.image_limit.learn(4)
    looks.table.engine.encoder_tokens.learn(2048)
    looks.see(EngineReport())
    assert looks.capacity(Resource.ENCODER_TOKENS) == 2048
    looks.see(health=Health.REFUSING)
    looks.see(EngineReport())
    assert looks.table.engine.image_limit.value is None
    assert looks.capacity(Resource.ENCODER_TOKENS) is None
