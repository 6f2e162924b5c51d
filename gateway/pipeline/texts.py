"""How many tokens the text of a request is: counted by the model's own tokenizer, or bounded by its bytes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.models.conversation import UncountableError
from gateway.models.exact_text import ExactText
from gateway.models.served import ServedModel
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.rewriting import slim_chat
from gateway.wire.routes import Kind

# Tokenizing this much text takes about as long as handing it to a thread.
_INLINE_BYTES = 16 * 1024
_INLINE_IMAGES = 64
# No text that fits a context has more bytes than this per token. And tokenizing takes some 150 bytes of memory a byte:
# beyond the second limit a text is bounded by its bytes, however long the context is.
_MOST_BYTES_PER_TOKEN = 16
_MOST_BYTES = 1 << 20
_threads = ThreadPoolExecutor(2, thread_name_prefix="count text")


async def count_text(
    exchange: Exchange, request: VisionRequest, model: ServedModel, trimmed: Sequence[int] = (), marker: str = ""
) -> Bounds:
    """Tokens of the prompt without its images: exact where the tokenizer is at hand and the text not too long."""
    if model.exact_text is not None and exchange.route.kind is Kind.CHAT:
        edits = (exchange, request, trimmed, marker)
        is_long = len(request.images) > _INLINE_IMAGES
        slim = await in_thread(ONE_THREAD, slim_chat, *edits) if is_long else slim_chat(*edits)
        images = len(request.images) - len(trimmed)
        try:
            return Bounds.exact(await _counted(model, model.exact_text, slim, images))
        except UncountableError:
            pass  # what the template or the parser cannot take is for vLLM to judge
    text_bytes = request.text_bytes + len(trimmed) * len(marker.encode())
    return model.ratio.bounds(text_bytes, len(request.messages), uncertain_bytes=request.uncertain_text_bytes)


async def _counted(model: ServedModel, counter: ExactText, slim: bytes, images: int) -> int:
    """Raises UncountableError."""
    most = min(_MOST_BYTES, (model.max_model_len or _MOST_BYTES) * _MOST_BYTES_PER_TOKEN)
    if len(slim) > most:
        raise UncountableError(f"{len(slim)} bytes are not worth counting")
    if len(slim) <= _INLINE_BYTES:
        tokens = _count(counter, slim, images)
    else:
        tokens = await in_thread(_threads, _count, counter, slim, images)
    # Of each image the tokenizer counted the markers and one placeholder; the family counts those whole.
    return tokens - images * (1 + model.family.markers)


def _count(counter: ExactText, chat: bytes, images: int) -> int:
    """Raises UncountableError."""
    try:
        body = msgspec.json.decode(chat)
    except (msgspec.DecodeError, RecursionError) as error:
        # Somewhere in a field that the gateway does not read: for vLLM to judge.
        raise UncountableError(str(error)) from error
    counted = counter.count(body)
    if counted.image_placeholders not in {None, images}:
        raise UncountableError(f"the template makes {counted.image_placeholders} placeholders of {images} images")
    return counted.text_tokens
