"""What `check` has to tell, as values: made from settings, models and one look at the upstream. No printing here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple

from gateway.access import Listening, listening_of, tenants_of
from gateway.cli.check.calibration import calibration_json
from gateway.cli.check.doubts import doubts_about_names, doubts_of
from gateway.cli.check.models import ModelFound, describe_model, unknown_of_images
from gateway.cli.check.planned import PlannedPool, planned_pool
from gateway.cli.check.surroundings import Surroundings
from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.fields import FIELDS
from gateway.domain.pressure import Rung
from gateway.domain.priority import Priority
from gateway.domain.slo import ServiceLevel
from gateway.domain.vision.video import LOADED_FRAMES
from gateway.models.served import Engine, ModelTable, ServedModel
from gateway.pipeline.follow import describe_engine, list_models
from gateway.policies import (
    ByteBudgets,
    PixelLimit,
    UpstreamPolicy,
    body_limits_of,
    engine_of,
    pixel_limits,
    pressure_policy_of,
    shadow_body_limits_of,
    upstreams_of,
)
from gateway.settings import Section, Settings
from gateway.settings.fields import rules_of
from gateway.settings_sources import Loaded
from gateway.upstream.state import UpstreamState

LOOK_SECONDS = 5.0

_OFF_WHERE_EMPTY = ("pressure.", "streaming.")


@dataclass(frozen=True, slots=True)
class Effective:
    """One setting. `value` as YAML and JSON have it; None where the gateway finds it out by itself."""

    name: str
    value: Any
    origin: str


class Asked(NamedTuple):
    """What one upstream said: a look at it, its models as they are then known, what was in the way of their own files,
    and what came of asking the server what pictures cost, both by model.
    """

    state: UpstreamState
    models: ModelTable
    troubles: Mapping[str, tuple[str, ...]] = {}
    calibrations: Mapping[str, Calibration] = {}


@dataclass(frozen=True, slots=True)
class UpstreamFound:
    """One model server. `name` is None where it is the only one; `is_given` says that it is not the default.

    `calibrations` are by model, and `calibrated_families` the names of those that they were held against.
    """

    name: str | None
    url: str
    is_given: bool
    state: UpstreamState
    engine: Engine
    models: list[ModelFound]
    calibrations: Mapping[str, Calibration]
    calibrated_families: dict[str, str]
    planned: PlannedPool | None = None

    def as_json(self) -> dict[str, Any]:
        report = self.state.report
        return {
            "name": self.name,
            "url": self.url,
            "is_up": self.state.is_up,
            "trouble": self.state.trouble,
            "version": self.state.version,
            "kv_blocks": self.engine.kv_blocks,
            "kv_block_tokens": self.engine.kv_block_tokens if report else None,
            "prefix_caching": self.engine.prefix_caching if report else None,
            "models": [asdict(model) for model in self.models],
            "calibration": {
                name: calibration_json(result, self.calibrated_families[name])
                for name, result in self.calibrations.items()
            },
            **({"planned": asdict(self.planned)} if self.planned else {}),
        }


@dataclass(frozen=True, slots=True)
class RungFound:
    """A rung of the ladder, from which pressure on it is in force and below which it is left."""

    rung: str
    enter: float
    leave: float
    what: str


@dataclass(frozen=True, slots=True)
class LevelFound:
    """By when a class of a tenant's requests is due, in seconds; None where nothing is promised."""

    tenant: str
    priority: str
    first_token_seconds: float | None
    total_seconds: float | None


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it. `unknown` are sentences about what is therefore not enforced, `doubts` about what is hardly meant."""

    settings: list[Effective]
    listening: Listening
    budgets: ByteBudgets
    is_shadow: bool
    max_body_bytes: int
    pixels: list[PixelLimit]
    upstreams: list[UpstreamFound]
    unknown: list[str]
    ladder: list[RungFound]
    levels: list[LevelFound]
    doubts: list[str]

    def as_json(self) -> dict[str, Any]:
        return {
            "settings": {each.name: {"value": each.value, "origin": each.origin} for each in self.settings},
            "listening": self.listening._asdict(),
            "memory": asdict(self.budgets),
            "max_body_bytes": self.max_body_bytes,
            "max_pixels": {limit.name: {"pixels": limit.pixels, "bound_by": limit.bound_by} for limit in self.pixels},
            "upstreams": [upstream.as_json() for upstream in self.upstreams],
            "unknown": self.unknown,
            "ladder": [asdict(rung) for rung in self.ladder],
            "levels": [asdict(level) for level in self.levels],
            "doubts": self.doubts,
        }


def find(loaded: Loaded, asked: Sequence[Asked], memory_limit_bytes: int, around: Surroundings) -> Findings:
    """Everything from values; `asked` is what each upstream said, `memory_limit_bytes` is this process's limit."""
    settings = loaded.settings
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes)
    upstreams = [_found(loaded, upstream, each) for upstream, each in zip(upstreams_of(settings), asked, strict=True)]
    return Findings(
        settings=list(_effective(settings, loaded.origins)),
        listening=listening_of(settings),
        budgets=budgets,
        is_shadow=settings.is_shadow,
        max_body_bytes=(
            shadow_body_limits_of(budgets) if settings.is_shadow else body_limits_of(settings, budgets)
        ).max_bytes,
        pixels=pixel_limits(settings.images, budgets),
        upstreams=upstreams,
        unknown=list(_unknown(upstreams)),
        ladder=list(_ladder(settings)),
        levels=list(_levels(settings)),
        doubts=[*doubts_of(settings, around), *_doubtful_names(settings, upstreams)],
    )


def _doubtful_names(settings: Settings, upstreams: Sequence[UpstreamFound]) -> list[str]:
    if not all(upstream.state.is_up for upstream in upstreams):
        return []
    return doubts_about_names(settings, {model.id for upstream in upstreams for model in upstream.state.models})


def table_of(
    settings: Settings, upstream: UpstreamPolicy, models: Sequence[ServedModel], state: UpstreamState
) -> ModelTable:
    """The models of one upstream as a gateway would know them after one look."""
    engine = engine_of(settings, upstream)
    if state.report is not None:
        describe_engine(engine, state.report, upstream.kv_blocks)
    table = ModelTable([model.at_one_upstream() for model in models], engine)
    list_models(table, state.models)
    return table


def _found(loaded: Loaded, upstream: UpstreamPolicy, asked: Asked) -> UpstreamFound:
    state, table, troubles, calibrations = asked
    for name, result in calibrations.items():
        table.served(name).calibrated(result)
    served_names = {model.id for model in state.models}
    served = [table.served(name) for name in table.names]
    is_named = bool(loaded.settings.upstreams)
    max_frames = loaded.settings.videos.max_frames or LOADED_FRAMES
    return UpstreamFound(
        name=upstream.name if is_named else None,
        url=upstream.url,
        is_given=is_named or "upstream.url" in loaded.origins,
        state=state,
        engine=table.engine,
        models=[
            describe_model(
                model,
                table.limits(model),
                troubles.get(model.name, ()),
                is_served=model.name in served_names,
                max_frames=max_frames,
            )
            for model in served
        ],
        calibrations=calibrations,
        calibrated_families={name: table.served(name).uncalibrated.family.name for name in calibrations},
        planned=planned_pool(upstream.kv_blocks, state.report),
    )


def _levels(settings: Settings) -> Iterator[LevelFound]:
    for name, tenant in tenants_of(settings).items():
        for priority, level in zip(Priority, tenant.levels, strict=True):
            if level != ServiceLevel():
                first, total = (None if seconds == inf else seconds for seconds in level)
                yield LevelFound(name, priority.label, first, total)


def _ladder(settings: Settings) -> Iterator[RungFound]:
    policy = pressure_policy_of(settings)
    if policy is None:
        return
    what = {
        Rung.SHRINK: f"new images are brought under {policy.preset} ({policy.preset.area_pixels:,} pixels)",
        Rung.HISTORY: f"conversations that first come now keep {policy.keep_images} images",
        Rung.MAX_TOKENS: f"answers get {policy.max_tokens} tokens at most",
        Rung.FALLBACK: "requests are served by their model's fallback, where that is less pressed",
        Rung.SHED: f"requests of priority {policy.shed_from.label} and less urgent ones are refused",
        Rung.REFUSE: "all new requests are refused",
    }
    for rung, band in policy.bands.items():
        yield RungFound(rung, band.enter, band.leave, what[rung])


def _effective(settings: Settings, origins: Mapping[str, str]) -> Iterator[Effective]:
    values = settings.model_dump(mode="json")
    of_fields = dict(_field_rules(settings))
    for name in _leaves(settings):
        value: Any = values
        for key in name.split("."):
            value = value[key]
        if value is None:
            value = of_fields.get(name)
        if value is None and name.startswith(_OFF_WHERE_EMPTY):
            value = "off"
        yield Effective(name, sorted(value) if name == "images.formats" else value, _origin(name, origins))


def _field_rules(settings: Settings) -> Iterator[tuple[str, Any]]:
    """What holds where a setting of a field is left out: the rule of the table."""
    rules = rules_of(settings.fields)
    for field in FIELDS:
        yield f"{field.setting}.policy", str(rules[field.name].treatment)
        yield f"{field.setting}.most", rules[field.name].most


def _origin(name: str, origins: Mapping[str, str]) -> str:
    """Of a setting that holds names of its own, the source of the last of them."""
    inside = [origin for each, origin in origins.items() if each == name or each.startswith(f"{name}.")]
    return inside[-1] if inside else "default"


def _leaves(section: Section, prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings, in the order of the file."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _unknown(upstreams: Sequence[UpstreamFound]) -> Iterator[str]:
    """What holds for all of them is said once."""
    of_each = [list(_unknown_at(upstream)) for upstream in upstreams]
    common = [sentence for sentence in of_each[0] if all(sentence in sentences for sentences in of_each)]
    yield from common
    for upstream, sentences in zip(upstreams, of_each, strict=True):
        yield from (f"{upstream.name}: {sentence}" for sentence in sentences if sentence not in common)


def _unknown_at(upstream: UpstreamFound) -> Iterator[str]:
    engine = upstream.engine
    if engine.kv_blocks is None:
        yield "KV blocks: the engine has not told and budget.kv_blocks is not set; not enforced, nothing is refused."
    if engine.encoder_tokens.value is None:
        yield "Encoder tokens: vLLM tells no number; not enforced until a 400 of its names it (budget.encoder_tokens)."
    if engine.image_limit.value is None:
        yield "Images a request: vLLM tells no number; not enforced until a 400 of its names it (images.max_forwarded)."
    if engine.sequences is None:
        yield "Sequences: vLLM does not tell max_num_seqs; 128 at the start, then learned (budget.sequences)."
    yield "Preprocessing: 20 MP/s at the start, then learned from first events."
    if not upstream.models:
        yield "Models: none is configured and none was listed; prices are of an assumed family and refuse nothing."
    for model in upstream.models:
        result = upstream.calibrations.get(model.name)
        yield from _unknown_of(model, is_doubted=result is not None and result.state is CalibrationState.DISAGREES)
        if engine.kv_blocks is not None and model.kv_groups is None:
            yield (
                f"{model.name}: unknown layout of KV groups, and its layers may be of several kinds; a request is "
                "charged as for one group of full attention. Set its folder (models[].folder)."
            )
        if engine.kv_blocks is not None and model.is_kv_whole:
            yield (
                f"{model.name}: some of its {model.kv_groups} KV groups hold a window only, but how much of a prompt, "
                "the server does not tell, or not what its files say; each is charged for all tokens."
            )


def _unknown_of(model: ModelFound, *, is_doubted: bool) -> Iterator[str]:
    if model.max_model_len is None:
        yield f"{model.name}: its context length is not known; not enforced."
    yield from unknown_of_images(model, is_doubted=is_doubted)
    if not model.is_text_exact:
        yield f"{model.name}: text is estimated by its bytes; set its folder (models[].folder) for exact counts."
