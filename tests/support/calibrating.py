"""A calibrator, and the looks at a server by which it is driven."""

import asyncio
from dataclasses import replace

from gateway.domain.learning import LearnedLimit
from gateway.domain.quantities import Capacity
from gateway.domain.queue import QueuePolicy
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.models.identity import FoundFiles
from gateway.models.processor_config import parse_model
from gateway.models.served import Engine, FamilySource, ModelTable, Wanted
from gateway.pipeline.calibration import Calibrator
from gateway.pipeline.follow import list_models
from gateway.upstream.counting import Way
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport
from tests.support.counting_server import Counting

QWEN3 = "Qwen/Qwen3-VL-8B-Instruct"
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
