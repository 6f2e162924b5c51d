"""The budget that a plan wrote, beside what the running server says of its own pool."""

from dataclasses import dataclass

from gateway.domain.learning import LearnedLimit
from gateway.models.served import Engine
from gateway.pipeline.follow import describe_engine
from gateway.wire.vllm_metrics import EngineReport


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """In KV blocks: `budget.kv_blocks` as it is set, and what the server has."""

    planned: int
    running: int

    @property
    def sentence(self) -> str:
        share = abs(self.planned - self.running) / self.running
        if self.planned > self.running:
            return (
                f"The budget of {self.planned:,} KV blocks is {share:.1%} more than the server has ({self.running:,}); "
                "the server's own number is used."
            )
        unused = self.running - self.planned
        return f"Of the server's {self.running:,} KV blocks the budget leaves {unused:,} unused ({share:.1%})."


def planned_pool(planned: int | None, report: EngineReport | None) -> PlannedPool | None:
    """None where one of the two is not known."""
    if planned is None or report is None:
        return None
    engine = Engine(LearnedLimit(None), LearnedLimit(None))
    describe_engine(engine, report, None)
    return None if engine.kv_blocks is None else PlannedPool(planned, engine.kv_blocks)
