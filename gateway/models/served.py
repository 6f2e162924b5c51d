"""Every model that clients may name: its arithmetic, what is known of its engine, and what its traffic has taught.

One table per upstream. Names come from the settings and from the upstream's own list; whatever else a client writes
is priced by a guess, which never refuses it, and left for vLLM to refuse.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.cost import EngineLimits
from gateway.domain.lately import LatelyServed
from gateway.domain.learning import ImageTokenCap, LearnedLimit, TextRatio
from gateway.domain.output import AnswerSpeed, EventTokens, OutputReservation
from gateway.domain.vision.base import VisionFamily
from gateway.domain.vision.checkpoints import checkpoint_of_model_name
from gateway.domain.vision.registry import family_for, resolve
from gateway.domain.vision.sources import Number
from gateway.models.exact_text import ExactText

ASSUMED_FAMILY = "qwen2_5_vl"
OTHER = "other"
_MOST_ASSUMED_IMAGE_TOKENS = 1536
"""Of a model of unknown family, until one was seen: more would keep others out, or the image itself, for a guess."""


class FamilySource(StrEnum):
    """How a model's family was found, the surest first."""

    SETTING = "setting"
    FOLDER = "folder"
    NAME = "name"
    CALIBRATION = "calibration"
    ASSUMED = "assumed"


class Pricing(NamedTuple):
    """What prices a model's images, what said so, and the numbers that this depends on."""

    family: VisionFamily
    source: FamilySource
    numbers: tuple[Number, ...]


@dataclass(slots=True)
class ServedModel:
    """One served name, and what said which family it is of. `numbers` are what its images' prices depend on, each with
    its source.

    `calibration` is what came of asking the server itself.

    `max_model_len` is the context in tokens as the upstream lists it, None until it does. As far as a model folder
    tells, `kv_groups` counts the groups of layers that need KV blocks of their own, `kv_bytes_per_token` all layers of
    one rank, and `embedding_bytes` one embedding of the vision encoder.
    """

    name: str
    family: VisionFamily
    family_source: FamilySource = FamilySource.SETTING
    numbers: tuple[Number, ...] = field(default=(), repr=False, kw_only=True)
    exact_text: ExactText | None = None
    max_model_len: int | None = None
    kv_groups: int | None = None
    kv_bytes_per_token: int | None = None
    embedding_bytes: int | None = None
    ratio: TextRatio = field(default_factory=TextRatio)
    output: OutputReservation = field(default_factory=OutputReservation)
    speed: AnswerSpeed = field(default_factory=AnswerSpeed)
    event_tokens: EventTokens = field(default_factory=EventTokens)
    image_cap: ImageTokenCap = field(default_factory=ImageTokenCap)
    calibration: Calibration = field(default=Calibration(CalibrationState.WAITING), repr=False, kw_only=True)
    _uncalibrated: Pricing | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.is_assumed and self.image_cap.most is None:
            self.image_cap.most = _MOST_ASSUMED_IMAGE_TOKENS

    @property
    def is_assumed(self) -> bool:
        """The family is a guess, so its prices may queue a request but never refuse it."""
        return self.family_source is FamilySource.ASSUMED

    @property
    def uncalibrated(self) -> Pricing:
        """How it is priced by all that is known without asking the server."""
        return self._uncalibrated or Pricing(self.family, self.family_source, self.numbers)

    def calibrated(self, result: Calibration) -> None:
        """From now on it is priced by what the server itself showed, or by what was known before if that stands.

        A family that was named stays named: where it is wrong, its prices become bounds.
        """
        self._uncalibrated = before = self.uncalibrated
        self.calibration, last = result, self.calibration
        self.family, self.family_source, self.numbers = before
        if before.source is FamilySource.ASSUMED:
            # The guess stands in only for bounds that nobody has.
            self.image_cap = ImageTokenCap(_MOST_ASSUMED_IMAGE_TOKENS if result.family is None else None)
        elif result.most_tokens is not None or last.most_tokens is not None:
            self.image_cap = ImageTokenCap(result.most_tokens)
        if result.family is not None:
            self.family = result.family
        if result.state is CalibrationState.FOUND:
            self.family_source, self.numbers = FamilySource.CALIBRATION, result.numbers

    def at_one_upstream(self) -> "ServedModel":
        """The same model, of which several servers may hold a copy each: what its texts and answers are like is learned
        from all of them, how fast it is and how much it streams at a time from each by itself.
        """
        return replace(self, max_model_len=None, speed=AnswerSpeed(), event_tokens=EventTokens())


@dataclass(slots=True)
class Engine:
    """What is known of the engine behind all names of one upstream. `is_loading` until it was up for the first time,
    `is_up` if its HTTP server answered when it was last looked at.

    `sequences` is the operator's setting; a number that was learned is no reason to refuse.
    """

    image_limit: LearnedLimit
    encoder_tokens: LearnedLimit
    images: LatelyServed = field(default_factory=LatelyServed)
    kv_blocks: int | None = None
    kv_blocks_of_one: int | None = None
    kv_block_tokens: int = 16
    sequences: int | None = None
    refuses_stream_options: bool = False
    prefix_caching: bool = True
    is_loading: bool = True
    is_up: bool = False


class ModelTable:
    """The served names of one upstream. A request without a name is for the first of them, as in vLLM."""

    def __init__(self, configured: Iterable[ServedModel], engine: Engine) -> None:
        self.engine = engine
        self._configured = {model.name: model for model in configured}
        self._models = dict(self._configured)
        self._listed: Collection[str] | None = None
        self._unknown = ServedModel(OTHER, family_for(ASSUMED_FAMILY, None), FamilySource.ASSUMED)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    @property
    def most_tokens_per_event(self) -> float:
        """Of the model that streams the most of them at once."""
        return max((model.event_tokens.per_event for model in self._models.values()), default=1.0)

    def served(self, name: str | None) -> ServedModel:
        """The model of that name, or the assumed one for all names that are not known."""
        if not name:
            return next(iter(self._models.values()), self._unknown)
        return self._models.get(name, self._unknown)

    def listed(self, context_tokens: Mapping[str, int | None]) -> None:
        """The upstream's present list of names with their `max_model_len`; of others only configured ones are kept.

        A name that is new is priced by what it says of its family; one that says nothing is assumed.
        """
        known = self._models
        self._models = self._configured | {name: known.get(name) or _from_name(name) for name in context_tokens}
        self._listed = context_tokens.keys()
        for name, tokens in context_tokens.items():
            self._models[name].max_model_len = tokens

    def lists(self, name: str | None) -> bool | None:
        """Whether the upstream says that it serves that name, as all serve a request without one; None: it has not said
        what it serves.
        """
        return None if self._listed is None else not name or name in self._listed

    def limits(self, model: ServedModel) -> EngineLimits:
        """What the engine can hold for `model`, as far as it is known."""
        engine = self.engine
        return EngineLimits(
            max_model_len=model.max_model_len,
            kv_blocks=engine.kv_blocks,
            kv_blocks_of_one=engine.kv_blocks_of_one,
            kv_groups=model.kv_groups,
            kv_block_tokens=engine.kv_block_tokens,
            sequences=engine.sequences,
            encoder_budget_tokens=engine.encoder_tokens.value,
            prefix_caching=engine.prefix_caching,
        )


def _from_name(name: str) -> ServedModel:
    checkpoint = checkpoint_of_model_name(name)
    source = FamilySource.ASSUMED if checkpoint is None else FamilySource.NAME
    found = resolve(checkpoint.family if checkpoint else ASSUMED_FAMILY, checkpoint=checkpoint)
    return ServedModel(name, found.family, source, numbers=found.numbers)
