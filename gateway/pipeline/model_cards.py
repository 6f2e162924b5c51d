"""What this gateway says of each model that clients may ask for: with its limits, and by its other names too."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.domain.resize import OPT_OUT, Preset
from gateway.models.served import ServedModel
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Policies
from gateway.wire.model_cards import Card, GatewayCard, write_card


class Listed(NamedTuple):
    """One name that may be asked for: the model that serves, and the entry of the list."""

    served: str
    entry: msgspec.Raw


def list_cards(
    policies: Policies, lists: Sequence[tuple[Backend, Mapping[str, Card]]], max_body_bytes: int
) -> dict[str, Listed]:
    """Each name once, as the first server lists it, with the longest context that any of them has for it. An alias
    stands behind its model, and in the place of a model that a server lists by that name: it is not that one who asks
    for it gets.
    """
    aliases: dict[str, list[str]] = {}
    for alias, served in policies.aliases.items():
        aliases.setdefault(served, []).append(alias)
    seen: dict[str, Listed] = {}
    alike: dict[tuple[int, int, int, int | None], GatewayCard] = {}
    for backend, cards in lists:
        for name, card in cards.items():
            if name in seen or name in policies.aliases:
                continue
            model = backend.models.served(name)
            longest = max((_context_tokens(each, name) for each, names in lists if name in names), default=0)
            key = id(backend), id(model.family), longest, model.image_cap.most
            if key not in alike:  # adapters, of which there may be thousands, are as their parents
                alike[key] = _own_card(policies, backend, model, longest or None, max_body_bytes)
            others = aliases.get(name, ())
            own = replace(alike[key], aliases=tuple(others)) if others else alike[key]
            seen[name] = Listed(name, write_card(name, card, own))
            for alias in others:
                seen[alias] = Listed(name, write_card(alias, card, replace(alike[key], alias_of=name)))
    return seen


def _context_tokens(backend: Backend, name: str) -> int:
    return backend.models.served(name).max_model_len or 0


def _own_card(
    policies: Policies, backend: Backend, model: ServedModel, context_tokens: int | None, max_body_bytes: int
) -> GatewayCard:
    images, resize, engine = policies.images, policies.resize, backend.models.engine
    # A request may ask for less than the settings, never for more.
    allowed = [each for each in Preset if resize.preset is None or each.area_pixels <= resize.preset.area_pixels]
    limits = [resize.max_tokens_per_image, engine.encoder_tokens.value, model.image_cap.most]
    if not model.is_assumed:
        limits.append(model.family.max_image_tokens + model.family.markers)
    return GatewayCard(
        family=None if model.is_assumed else model.family.name,
        family_source=model.family_source,
        max_model_len=context_tokens,
        max_images=engine.image_limit.value,
        max_images_per_turn=policies.max_images_per_turn,
        max_pixels=images.max_pixels,
        max_jpeg_pixels=images.max_scaled_jpeg_pixels,
        max_image_bytes=images.max_bytes,
        image_formats=tuple(sorted(images.formats)),
        max_tokens_per_image=min((limit for limit in limits if limit is not None), default=None),
        max_tokens_per_request=resize.max_tokens_per_request,
        max_body_bytes=max_body_bytes,
        resize=(OPT_OUT, *allowed),
        resize_default=resize.preset or OPT_OUT,
    )
