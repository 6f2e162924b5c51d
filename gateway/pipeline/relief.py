"""The ladder of this process: the pressure on each engine, and what is remembered of what was done because of it.

One writer: the event loop. What a rung does to a request is in ladder.py.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.domain.pressure import Ladder, Pressure, PressurePolicy, Rung
from gateway.domain.remembered import ConversationKey, ImageKey, Remembered, Treatment
from gateway.domain.resize import Preset
from gateway.imaging.workers import ImageWorkers
from gateway.ledger.gate import Gate
from gateway.wire.max_tokens import AnswerCap

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relieved:
    """What the ladder finds and does for one request.

    `images` and `conversation` (whether the stricter rule holds) are how it is sent: remembered once it was let in.
    `presets` are those of its images, by ordinal. `cap` lowers the bound on its answers, which was `asked_tokens`;
    `refused_by` is the rung that turned it away.
    """

    relief: "Relief"
    pressure: Pressure
    in_force: frozenset[Rung]
    images: dict[ImageKey, Treatment] = field(default_factory=dict)
    presets: dict[int, Preset] = field(default_factory=dict)
    conversation: tuple[ConversationKey, bool] | None = None
    cap: AnswerCap | None = None
    asked_tokens: int | None = None
    refused_by: Rung | None = None

    @property
    def is_strict(self) -> bool:
        """The stricter rule for the history holds."""
        return self.conversation is not None and self.conversation[1]

    def remember(self) -> None:
        """The request was let in: how it is sent holds for all later turns."""
        now = self.relief.clock()
        for key, treatment in self.images.items():
            self.relief.treatments.keep(key, treatment, now)
        if self.conversation is not None:
            self.relief.conversations.keep(*self.conversation, now)


class Relief:
    """`gates` are those of the engines, by name. `workers` hash what is remembered, where there are bodies;
    `encoder_id` names what encodes an image anew. Unless `is_told`, the log says nothing of rungs that come and go.
    """

    def __init__(
        self,
        policy: PressurePolicy,
        gates: Mapping[str, Gate],
        workers: ImageWorkers | None,
        encoder_id: str,
        clock: Callable[[], float],
        *,
        is_told: bool = True,
    ) -> None:
        self.policy = policy
        self.workers = workers
        self.encoder_id = encoder_id
        self.clock = clock
        self.treatments = Remembered[ImageKey, Treatment]()
        self.conversations = Remembered[ConversationKey, bool]()
        self._gates = gates
        self._is_told = is_told
        # Requests without images, and those with them.
        self._ladders = {name: (Ladder(policy.bands), Ladder(policy.bands)) for name in gates}

    def look(self, engine: str, *, on_images: bool) -> Relieved:
        """At the engine of that name, as a request meets it that comes now."""
        pressure, ladder = self._gates[engine].pressure(on_images=on_images), self._ladders[engine][on_images]
        before = ladder.in_force
        in_force = ladder.observe(pressure.ratio, self.clock(), pressure.unmet)
        if self._is_told and in_force is not before:
            _tell(engine, "image" if on_images else "text", pressure, in_force)
        return Relieved(self, pressure, in_force)


def _tell(engine: str, lane: str, pressure: Pressure, in_force: frozenset[Rung]) -> None:
    rungs = ", ".join(rung for rung in Rung if rung in in_force) or "nothing"
    what = f"{pressure.ratio:.2f} ({pressure.resource.label}), {pressure.unmet:.2f} more were refused"
    _log.warning("pressure on %s is %s: in force for %s requests: %s", engine, what, lane, rungs)
