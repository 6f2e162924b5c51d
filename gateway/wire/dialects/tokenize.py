"""`POST /tokenize` where vLLM itself is to answer it: a prompt, or a conversation, of which it decodes the images too.

It keeps vLLM's front end busy, not its engine: no text is too long for it.
"""

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.wire import read
from gateway.wire.chat import parse_chat
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.generic import parse_generic
from gateway.wire.read import ABSENT


class _Body(msgspec.Struct):
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


def parse_tokenize_sent_on(body: bytes | bytearray) -> VisionRequest:
    """Raises GatewayError 400 for what is no chat, and for a prompt beside one: vLLM would take either."""
    parsed = read.decode_body(_decoder, body)
    if not read.json_bytes(parsed.messages):
        return parse_generic(body)
    if read.json_bytes(parsed.prompt):
        raise GatewayError(Code.INVALID_REQUEST, "Send either `messages` or `prompt`.", param="prompt")
    return parse_chat(body)._replace(stream=False, wants_output=False, needs_engine=False)


_UNSEEN = ("documents", "reasoning_effort")
"""Templates see these of a chat, and not of /tokenize."""
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _chats(slim: bytes, _rendering_of: RenderingOf) -> list[bytes]:
    members = read.decode_body(_members_decoder, slim)
    return [msgspec.json.encode({name: value for name, value in members.items() if name not in _UNSEEN})]


TOKENIZE = Dialect(parse=parse_tokenize_sent_on, has_answers=False, needs_engine=False, chats=_chats)
