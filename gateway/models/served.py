"""Every model that clients may name: its arithmetic, what is known of its engine, and what its traffic has taught.

One table per upstream. Names come from the settings and from the upstream's own list; whatever else a client writes
is priced by bounds, of which the upper never refuses it, and left for vLLM to refuse.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.cost import EngineLimits
from gateway.domain.kv_layout import KvCharge, KvLayout, charges_of
from gateway.domain.lately import LatelyServed
from gateway.domain.learning import ImageTokenCap, LearnedLimit, TextRatio
from gateway.domain.named_images import NamedImages
from gateway.domain.output import AnswerSpeed, EventTokens, OutputReservation
from gateway.domain.vision.base import VisionFamily
from gateway.domain.vision.sources import Number
from gateway.domain.vision.unknown import unknown_family
from gateway.domain.vision.video import VideoRule
from gateway.models.exact_text import ExactText
from gateway.models.identity import FamilySource, FoundFiles, Identity, Name, Said, identify_anyway, published
from gateway.models.repository import shown_name

__all__ = ["OTHER", "Engine", "FamilySource", "ModelTable", "Origin", "ServedModel", "Wanted"]

OTHER = "other"

_log = logging.getLogger(__name__)


class Origin(NamedTuple):
    """What an entry of the upstream's list says beside its name: `root`, the folder or repository that vLLM was given
    to load, and of an adapter the `parent` that it changes.
    """

    root: str | None = None
    parent: str | None = None


_NOTHING_SAID = Said()
_NOT_CALIBRATED = Calibration(CalibrationState.WAITING)
_NO_ORIGIN = Origin()


class Wanted(NamedTuple):
    """A model whose own files nobody has pointed to: by its served name, and by what the server was given to load."""

    name: str
    root: str | None


_Memo = dict[tuple[int, int, FamilySource, int], tuple[Identity, str | None]]
"""Thousands of adapters may be alike. Kept no longer than what its ids are of."""


class Pricing(NamedTuple):
    """What prices a model's images, what said so, and the numbers that this depends on; and what bounds its videos."""

    family: VisionFamily
    family_source: FamilySource
    numbers: tuple[Number, ...]
    video: VideoRule | None


@dataclass(slots=True)
class ServedModel:
    """One served name, and what said which family it is of. `numbers` are what its images' prices depend on, each with
    its source; `video` bounds what its videos cost, None where its family defines nothing; `said` is what the operator
    says of it.

    `calibration` is what came of asking the server itself. It goes before what is known without asking, which is kept
    as `uncalibrated`, and is over once that changes.

    `max_model_len` is the context in tokens as the upstream lists it, None until it does. As far as the model's files
    tell, `kv_layout` is of the groups of layers that need KV blocks of their own, `kv_bytes_per_token` counts all
    layers of one rank, and `embedding_bytes` one embedding of the vision encoder. `kv_groups` and `kv_charges` hold
    where there is no layout.
    """

    name: str
    family: VisionFamily
    family_source: FamilySource = FamilySource.SETTING
    numbers: tuple[Number, ...] = field(default=(), repr=False, kw_only=True)
    video: VideoRule | None = field(default=None, repr=False, kw_only=True)
    exact_text: ExactText | None = None
    max_model_len: int | None = None
    kv_layout: KvLayout | None = None
    kv_groups: int | None = None
    kv_charges: tuple[KvCharge, ...] = ()
    kv_bytes_per_token: int | None = None
    embedding_bytes: int | None = None
    ratio: TextRatio = field(default_factory=TextRatio)
    output: OutputReservation = field(default_factory=OutputReservation)
    speed: AnswerSpeed = field(default_factory=AnswerSpeed)
    event_tokens: EventTokens = field(default_factory=EventTokens)
    image_cap: ImageTokenCap = field(default_factory=ImageTokenCap)
    said: Said = field(default=_NOTHING_SAID, repr=False, kw_only=True)
    calibration: Calibration = field(default=_NOT_CALIBRATED, repr=False, kw_only=True)
    _uncalibrated: Pricing | None = field(default=None, repr=False, kw_only=True)

    @classmethod
    def of(cls, name: str, identity: Identity, said: Said, *, exact_text: ExactText | None = None) -> "ServedModel":
        return cls(name, exact_text=exact_text, said=said, **_parts_of(identity))

    @property
    def is_assumed(self) -> bool:
        """No family is known: its prices are bounds, which may queue a request but never refuse it."""
        return self.family_source is FamilySource.ASSUMED

    @property
    def uncalibrated(self) -> Pricing:
        """How it is priced by all that is known without asking the server."""
        return self._uncalibrated or Pricing(self.family, self.family_source, self.numbers, self.video)

    def calibrated(self, result: Calibration) -> None:
        """From now on it is priced by what the server itself showed, or by what was known before if that stands.

        A family that was named stays named: where it is wrong, its prices become bounds.
        """
        self._uncalibrated = before = self.uncalibrated
        self.calibration, last = result, self.calibration
        self.family, self.family_source, self.numbers, self.video = before
        is_capped = result.most_tokens is not None or last.most_tokens is not None
        if is_capped or before.family_source is FamilySource.ASSUMED:
            # What traffic taught of a family that was found says nothing of what the next server has.
            self.image_cap = ImageTokenCap(result.most_tokens, is_bound=True)
        if result.family is not None:
            self.family = result.family
            if result.state is not CalibrationState.AGREES:
                # What was seen to be wrong of images, or fits no more than a few of them, bounds no video.
                self.video = None
        if result.state is CalibrationState.FOUND:
            self.family_source, self.numbers = FamilySource.CALIBRATION, result.numbers

    def identified(self, identity: Identity) -> "ServedModel":
        """The same model, now that more is known of it; itself where that changes nothing. Requests on their way keep
        the one that they were priced by.

        Calibration is to be done anew: its result was held against another family.
        """
        new = _parts_of(identity)
        known = {name: getattr(self, name) for name in new} | self.uncalibrated._asdict()
        if new == known:
            return self
        return replace(self, image_cap=ImageTokenCap(), calibration=_NOT_CALIBRATED, _uncalibrated=None, **new)

    def at_one_upstream(self) -> "ServedModel":
        """The same model, of which several servers may hold a copy each: what its texts and answers are like is learned
        from all of them, how fast it is and how much it streams at a time from each by itself.
        """
        return replace(self, max_model_len=None, speed=AnswerSpeed(), event_tokens=EventTokens())


@dataclass(slots=True)
class Engine:
    """What is known of the engine behind all names of one upstream. `is_loading` until it was up for the first time,
    `is_up` if its HTTP server answered when it was last looked at.

    `sequences` is the operator's setting; a number that was learned is no reason to refuse. `longest_request_blocks` is
    what one request of the whole context needs, as the server says.
    """

    image_limit: LearnedLimit
    encoder_tokens: LearnedLimit
    images: LatelyServed = field(default_factory=LatelyServed)
    named_images: NamedImages = field(default_factory=NamedImages)
    kv_blocks: int | None = None
    kv_blocks_of_one: int | None = None
    kv_block_tokens: int = 16
    longest_request_blocks: int | None = None
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
        self._origins: Mapping[str, Origin] = {}
        self._found: dict[str, FoundFiles] = {}
        self._told: set[str] = set()
        self._limits: dict[str, tuple[tuple[object, ...], EngineLimits]] = {}
        self._unknown = ServedModel(OTHER, unknown_family(), FamilySource.ASSUMED)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    @property
    def most_tokens_per_event(self) -> float:
        """Of the model that streams the most of them at once."""
        return max((model.event_tokens.per_event for model in self._models.values()), default=1.0)

    def served(self, name: str | None) -> ServedModel:
        """The model of that name, or the one of unknown family for all names that are not known."""
        if not name:
            return next(iter(self._models.values()), self._unknown)
        return self._models.get(name, self._unknown)

    def listed(self, context_tokens: Mapping[str, int | None], origins: Mapping[str, Origin] | None = None) -> None:
        """The upstream's present list of names with their `max_model_len`, and what it says of where they come from; of
        others only configured ones are kept.

        A name that is new is priced by what it says of its family, or what it was loaded from says; where neither says
        anything, by bounds.
        """
        known, before = self._models, self._origins
        self._origins = origins or {}
        changed = {name for name, _ in before.items() ^ self._origins.items()}
        for name in changed & context_tokens.keys():
            self._found.pop(name, None)
        memo: _Memo = {}
        self._models = self._configured | {name: known.get(name) or self._new(name, memo) for name in context_tokens}
        for name in context_tokens if changed else ():
            if name in changed or self._origin(name).parent in changed:
                if name in known:
                    self._identify(name, memo)
                self._inherit(name)
        self._listed = context_tokens.keys()
        self._limits.clear()
        for name, tokens in context_tokens.items():
            # Of adapters vLLM does not tell it: they have their parents'.
            self._models[name].max_model_len = tokens or context_tokens.get(self._base(name))

    def wanted(self) -> tuple[Wanted, ...]:
        """Models whose own files would tell more, but for adapters, which are as their parents."""
        return tuple(
            Wanted(name, self._origin(name).root)
            for name, model in self._models.items()
            if model.said.folder is None and self._base(name) == name
        )

    def found(self, wanted: Wanted, files: FoundFiles) -> None:
        """The files of a model that was wanted, unless the server has another by now."""
        if wanted.name not in self._models or wanted.root != self._origin(wanted.name).root:
            return
        if self._found.get(wanted.name) is files:
            return
        self._found[wanted.name] = files
        memo: _Memo = {}
        for name in self._models:
            if self._base(name) == wanted.name:
                self._identify(name, memo)

    def _new(self, name: str, memo: _Memo) -> ServedModel:
        return ServedModel.of(name, self._identity(name, memo), self._said(name))

    def _identify(self, name: str, memo: _Memo) -> None:
        self._models[name] = self._models[name].identified(self._identity(name, memo))
        if name in self._configured:
            self._configured[name] = self._models[name]

    def _identity(self, name: str, memo: _Memo) -> Identity:
        said, found, told = self._said(name), self._found.get(self._base(name)), published(self._names(name))
        key = id(said), id(told.checkpoint), told.source, id(found)
        if key not in memo:
            memo[key] = identify_anyway(said, told, found)
        identity, trouble = memo[key]
        self._tell(name, trouble)
        return identity

    def _tell(self, name: str, trouble: str | None) -> None:
        sentence = f"model {name!r}: {trouble}"
        if trouble is not None and sentence not in self._told:
            self._told.add(sentence)
            _log.warning("%s; its images are priced without that", sentence)

    def _inherit(self, name: str) -> None:
        """An adapter has its parent's tokenizer, template and size: what either shows of these holds for both. How long
        its answers become is its own, once there are enough of them.
        """
        model, parent = self._models[name], self._models.get(self._base(name))
        if parent is None or parent is model:
            return
        model.ratio, model.speed, model.event_tokens = parent.ratio, parent.speed, parent.event_tokens
        model.output = OutputReservation(prior=parent.output)
        if model.said.folder is None or model.said.folder is parent.said.folder:
            model.exact_text = parent.exact_text
        if model.uncalibrated == parent.uncalibrated:
            model.image_cap = parent.image_cap

    def _origin(self, name: str) -> Origin:
        return self._origins.get(name, _NO_ORIGIN)

    def _base(self, name: str) -> str:
        """Of an adapter the model that it changes, where that is listed or configured too."""
        parent = self._origin(name).parent
        return parent if parent and (parent in self._origins or parent in self._configured) else name

    def _said(self, name: str) -> Said:
        """Of an adapter that the settings do not name, what they say of its parent."""
        model = self._configured.get(name) or self._configured.get(self._base(name))
        return _NOTHING_SAID if model is None else model.said

    def _names(self, name: str) -> list[Name]:
        """What the server was given to load is surer than what it is called; an adapter's own root is none of these."""
        return list(self._names_of(self._base(name))) + ([] if self._base(name) == name else [Name(name)])

    def _names_of(self, base: str) -> Iterator[Name]:
        root = self._origin(base).root
        if root is not None and root != base:
            yield Name(shown_name(root), FamilySource.ROOT)
        yield Name(base)

    def lists(self, name: str | None) -> bool | None:
        """Whether the upstream says that it serves that name, as all serve a request without one; None: it has not said
        what it serves.
        """
        return None if self._listed is None else not name or name in self._listed

    def limits(self, model: ServedModel) -> EngineLimits:
        """What the engine can hold for `model`, as far as it is known: asked with each request, and seldom new."""
        engine = self.engine
        facts = (
            engine.kv_blocks,
            engine.kv_blocks_of_one,
            engine.kv_block_tokens,
            engine.longest_request_blocks,
            engine.sequences,
            engine.encoder_tokens.value,
            engine.prefix_caching,
            model.max_model_len,
            model.kv_layout,
            model.kv_groups,
            model.kv_charges,
        )
        known = self._limits.get(model.name)
        if known is None or known[0] != facts:
            known = self._limits[model.name] = (facts, self._found_limits(model))
        return known[1]

    def _found_limits(self, model: ServedModel) -> EngineLimits:
        engine, layout = self.engine, model.kv_layout
        charges = model.kv_charges or charges_of(
            layout, engine.kv_block_tokens, model.max_model_len, engine.longest_request_blocks
        )
        groups = model.kv_groups if layout is None else len(layout.groups)
        return EngineLimits(
            max_model_len=model.max_model_len,
            kv_blocks=engine.kv_blocks,
            kv_blocks_of_one=engine.kv_blocks_of_one,
            kv_groups=sum(charge.groups for charge in charges) or groups,
            kv_charges=charges,
            kv_block_tokens=engine.kv_block_tokens,
            sequences=engine.sequences,
            encoder_budget_tokens=engine.encoder_tokens.value,
            prefix_caching=engine.prefix_caching,
        )


def _parts_of(identity: Identity) -> dict[str, Any]:
    return {each.name: getattr(identity, each.name) for each in fields(identity)}
