"""Routes without media and without output: `/tokenize` of a plain prompt, `/detokenize`.

They keep vLLM's front end busy, not its engine: no text is too long for them, and they hold nothing of the engine.
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.wire import read


class _Body(msgspec.Struct):
    model: Any = None
    messages: Any = None


_decoder = msgspec.json.Decoder(_Body)


def parse_generic(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it; all of the body counts as text.

    Raises GatewayError invalid_json, invalid_request, or permission_denied for messages, which may carry media.
    """
    parsed = read.decode_body(_decoder, body)
    if parsed.messages is not None:
        raise GatewayError(
            Code.PERMISSION_DENIED,
            "Messages may carry media, which would reach the model server unseen. Send a plain `prompt`, or ask for "
            "this gateway's own count: `x-gateway-tokens: estimate`.",
            param="messages",
        )
    return VisionRequest(
        model=read.string(parsed.model, "model"), extra_text_bytes=len(body), wants_output=False, needs_engine=False
    )
