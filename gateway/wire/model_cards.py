"""The list of models as vLLM writes it and as clients get it: each entry with what this gateway says of it.

The gateway's own words stand under one name, which no field of OpenAI or vLLM has. All else stays as it came.
"""

from collections.abc import Iterable

import msgspec

from gateway.domain.errors import Code, GatewayError

FIELD = "vlm_gateway"

Card = dict[str, msgspec.Raw]
"""One entry, field by field."""


class GatewayCard(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a client can plan by. Left out: what is not known or not limited.

    `family` is whose arithmetic prices the images, and `family_source` what said so. `max_images` are those of one
    request, of which the gateway leaves the oldest out where more come; `max_images_per_turn` those of its last turn,
    of which more are refused. Images with more than `max_pixels` or `max_jpeg_pixels`, or longer than
    `max_image_bytes`, are refused; such as would cost more than `max_tokens_per_image` are made smaller. `resize` has
    the words that `x-gateway-resize` may ask for, `resize_default` the one that holds unasked. `alias_of` is the model
    that this is another name for, `aliases` are the other names of this one.
    """

    family: str | None = None
    family_source: str | None = None
    max_model_len: int | None = None
    max_images: int | None = None
    max_images_per_turn: int | None = None
    max_pixels: int
    max_jpeg_pixels: int
    max_image_bytes: int
    image_formats: tuple[str, ...]
    max_tokens_per_image: int | None = None
    max_tokens_per_request: int | None = None
    max_body_bytes: int
    resize: tuple[str, ...]
    resize_default: str
    alias_of: str | None = None
    aliases: tuple[str, ...] = ()


class _List(msgspec.Struct):
    data: list[Card]


class _Out(msgspec.Struct):
    data: list[msgspec.Raw]
    object: str = "list"


_decoder = msgspec.json.Decoder(_List)
_id_decoder = msgspec.json.Decoder(str)


def read_cards(body: bytes) -> dict[str, Card]:
    """The entries by their names. Raises GatewayError upstream_error for what is no list of models."""
    try:
        return {_id_decoder.decode(card["id"]): card for card in _decoder.decode(body).data}
    except (msgspec.DecodeError, RecursionError, KeyError) as error:
        what = "an entry has no id" if isinstance(error, KeyError) else str(error)
        raise GatewayError(Code.UPSTREAM_ERROR, f"The model server's list of models is unreadable: {what}") from None


def write_card(name: str, card: Card, own: GatewayCard) -> msgspec.Raw:
    """The entry under this name."""
    encode = msgspec.json.encode
    return msgspec.Raw(encode(card | {"id": msgspec.Raw(encode(name)), FIELD: msgspec.Raw(encode(own))}))


def write_list(cards: Iterable[msgspec.Raw]) -> bytes:
    return msgspec.json.encode(_Out([*cards]))
