"""Tokens of text that no tokenizer counted, and of what chat templates write around it. Pure."""

from functools import lru_cache

from gateway.domain.quantities import Bounds

LARGEST_TOKEN_BYTES = 128
"""No token of the vocabularies in use stands for more bytes (the longest are runs of 128 blanks)."""

# Tokens that a chat template writes around each message, and once around the conversation (default system prompt,
# opening of the answer, instructions for tools). Lower bounds are 0: a template may write nothing.
_PER_MESSAGE = Bounds(0, 5, 16)
_PER_CONVERSATION = Bounds(0, 8, 512)
_NO_TOKENS = Bounds.exact(0)


def text_bounds(text_bytes: int, message_count: int, bytes_per_token: float, *, uncertain_bytes: int = 0) -> Bounds:
    """Tokens of text that no tokenizer counted: `text_bytes` of UTF-8 in `message_count` messages (0: plain prompts).

    At most one token a byte (byte-level vocabularies) plus what the template writes; at least the bytes that are sure
    to be rendered (all but `uncertain_bytes`) divided by the longest token; expected by the learned ratio.
    """
    expected = int(text_bytes / min(max(bytes_per_token, 1.0), LARGEST_TOKEN_BYTES) + 0.5)
    written = template_tokens(message_count)
    lower = (text_bytes - uncertain_bytes) // LARGEST_TOKEN_BYTES
    return Bounds(lower, expected + written.expected, text_bytes + written.upper)


@lru_cache(maxsize=256)
def template_tokens(message_count: int) -> Bounds:
    """Tokens that the chat template adds to `message_count` messages; none to plain prompts."""
    if not message_count:
        return _NO_TOKENS
    each, once = _PER_MESSAGE, _PER_CONVERSATION
    return Bounds(
        once.lower + message_count * each.lower,
        once.expected + message_count * each.expected,
        once.upper + message_count * each.upper,
    )
