"""How many tokens the text of a request is: counted by the model's own tokenizer, or bounded by its bytes."""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat, starmap
from typing import Any, TypeVar

import msgspec

from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.models.conversation import UncountableError
from gateway.models.exact_text import ExactText
from gateway.models.served import ServedModel
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.rewriting import slim_body
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.messages import Rendering
from gateway.wire.read import utf8_bytes

T = TypeVar("T")

# Tokenizing this much text takes about as long as handing it to a thread.
_INLINE_BYTES = 16 * 1024
_INLINE_IMAGES = 64
# No text that fits a context has more bytes than this per token. And tokenizing takes some 150 bytes of memory a byte:
# beyond the second limit a text is bounded by its bytes, however long the context is.
_MOST_BYTES_PER_TOKEN = 16
_MOST_BYTES = 1 << 20
# Rendering even an empty chat takes a tenth of a millisecond or more, and a request may bring 16,384 of them.
_INLINE_CHATS = 16
_MOST_CHATS = 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="count text")


async def count_text(
    exchange: Exchange, request: VisionRequest, model: ServedModel, trimmed: Sequence[int] = (), marker: str = ""
) -> Bounds:
    """Tokens of the prompt without its images: exact where the tokenizer is at hand and the text not too long."""
    # What a template makes of a video is not followed, and its bytes are not worth a parser's time.
    if model.exact_text is not None and DIALECTS[exchange.route.kind].chats is not None and not request.media:
        try:
            return Bounds.exact(await _count_chats(exchange, request, model, trimmed, marker))
        except UncountableError:
            pass  # what the template or the parser cannot take is for vLLM to judge
    several = len(request.conversation_lengths)
    if several > _MOST_CHATS:
        return await in_thread(_threads, _bounds_of_several, request, model, trimmed, marker)
    if several:
        return _bounds_of_several(request, model, trimmed, marker)
    text_bytes = request.text_bytes + len(trimmed) * len(marker.encode())
    return model.ratio.bounds(
        text_bytes,
        len(request.messages),
        uncertain_bytes=request.uncertain_text_bytes,
        has_system=request.has_system,
    )


async def _count_chats(
    exchange: Exchange, request: VisionRequest, model: ServedModel, trimmed: Sequence[int], marker: str
) -> int:
    """Of all its conversations together. Raises UncountableError."""
    counter, chats_of = model.exact_text, DIALECTS[exchange.route.kind].chats
    assert counter is not None and chats_of is not None, "text is counted exactly"  # noqa: PT018
    if len(request.conversation_lengths) > _MOST_CHATS:
        raise UncountableError(f"{len(request.conversation_lengths)} conversations are not worth counting")
    slim = await _slim(exchange, request, trimmed, marker)
    make = partial(chats_of, slim, partial(rendering_of, model))
    chats = make() if len(slim) <= _INLINE_BYTES else await in_thread(ONE_THREAD, make)
    gone = frozenset(trimmed)
    images = [
        sum(len(message.images) - len(gone.intersection(message.images)) for message in messages)
        for messages in request.conversations
    ]
    counts = zip(repeat(counter, len(chats)), chats, images, strict=True)
    work = partial(sum, starmap(_count, counts))
    tokens = await _tokenized(model, max(map(len, chats)), work, is_inline=len(chats) <= _INLINE_CHATS)
    # Of each image the tokenizer counted the markers and one placeholder; the family counts those whole.
    return tokens - sum(images) * (1 + model.family.markers)


def rendering_of(model: ServedModel) -> Rendering:
    """How vLLM makes chats of other messages, as far as the model's template decides that."""
    counter = model.exact_text
    return Rendering() if counter is None else Rendering(counter.merges_inline_system, counter.disabled_thinking_effort)


def _bounds_of_several(request: VisionRequest, model: ServedModel, trimmed: Sequence[int], marker: str) -> Bounds:
    """The template writes around each conversation anew."""
    extra = request.extra_text_bytes + len(trimmed) * len(marker.encode())
    bounds = model.ratio.bounds(extra, 0, uncertain_bytes=request.uncertain_extra_bytes)
    for messages in request.conversations:
        one = VisionRequest(None, messages=tuple(messages))
        bounds += model.ratio.bounds(
            one.text_bytes, len(messages), uncertain_bytes=one.uncertain_text_bytes, has_system=one.has_system
        )
    return bounds


async def encode_chat(
    exchange: Exchange, request: VisionRequest, model: ServedModel, trimmed: Sequence[int], marker: str
) -> Sequence[int] | None:
    """The tokens that `count_text` counted, each image as one; None where they are not known."""
    counter = model.exact_text
    if counter is None or request.media:
        return None
    slim = await _slim(exchange, request, trimmed, marker)
    return await _if_countable(_tokenized(model, len(slim), lambda: counter.encode_chat(_decoded(slim))))


async def encode_prompt(model: ServedModel, text: str, *, adds_special_tokens: bool) -> Sequence[int] | None:
    """The tokens of a text for which there is no template; None where they are not known."""
    counter = model.exact_text
    if counter is None:
        return None
    encode = partial(counter.encode, text, adds_special_tokens=adds_special_tokens)
    return await _if_countable(_tokenized(model, utf8_bytes(text), encode))


async def _if_countable(tokens: Awaitable[Sequence[int]]) -> Sequence[int] | None:
    try:
        return await tokens
    except UncountableError:
        return None


async def _slim(exchange: Exchange, request: VisionRequest, trimmed: Sequence[int], marker: str) -> bytes:
    edits = (exchange, request, trimmed, marker)
    is_long = len(request.images) > _INLINE_IMAGES
    return await in_thread(ONE_THREAD, slim_body, *edits) if is_long else slim_body(*edits)


async def _tokenized(model: ServedModel, text_bytes: int, work: Callable[[], T], *, is_inline: bool = True) -> T:
    """`text_bytes` are those of the longest text. Raises UncountableError."""
    most = min(_MOST_BYTES, (model.max_model_len or _MOST_BYTES) * _MOST_BYTES_PER_TOKEN)
    if text_bytes > most:
        raise UncountableError(f"{text_bytes} bytes are not worth counting")
    is_inline = is_inline and text_bytes <= _INLINE_BYTES
    return work() if is_inline else await in_thread(_threads, work)


def _count(counter: ExactText, chat: bytes, images: int) -> int:
    """Raises UncountableError."""
    counted = counter.count(_decoded(chat))
    if counted.image_placeholders not in {None, images}:
        raise UncountableError(f"the template makes {counted.image_placeholders} placeholders of {images} images")
    return counted.text_tokens


def _decoded(chat: bytes) -> Any:
    """Raises UncountableError."""
    try:
        return msgspec.json.decode(chat)
    except (msgspec.DecodeError, RecursionError) as error:
        # Somewhere in a field that the gateway does not read: for vLLM to judge.
        raise UncountableError(str(error)) from error
