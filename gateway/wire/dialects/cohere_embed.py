"""`POST /v2/embed`, in Cohere's shape: one of `texts`, `images` and `inputs`, whose parts are as in a chat.

vLLM 0.32 makes a conversation of one message of each picture and each input, and cuts what is too long unless
`truncate` is NONE (entrypoints/pooling/embed/io_processor.py). Of the keys by which a chat's parts show media it knows
only `type`, `text` and `image_url`; here they all are looked for.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline, VisionRequest
from gateway.wire import read
from gateway.wire.chat_messages import read_content
from gateway.wire.content import Part
from gateway.wire.dialects.pooling import PoolingFields, opening_of_pooled, pooled_request
from gateway.wire.dialects.record import Dialect
from gateway.wire.images import Images
from gateway.wire.prompts import Prompts, count_prompts
from gateway.wire.usage import Usage

_TRUNCATIONS = ("NONE", "START", "END")
_TO_THE_CONTEXT = -1


class _Input(msgspec.Struct):
    content: list[Part | str]


class _Body(PoolingFields, kw_only=True):
    texts: list[str] | None = None
    images: list[msgspec.Raw] | None = None
    inputs: list[_Input] | None = None
    truncate: Any = "END"
    max_tokens: Any = None


_decoder = msgspec.json.Decoder(_Body)


def parse_cohere_embed(body: bytes | bytearray) -> VisionRequest:
    """Raises GatewayError invalid_json, invalid_request, or what is wrong with a picture or a part."""
    parsed = read.decode_body(_decoder, body)
    parsed.refuse_odd_padding()
    given = [name for name in ("texts", "images", "inputs") if getattr(parsed, name) is not None]
    if len(given) != 1 or not getattr(parsed, given[0]):
        raise GatewayError(
            Code.INVALID_REQUEST,
            "Send exactly one of `texts`, `images` and `inputs`, and at least one entry in it.",
            param=given[-1] if given else "texts",
        )
    truncation = _truncation(parsed)
    if parsed.texts is not None:
        prompts = count_prompts(parsed.texts, "texts", read.MOST_SEQUENCES)
        return pooled_request(body, parsed, prompts, truncation=truncation)
    images = Images(body, given[0])
    outlines = _of_images(parsed.images, images) if parsed.images else _of_inputs(parsed.inputs or [], images)
    return pooled_request(
        body,
        parsed,
        Prompts(len(outlines)),
        outlines,
        (1,) * len(outlines),
        images,
        truncation=truncation,
        name=given[0],
    )


def _of_images(urls: list[msgspec.Raw], images: Images) -> list[MessageOutline]:
    outlines = []
    for index, url in enumerate(urls):
        path = f"images[{index}]"
        if bytes(memoryview(url)[:1]) != b'"':
            raise GatewayError(Code.INVALID_REQUEST, f"`{path}` must be a string.", param=path)
        outlines.append(MessageOutline("user", 0, (images.add(("images", index), path, url),)))
    return outlines


def _of_inputs(inputs: list[_Input], images: Images) -> list[MessageOutline]:
    return [
        MessageOutline("user", *read_content(entry.content, ("inputs", index), f"inputs[{index}]", images))
        for index, entry in enumerate(inputs)
    ]


def _truncation(parsed: _Body) -> int | None:
    """As vLLM resolves it."""
    if parsed.truncate not in _TRUNCATIONS:
        raise GatewayError(
            Code.INVALID_REQUEST, f"`truncate` must be one of {', '.join(_TRUNCATIONS)}.", param="truncate"
        )
    most = read.integer(parsed.max_tokens, "max_tokens", minimum=-1)
    if parsed.truncate == "NONE":
        return None
    return _TO_THE_CONTEXT if most is None else most


class _Billed(msgspec.Struct, gc=False):
    input_tokens: int = 0
    image_tokens: int = 0


_BILLED = b'"billed_units":'
_billed_decoder = msgspec.json.Decoder(_Billed)


def billed_usage_of(body_tail: bytes) -> Usage | None:
    """VLLM bills either all as images or all as text, so only the sum says anything."""
    _, found, rest = body_tail.rpartition(_BILLED)
    if not found:
        return None
    try:
        billed = _billed_decoder.decode(rest[: rest.find(b"}") + 1])
    except msgspec.DecodeError:
        return None
    return Usage(billed.input_tokens + billed.image_tokens, 0)


COHERE_EMBED = Dialect(parse=parse_cohere_embed, has_answers=False, opening=opening_of_pooled, usage_of=billed_usage_of)
