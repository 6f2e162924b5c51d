"""The emulator's pure engine before the pure ceiling, in simulated seconds: an overload of answers that outgrow what
is reserved for them.
"""

import random
from array import array
from dataclasses import dataclass

from gateway.domain.ceiling import Ceiling, Look
from gateway.domain.growth import OutputGrowth
from gateway.domain.holdings import Holdings
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.engine import Engine, Sequence
from gateway.emulator.prompt import Prompt

BLOCK_TOKENS = 16
PROMPT_TOKENS = 320
RESERVED_TOKENS = 64
SEQUENCES = 128


@dataclass(frozen=True)
class Second:
    """What one simulated second brought."""

    ratio: float
    foreign_requests: int
    preemptions: int
    finished: int


class Simulation:
    """Somebody always waits. `others` send so many requests at a time past the gateway; their answers count too."""

    def __init__(self, *, follows: bool, blocks: int, longest_answer: int, others: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.config = EmulatorConfig(num_gpu_blocks=blocks + 1, block_size=BLOCK_TOKENS, enable_prefix_caching=False)
        self.engine, self.ceiling, self.follows = Engine(self.config), Ceiling(), follows
        self.blocks, self.longest_answer, self.others = blocks, longest_answer, others
        self.capacity = self.static = blocks - blocks // 20
        self.holdings = Holdings(Capacity(self.static, SEQUENCES))
        self.held: dict[Sequence, Amounts] = {}
        self.strangers: set[Sequence] = set()
        self.now = 0.0

    def second(self) -> Second:
        finished, before, end = 0, self.engine.totals.preemptions, int(self.now) + 1
        while self.now < end:
            self.admit()
            finished += self.step()
        if self.follows:
            self.follow()
        preemptions = self.engine.totals.preemptions - before
        return Second(self.capacity / self.static, self.ceiling.foreign_requests, preemptions, finished)

    def admit(self) -> None:
        while self.holdings.try_reserve(_RESERVED) is None:
            self.held[self.send()] = _RESERVED
        while len(self.strangers) < self.others:
            self.strangers.add(self.send())

    def send(self) -> Sequence:
        prompt = Prompt(array("H", [self.chance.randrange(60_000)] * PROMPT_TOKENS))
        sequence = Sequence(prompt, self.chance.randint(1, self.longest_answer))
        self.engine.add(sequence, self.now)
        return sequence

    def step(self) -> int:
        """How many answers ended with it."""
        step = self.engine.schedule(self.now)
        self.now += step.seconds(self.config.step_cost)
        finished = 0
        for sequence, _, finish_reason in self.engine.finish(step, self.now):
            if finish_reason is not None:
                finished += 1
                self.strangers.discard(sequence)
                self.holdings.give_back(self.held.pop(sequence, Amounts()))
            elif sequence in self.held:
                self.grow(sequence)
        return finished

    def grow(self, sequence: Sequence) -> None:
        growth = OutputGrowth(RESERVED_TOKENS, BLOCK_TOKENS).blocks(sequence.generated)
        more = Amounts(_RESERVED.kv_blocks + growth - self.held[sequence].kv_blocks)
        self.holdings.grow(more)
        self.held[sequence] = Amounts(_RESERVED.kv_blocks + growth, 1)

    def follow(self) -> None:
        seen, held = self.engine.statistics(), self.holdings.statistics().held
        usage = seen.published.kv_cache_usage_ratio
        self.ceiling.look(
            Look(
                running=seen.published.running,
                waiting=seen.published.waiting,
                fill=held[Resource.KV_BLOCKS] / self.capacity,
                held_sequences=held[Resource.SEQUENCES],
                preemptions=seen.preemptions,
                kv_usage=usage,
                used_blocks=int(usage * self.blocks),
                held_blocks=held[Resource.KV_BLOCKS],
            )
        )
        self.capacity = self.ceiling.kv_blocks(self.static, self.static)
        sequences = self.ceiling.sequences(SEQUENCES, SEQUENCES, is_kv_known=True)
        self.holdings.set_capacity(Resource.KV_BLOCKS, self.capacity)
        self.holdings.set_capacity(Resource.SEQUENCES, sequences)


def simulate(
    seconds: int,
    *,
    follows: bool,
    blocks: int = 400,
    longest_answer: int = 400,
    others: int = 0,
    seed: int = 1,
) -> list[Second]:
    """What each second brought."""
    simulation = Simulation(follows=follows, blocks=blocks, longest_answer=longest_answer, others=others, seed=seed)
    return [simulation.second() for _ in range(seconds)]


_RESERVED = Amounts(-(-PROMPT_TOKENS // BLOCK_TOKENS) + -(-RESERVED_TOKENS // BLOCK_TOKENS) + 1, 1)
