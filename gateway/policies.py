"""From settings to what the deciders take: policies, derived byte budgets, and the limits that cannot all hold.

Used by every command that decides as the gateway does: serve, check and estimate. Only arithmetic; app.py makes the
objects.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import SecretStr

from gateway.access import tenants_of
from gateway.domain.image import ImageFormat
from gateway.domain.learning import LearnedLimit
from gateway.domain.media import MediaKind, MediaPolicy
from gateway.domain.pressure import REFUSING, Band, PressurePolicy
from gateway.domain.priority import Priority
from gateway.domain.queue import QueuePolicy
from gateway.domain.resize import Fit, Preset, ResizePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.stored_answers import StoringPolicy
from gateway.domain.trim import TrimMode, TrimPolicy
from gateway.imaging.limits import ImageLimits, bytes_for_pixels
from gateway.imaging.pillow import DECODABLE
from gateway.ledger.host_memory import quarter_share
from gateway.models.configure import ModelSettingsError, configured_model
from gateway.models.served import Engine, ServedModel
from gateway.pipeline.exchange import Policies
from gateway.server.page_access import Audience, PageAccess
from gateway.server.receive import BodyLimits
from gateway.settings import BudgetSettings, ImageSettings, Settings
from gateway.settings.fields import rules_of
from gateway.settings.isolation import isolation_of
from gateway.settings.pressure import HistoryRungSettings, MaxTokensSettings, ShedSettings, ShrinkSettings
from gateway.telemetry.declarations import ONLY_UPSTREAM
from gateway.upstream.counting import Way
from gateway.wire.hand_on import NOTHING, HandOn

DECODE_BYTES = "budget.decode_bytes"
UNHURRIED_SECONDS = 86_400.0
"""In shadow mode an answer may take as long as its client waits."""
_CACHE_SHARE = 20  # all image caches together get a twentieth of the memory limit


@dataclass(frozen=True, slots=True)
class ByteBudgets:
    """Shares of `limit_bytes`, the memory that this process may use; those that the operator set are his."""

    limit_bytes: int
    body_bytes: int
    decode_bytes: int
    cache_bytes: int

    @classmethod
    def of(cls, budget: BudgetSettings, limit_bytes: int) -> "ByteBudgets":
        quarter = quarter_share(limit_bytes)
        return cls(
            limit_bytes, budget.body_bytes or quarter, budget.decode_bytes or quarter, limit_bytes // _CACHE_SHARE
        )


@dataclass(frozen=True, slots=True)
class PixelLimit:
    """Most pixels that one format may have: `set_pixels` by its setting, `pixels` after `budget.decode_bytes`."""

    format: ImageFormat
    is_progressive: bool
    setting: str
    set_pixels: int
    pixels: int

    @property
    def name(self) -> str:
        return f"progressive {self.format}" if self.is_progressive else str(self.format)

    @property
    def is_cut(self) -> bool:
        """The decode budget allows less than the setting."""
        return self.pixels < self.set_pixels

    @property
    def bound_by(self) -> str:
        return DECODE_BYTES if self.is_cut else self.setting


def image_limits(images: ImageSettings, budgets: ByteBudgets) -> ImageLimits:
    return ImageLimits(
        max_bytes=images.max_bytes,
        max_pixels=images.max_pixels,
        max_scaled_jpeg_pixels=images.jpeg_pixels,
        decode_bytes=budgets.decode_bytes,
        max_aspect_ratio=images.max_aspect_ratio,
        formats=images.formats,
    )


def policies_of(settings: Settings, budgets: ByteBudgets) -> Policies:
    """What the operator wants, as the story takes it."""
    resize, history = settings.resize, settings.history
    return Policies(
        images=image_limits(settings.images, budgets),
        resize=ResizePolicy(
            max_tokens_per_image=resize.max_tokens_per_image,
            max_tokens_per_request=resize.max_tokens_per_request,
            preset=None if resize.preset == "off" else Preset(resize.preset),
            fit=Fit(resize.fit),
            honour_detail=resize.honour_detail,
            min_side=settings.images.min_side,
        ),
        trim=TrimPolicy(mode=TrimMode(history.mode), keep=history.keep, grid=history.grid, marker=history.marker),
        max_images_per_turn=settings.images.max_per_turn,
        transform_seconds=settings.images.transform_seconds,
        verifies_all=settings.images.verify == "full",
        queue_wait_seconds=settings.queue.wait_seconds,
        whole_answer_seconds=UNHURRIED_SECONDS if settings.is_shadow else settings.upstream.total_timeout_seconds,
        memory_limit_bytes=budgets.limit_bytes,
        max_fetched_bytes=body_limits_of(settings, budgets).max_bytes,
        overload_status=settings.server.overload_status,
        output_reservation=settings.output_reservation,
        asks_for_usage=settings.upstream.inject_usage and not settings.is_shadow,
        fallbacks={model.name: model.fallback for model in settings.models if model.fallback is not None},
        aliases={alias: model.name for model in settings.models for alias in model.aliases},
        forwards_addresses=settings.images.remote.policy == "forward",
        counts_tokens=settings.tokens.answer == "estimate" and not settings.is_shadow,
        hand_on=_hand_on_of(settings),
        media=_media_of(settings),
        storing=StoringPolicy(settings.responses.allow_previous, settings.responses.allow_background),
        open_routes=frozenset(settings.routes.open),
        fields=rules_of(settings.fields),
        isolation=isolation_of(settings.isolation, tells_apart=settings.tells_tenants_apart),
    )


def _media_of(settings: Settings) -> dict[MediaKind, MediaPolicy]:
    videos, audios = settings.videos, settings.audios
    return {
        MediaKind.VIDEO: MediaPolicy(videos.per_request, videos.max_frames, videos.tokens, _named(videos.allow_hosts)),
        MediaKind.AUDIO: MediaPolicy(audios.per_request, None, audios.tokens, _named(audios.allow_hosts)),
    }


def _named(hosts: Iterable[str]) -> frozenset[str]:
    return frozenset(host.lower() for host in hosts)


def _hand_on_of(settings: Settings) -> HandOn:
    if settings.is_shadow:
        return NOTHING
    objectives = {priority: settings.hand_on.objectives.of(priority) for priority in Priority}
    return HandOn(settings.hand_on.headers, objectives)


@dataclass(frozen=True, slots=True)
class UpstreamPolicy:
    """A model server: its name in metrics and logs, where it is, the key that it wants, if any, and what the operator
    says of its capacity (None: found out).
    """

    name: str
    url: str
    key: str | None = field(repr=False)
    kv_blocks: int | None
    sequences: int | None


def upstreams_of(settings: Settings) -> tuple[UpstreamPolicy, ...]:
    """At least one."""
    common, budget = settings.upstream, settings.budget
    if not settings.upstreams:
        key = _plain(common.api_key)
        return (UpstreamPolicy(ONLY_UPSTREAM, str(common.url), key, budget.kv_blocks, budget.sequences),)
    return tuple(
        UpstreamPolicy(
            each.shown_name,
            str(each.url),
            _plain(each.api_key or common.api_key),
            each.kv_blocks or budget.kv_blocks,
            each.sequences or budget.sequences,
        )
        for each in settings.upstreams
    )


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def pressure_policy_of(settings: Settings) -> PressurePolicy | None:
    """The ladder; None where no rung is wanted."""
    pressure = settings.pressure
    if not pressure.rungs:
        return None
    bands = {rung: Band(each.enter, each.leave) for rung, each in pressure.rungs.items()}
    shrink, history = pressure.shrink or ShrinkSettings(), pressure.history or HistoryRungSettings()
    max_tokens, shed = pressure.max_tokens or MaxTokensSettings(), pressure.shed or ShedSettings()
    return PressurePolicy(
        bands=bands,
        preset=Preset(shrink.preset),
        keep_images=history.keep,
        max_tokens=max_tokens.tokens,
        shed_from=Priority[shed.priority.upper()],
    )


def rungs_that_do_nothing(settings: Settings) -> list[str]:
    """A sentence for each rung of the ladder that other settings leave without an effect."""
    return list(_idle_rungs(settings))


def _idle_rungs(settings: Settings) -> Iterator[str]:
    pressure, history = settings.pressure, settings.history
    if pressure.shrink and settings.resize.preset != "off":
        usual, pressed = Preset(settings.resize.preset), Preset(pressure.shrink.preset)
        if pressed.area_pixels >= usual.area_pixels:
            yield f"pressure.shrink.preset is {pressed}, but resize.preset brings all images under {usual} already."
    most_kept = history.keep if history.mode == "always" else None
    if pressure.history and most_kept is not None and pressure.history.keep >= most_kept:
        yield f"pressure.history.keep is {pressure.history.keep}, but history.keep is {most_kept} for all already."
    if pressure.fallback and not any(model.fallback for model in settings.models):
        yield "pressure.fallback is set, but no model has another to fall back to: set models[].fallback."
    if settings.queue.requests == 0:
        for rung, each in pressure.rungs.items():
            if rung in REFUSING and each.enter > 1.0:
                yield f"pressure.{rung}.enter is {each.enter:g}, but with queue.requests = 0 it ends at 1: none wait."


def calibration_ways_of(settings: Settings) -> tuple[Way, ...]:
    """How servers may be asked what images cost, in this order; none: they are not."""
    ways = {"off": (), "tokenize": (Way.TOKENIZE,), "completions": (Way.TOKENIZE, Way.COMPLETIONS)}
    return ways[settings.calibration]


def engine_of(settings: Settings, upstream: UpstreamPolicy) -> Engine:
    """The engine as far as the settings tell; the upstream tells the rest."""
    return Engine(
        image_limit=LearnedLimit(settings.images.max_forwarded),
        encoder_tokens=LearnedLimit(settings.budget.encoder_tokens),
        kv_blocks=upstream.kv_blocks,
        sequences=upstream.sequences,
    )


def models_of(settings: Settings) -> list[ServedModel]:
    """The models that the settings name. Raises ModelSettingsError that tells of all that cannot be used."""
    models, mistakes = [], []
    for name, times in Counter(model.name for model in settings.models).items():
        if times > 1:
            mistakes.append(f"model {name!r}: is named {times} times; keep one")
    for model in settings.models:
        try:
            models.append(
                configured_model(
                    model.name,
                    family=model.family,
                    folder=model.folder,
                    processor=model.processor,
                    options=model.mm_processor_kwargs,
                )
            )
        except ModelSettingsError as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        raise ModelSettingsError("\n".join(mistakes))
    return models


def queue_policy_of(settings: Settings, body_bytes: int) -> QueuePolicy:
    """Of each upstream's queue; `body_bytes` are for all bodies in the gateway."""
    # Waiting bodies may fill half of the byte budget, so that those that are sent always find room too.
    waiting_bytes = body_bytes // (2 * len(upstreams_of(settings)))
    return QueuePolicy(settings.queue.requests, waiting_bytes, settings.queue.wait_seconds)


def soonest_level(settings: Settings) -> ServiceLevel:
    """The shortest time to a first token that any request may have, and of those levels the shortest to the end."""
    return min(min(tenant.levels[tenant.most_urgent :]) for tenant in tenants_of(settings).values())


def preprocess_backlog_seconds_of(settings: Settings) -> float:
    """Images must not be on their way for longer than a quarter of the time to the first token."""
    return min(settings.budget.preprocess_backlog_seconds, soonest_level(settings).first_token_seconds / 4)


def page_access_of(settings: Settings) -> PageAccess:
    page = settings.status_page
    return PageAccess(Audience(page.visible_to), frozenset(page.hosts))


def body_limits_of(settings: Settings, budgets: ByteBudgets) -> BodyLimits:
    server = settings.server
    # A body that took more than half of the memory would keep all others out for as long as it is held. And one that
    # could ask for more than large ones share, as it came and decoded, would wait for bytes that it holds itself.
    half, quarter = budgets.body_bytes // 2, budgets.body_bytes // 4
    return BodyLimits(
        min(server.max_body_bytes, half), min(server.max_decoded_body_bytes, quarter), server.body_min_bytes_per_second
    )


def shadow_body_limits_of(budgets: ByteBudgets) -> BodyLimits:
    """In shadow mode only what this process could not hold is refused, and nothing is decoded."""
    return BodyLimits(budgets.body_bytes // 2, max_decoded_bytes=0, min_bytes_per_second=0)


def pixel_limits(images: ImageSettings, budgets: ByteBudgets) -> list[PixelLimit]:
    """Of every format that is let in and can be decoded here."""
    limits = image_limits(images, budgets)
    kinds = [(image_format, False) for image_format in sorted(images.formats & DECODABLE)]
    if ImageFormat.JPEG in images.formats:
        kinds.append((ImageFormat.JPEG, True))
    return [_pixel_limit(limits, images, image_format, is_progressive=flag) for image_format, flag in kinds]


def _pixel_limit(
    limits: ImageLimits, images: ImageSettings, image_format: ImageFormat, *, is_progressive: bool
) -> PixelLimit:
    is_scaled = image_format is ImageFormat.JPEG and not is_progressive
    is_own = is_scaled and (images.max_jpeg_pixels is not None or "max_pixels" not in images.model_fields_set)
    return PixelLimit(
        image_format,
        is_progressive,
        setting="images.max_jpeg_pixels" if is_own else "images.max_pixels",
        set_pixels=images.jpeg_pixels if is_scaled else images.max_pixels,
        pixels=limits.pixel_limit(image_format, is_progressive=is_progressive),
    )


def limits_that_do_not_fit(settings: Settings) -> list[str]:
    """A sentence for each image limit that the operator set above what his own `budget.decode_bytes` can hold.

    Limits and budgets left to the gateway give way without a word: what they then are, `vlm-gateway check` shows.
    """
    decode_bytes = settings.budget.decode_bytes
    if decode_bytes is None:
        return []
    own = {f"images.{name}" for name in settings.images.model_fields_set}
    budgets = ByteBudgets.of(settings.budget, decode_bytes)
    short = [limit for limit in pixel_limits(settings.images, budgets) if limit.is_cut and limit.setting in own]
    return [
        _sentence([limit for limit in short if limit.setting == name], decode_bytes)
        for name in sorted({limit.setting for limit in short})
    ]


def _sentence(limits: list[PixelLimit], decode_bytes: int) -> str:
    least = min(limits, key=lambda limit: limit.pixels)
    needed_bytes = bytes_for_pixels(least.set_pixels, least.format, is_progressive=least.is_progressive)
    formats = ", ".join(limit.name for limit in limits)
    return (
        f"{least.setting} is {least.set_pixels}, but {DECODE_BYTES} = {decode_bytes} can decode at most "
        f"{least.pixels} pixels of {least.name} (too little for: {formats}). Set {least.setting} to {least.pixels} or "
        f"less, {DECODE_BYTES} to {needed_bytes} or more, or leave those formats out of images.formats."
    )
