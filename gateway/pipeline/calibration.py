"""Calibration: a server counts a few small pictures itself, and its counts are held against the prices of its models.

Only a server that has nothing else to do is asked, one question at a time; each holds a place in the gate's books as
any request does. Whatever goes wrong is a finding in the log, a metric and `check`, and nobody waits for it. What is
asked, and what the answers mean, is domain/calibration.py's.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gateway.domain.calibration import (
    MOST_COMPLETION_TOKENS,
    Answer,
    Calibration,
    CalibrationState,
    expands_images,
    judge,
    next_picture,
    predicted,
)
from gateway.domain.cost import kv_blocks_needed
from gateway.domain.decision import Verdict
from gateway.domain.geometry import Size
from gateway.domain.outcome import Ending
from gateway.domain.pace import REQUEST_TOKENS
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import Ticket
from gateway.domain.vision.base import VisionFamily
from gateway.imaging.plain import COLOUR_BYTES, plain_picture
from gateway.ledger.gate import Gate
from gateway.ledger.lease import Lease
from gateway.models.served import FamilySource, ModelTable, ServedModel
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.upstream.counting import Counter, CountError, CountRefusedError, Way
from gateway.upstream.state import UpstreamState

_log = logging.getLogger(__name__)

_MOST_MODELS = 8  # of one server: its aliases share its processor
_LONGEST_NAME = 200
_MOST_ATTEMPTS = 3
_TEXT_TOKENS = 64  # of the question and the template around it, for the books
_NOTHING = Amounts()
_NO_TROUBLE = frozenset({CalibrationState.AGREES, CalibrationState.FOUND, CalibrationState.UNANSWERED})

Ask = Callable[[Way, Size | None], Awaitable[int]]
"""Tokens of the prompt with a picture of that size, or without one. Raises CountError, and whatever ends the asking."""

_Answered = dict[tuple[Way, Size | None], int | CountError]
"""What a server made of each question that it was asked."""


class BusyError(Exception):
    """The server or the gateway has work to do: it is to be asked another time."""


async def measure(ask: Ask, family: VisionFamily | None, ways: Sequence[Way]) -> Calibration:
    """What the server shows of a model that is priced by `family` (None: unknown), by the first of the ways that works.

    There is at least one. Raises what `ask` does, but for CountError.
    """
    troubles = []
    for way in ways:
        try:
            answers = await _answers(ask, family, way)
        except CountError as error:
            troubles.append(str(error))
            continue
        if expands_images(answers):
            return await in_thread(ONE_THREAD, judge, family, answers, way.value)
        troubles.append(f"its {way} counts a picture as it stands in the template, not as the engine sees it")
    return Calibration(CalibrationState.UNANSWERED, trouble="; ".join(troubles))


async def _answers(ask: Ask, family: VisionFamily | None, way: Way) -> tuple[Answer, ...]:
    """Raises CountError, also where no picture is taken at all."""
    text_tokens = await ask(way, None)
    left = None if way is Way.TOKENIZE else MOST_COMPLETION_TOKENS - text_tokens
    answers: list[Answer] = []
    while (size := await in_thread(ONE_THREAD, next_picture, family, tuple(answers), left)) is not None:
        try:
            tokens = await ask(way, size)
        except CountRefusedError:
            if not answers:
                raise
            answers.append(Answer(size, None))
            continue
        answers.append(Answer(size, tokens - text_tokens))
        left = None if left is None else left - tokens
    return tuple(answers)


async def _ask_once(answered: _Answered, ask: Ask, way: Way, size: Size | None) -> int:
    """As `ask`, but what was `answered` is not asked again."""
    if (way, size) not in answered:
        try:
            answered[way, size] = await ask(way, size)
        except CountError as error:
            answered[way, size] = error
    told = answered[way, size]
    if isinstance(told, CountError):
        raise told
    return told


async def new_picture(size: Size) -> bytes:
    """One that no server has seen. vLLM 0.32 takes an image that it only counted for one that its engine has, and fails
    the first chat with it.
    """
    return await in_thread(ONE_THREAD, plain_picture, size, secrets.token_bytes(COLOUR_BYTES))


def is_idle(state: UpstreamState) -> bool:
    """By its own metrics; one that tells none is not known to be."""
    report = state.report
    return state.is_up and state.misses == 0 and report is not None and report.running == 0 and not report.waiting


def asked_models(state: UpstreamState) -> tuple[str, ...]:
    """The names that a server is asked about: adapters, of which there may be thousands, are as their parents."""
    adapters = parents(state)
    listed = dict.fromkeys(model.id for model in state.models if len(model.id) <= _LONGEST_NAME)
    return tuple(name for name in listed if name not in adapters)[:_MOST_MODELS]


def parents(state: UpstreamState) -> dict[str, str]:
    """By adapter, the model that it changes, where the server lists that too."""
    listed = {model.id for model in state.models}
    return {
        model.id: model.parent
        for model in state.models
        if model.parent is not None and model.parent != model.id and model.parent in listed
    }


def known_family(model: ServedModel) -> VisionFamily | None:
    """What its pictures are to be held against: what is known of it without asking. None: nobody knows its family."""
    known = model.uncalibrated
    return None if known.family_source is FamilySource.ASSUMED else known.family


@dataclass(slots=True)
class Calibrator:
    """An observer of the poller of one upstream. Each model is asked about once, and once more when the server was
    started anew, or when something else is known of it; without `ways` never. `pause` ends what is under way.

    What was answered before a request came is not asked again, so that a server which is never idle for long is done
    some day, for no more than one calibration costs.
    """

    models: ModelTable
    gate: Gate
    counter: Counter
    ways: tuple[Way, ...] = ()
    log_prefix: str = ""
    _listed: dict[str, ServedModel] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _attempts: dict[str, int] = field(default_factory=dict)
    _answered: dict[str, _Answered] = field(default_factory=dict)
    _parents: dict[str, str] = field(default_factory=dict)
    _is_paused: bool = False
    _starts: int = 0
    _was_up: bool = False
    _reported_at_seconds: float | None = None
    _task: asyncio.Task[None] | None = None

    @property
    def results(self) -> Mapping[str, Calibration]:
        """By model, of those that are asked about."""
        return {name: self.models.served(name).calibration for name in self._listed}

    def __call__(self, state: UpstreamState) -> None:
        if not self.ways:
            return
        if state.starts != self._starts or (state.is_up and not self._was_up):
            self._end()
            self._listed.clear()
        self._starts, self._was_up = state.starts, state.is_up
        self._look(asked_models(state))
        self._parents = parents(state)
        self._hand_on()
        is_news = state.reported_at_seconds != self._reported_at_seconds
        self._reported_at_seconds = state.reported_at_seconds
        if is_news and is_idle(state):
            self._begin()

    def _look(self, names: Sequence[str]) -> None:
        """What was asked of a model that is known otherwise by now was held against another family."""
        last, self._listed = self._listed, {name: self.models.served(name) for name in names}
        kept = {name for name, model in self._listed.items() if last.get(name) is model}
        self._done &= kept
        self._attempts = {name: attempts for name, attempts in self._attempts.items() if name in kept}
        self._answered = {name: answered for name, answered in self._answered.items() if name in kept}

    def _hand_on(self) -> None:
        """Adapters have their parents' processor: what came of asking these holds for such as are priced alike."""
        for name, parent in self._parents.items():
            adapter, asked = self.models.served(name), self.models.served(parent)
            if adapter.calibration is not asked.calibration and adapter.uncalibrated == asked.uncalibrated:
                adapter.calibrated(asked.calibration)

    def pause(self) -> None:
        """Nothing is asked from now on. Safe in a signal handler, which comes between any two steps of the loop."""
        self._is_paused = True
        if self._task is not None and not self._task.done():
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def resume(self) -> None:
        self._is_paused = False

    async def close(self) -> None:
        self.pause()
        self._end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        is_under_way = self._task is not None and not self._task.done()
        if self._is_paused or is_under_way:
            return
        name = next((name for name in self._listed if name not in self._done), None)
        if name is not None:
            self._task = asyncio.create_task(self._calibrate(name), name="calibration")

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _calibrate(self, name: str) -> None:
        model = self.models.served(name)
        answered = self._answered.setdefault(name, {})
        ask = partial(_ask_once, answered, partial(self._ask, model))
        try:
            result = await measure(ask, known_family(model), self.ways)
        except BusyError:
            return
        except Exception:  # noqa: BLE001  nothing that a server says may end more than its calibration
            _log.exception("%scalibrating the model %r failed", self.log_prefix, name)
            result = None
        finally:
            await self.counter.close()
        if model is not self.models.served(name):
            return
        if result is None:
            self._done.add(name)
            return
        self._attempts[name] = attempts = self._attempts.get(name, 0) + 1
        model.calibrated(result)
        self._hand_on()
        if result.state is CalibrationState.UNANSWERED and attempts < _MOST_ATTEMPTS:
            self._answered[name] = {question: told for question, told in answered.items() if isinstance(told, int)}
            return
        self._done.add(name)
        self._tell(model, result)

    def _tell(self, model: ServedModel, result: Calibration) -> None:
        text = result.sentence(model.uncalibrated.family.name)
        if result.state is CalibrationState.DISAGREES:
            text += ". Its prices are bounds until one of the two is put right: see models[].family and processor"
        log = _log.info if result.state in _NO_TROUBLE else _log.warning
        log("%sthe model %r: %s", self.log_prefix, model.name, text)

    async def _ask(self, model: ServedModel, way: Way, size: Size | None) -> int:
        lease = await self._place(self._ticket(model, way, size))
        try:
            picture = None if size is None else await new_picture(size)
            lease.sent(is_streamed=False)
            return await self.counter.count(way, model.name, picture)
        finally:
            lease.close(Ending.IGNORED)

    async def _place(self, ticket: Ticket) -> Lease:
        """At once or not at all. Raises BusyError."""
        gate = self.gate
        has_work = gate.has_waiters or gate.statistics().leases > 0 or gate.unadmitted != _NOTHING
        if has_work or gate.would_decide(ticket).decision is not Verdict.ADMITTED:
            raise BusyError
        return await gate.admit(ticket)

    def _ticket(self, model: ServedModel, way: Way, size: Size | None) -> Ticket:
        pixels = 0 if size is None else size.pixels
        now, amounts, tokens = self.gate.now, Amounts(preprocess_pixels=pixels), 1
        if way is Way.COMPLETIONS:
            cost = None if size is None else predicted(model.family, size)
            image_tokens = 0 if cost is None else cost.most
            tokens = _TEXT_TOKENS + image_tokens
            blocks = kv_blocks_needed(tokens, 1, self.models.limits(model))
            amounts = Amounts(blocks, 1, image_tokens, pixels).with_prefill(tokens + REQUEST_TOKENS)
        return Ticket(amounts=amounts, arrived=now, deadline=now, cost_tokens=tokens, priority=Priority.BATCH)
