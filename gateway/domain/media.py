"""Videos and audio of a request: what of them is taken, and how many tokens each can cost.

They are counted by an upper bound and never ignored: what no bound is known of is refused, unless the operator states
one. The bound is reserved; a refusal for good rests on the little that is sure to come. What decoding them takes of
vLLM's processors is not known before, and not charged: `per_request` and the line bound it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.vision.video import LOADED_FRAMES, VideoRule

LEAST_TOKENS = 1
"""No video and no audio that vLLM takes costs nothing."""


class MediaKind(StrEnum):
    """The value is the metric label."""

    VIDEO = "video"
    AUDIO = "audio"

    @property
    def section(self) -> str:
        """Of the settings."""
        return f"{self}s"

    @property
    def instead(self) -> str:
        return _INSTEAD[self]


_INSTEAD = {MediaKind.VIDEO: "Send single frames as images.", MediaKind.AUDIO: "Send a transcript as text."}


class MediaRef(NamedTuple):
    """One video or audio part and where it stands: `part`, e.g. `messages[2].content[1]`, and `param` the path of its
    data or address. `host` is whom vLLM would ask for it, None where it came with the request. `frames` are the most
    that it can have, None where its file alone tells.
    """

    kind: MediaKind
    part: str
    param: str
    host: str | None = None
    frames: int | None = None


class MediaCost(NamedTuple):
    """What one may cost: prompt tokens and embeddings, both upper bounds. Without a `kind` it is no part of the body,
    but a history that cannot be seen.
    """

    kind: MediaKind | None
    param: str
    prompt_tokens: int
    encoder_tokens: int


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """What the operator lets in of one kind: how many in a request, and by whose addresses beside their own data.

    `frames` are the most that vLLM takes of a video, None: as its loaders do. `tokens` is his own bound for one; None:
    only what the model's family defines.
    """

    per_request: int = 0
    frames: int | None = None
    tokens: int | None = None
    hosts: frozenset[str] = frozenset()


NOTHING: Mapping[MediaKind, MediaPolicy] = {kind: MediaPolicy() for kind in MediaKind}


def price_media(
    refs: Sequence[MediaRef], policies: Mapping[MediaKind, MediaPolicy], rule: VideoRule | None, family: str
) -> tuple[MediaCost, ...]:
    """What they may cost a model of `family`, whose `rule` says what a video costs. Raises GatewayError
    media_not_allowed with the first part that may not be.
    """
    for kind in MediaKind:
        _refuse_too_many([ref for ref in refs if ref.kind is kind], policies[kind])
    return tuple(_priced(ref, policies[ref.kind], rule, family) for ref in refs)


def counts_by_kind(media: Iterable[MediaCost | MediaRef]) -> dict[MediaKind, int]:
    counts = dict.fromkeys(MediaKind, 0)
    for each in media:
        if each.kind is not None:
            counts[each.kind] += 1
    return counts


def _refuse_too_many(refs: Sequence[MediaRef], policy: MediaPolicy) -> None:
    if len(refs) <= policy.per_request:
        return
    first = refs[policy.per_request]
    kind, setting = first.kind, f"{first.kind.section}.per_request"
    if policy.per_request:
        raise _refusal(
            first,
            f"The request has {len(refs)} {kind} parts, those of earlier turns included, and the limit is "
            f"{policy.per_request} ({setting}). Send fewer.",
        )
    raise _refusal(first, f"{kind.capitalize()} is not let in here ({setting} is 0). {kind.instead}")


def _priced(ref: MediaRef, policy: MediaPolicy, rule: VideoRule | None, family: str) -> MediaCost:
    if ref.host is not None and ref.host not in policy.hosts:
        raise _refusal(
            ref,
            f"vLLM itself would fetch this {ref.kind}, from a host that is not in {ref.kind.section}.allow_hosts. "
            f"Send it as a data URL (data:{ref.kind}/...;base64,...).",
        )
    stated = None if policy.tokens is None else (policy.tokens, policy.tokens)
    bounds = [bound for bound in (_defined(ref, policy, rule), stated) if bound is not None]
    if not bounds:
        raise _refusal(
            ref,
            f"What {ref.kind} costs is not known for models of the family {family}, and {ref.kind.section}.tokens, "
            f"the most that one may cost, is not set. {ref.kind.instead}",
        )
    prompt_tokens, encoder_tokens = min(bounds)
    return MediaCost(ref.kind, ref.part, prompt_tokens, encoder_tokens)


def _defined(ref: MediaRef, policy: MediaPolicy, rule: VideoRule | None) -> tuple[int, int] | None:
    """Prompt tokens and embeddings by the family's own rule."""
    if rule is None or ref.kind is not MediaKind.VIDEO:
        return None
    frames = policy.frames or LOADED_FRAMES
    if ref.frames is not None:
        # vLLM cuts lists at another number (32, unless --media-io-kwargs has `num_frames`), which is below this one.
        frames = min(ref.frames, max(frames, LOADED_FRAMES))
    return rule.most_prompt_tokens(frames), rule.most_encoder_tokens(frames)


def _refusal(ref: MediaRef, sentence: str) -> GatewayError:
    return GatewayError(Code.MEDIA_NOT_ALLOWED, f"`{ref.part}`: {sentence}", param=ref.part)
