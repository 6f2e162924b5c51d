"""What the pipeline has to know of a route whose body it reads: nothing else of it makes a difference there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.domain.request import Span, VisionRequest
from gateway.wire.max_tokens import Members
from gateway.wire.messages import Rendering
from gateway.wire.opening import chat_opening
from gateway.wire.routes import Kind
from gateway.wire.sse import StreamObserver
from gateway.wire.usage import Usage, usage_of

Body = bytes | bytearray
RenderingOf = Callable[[], Rendering]
"""Asked only where it makes a difference: the first time it is found out, the model's template is rendered for it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """`parse` gives the request as admission sees it, and where its images stand; it raises GatewayError 400.
    `kind_of` says which other route a body is for, whose record then holds; None where its path tells.

    `has_answers`: tokens are generated, so they may be fewer, or another model's. `needs_engine`: more than vLLM's
    front end is at work. `text_type` is that of a part with text, which takes the place of an image.

    `bound_keys` are those under which the answer's bound stands, as cap_answer takes them, and `least_bound` what it
    may not go below, None: `min_tokens`.

    `chats` makes of a body whose images are emptied the chats that the model's template sees, one for each
    conversation; None where text is never counted exactly. `opening` is what stays the same of a conversation while
    its history grows; it is asked where there are images.

    `takes_stream_options`: usage may be asked for at the end of a stream. `observer` follows its streams, in which each
    answer begins with `opening_events` that hold no token, and `usage_events` at the end do not either. `usage_of`
    reads usage out of the last bytes of a whole answer, or, where `usage_is_early`, out of the first: before what the
    answer repeats of the request.
    """

    parse: Callable[[Body], VisionRequest]
    kind_of: Callable[[Body], Kind] | None = None
    has_answers: bool = True
    needs_engine: bool = True
    text_type: str = "text"
    bound_keys: Sequence[str] = ("max_tokens",)
    least_bound: Callable[[Members], int] | None = None
    chats: Callable[[bytes, RenderingOf], Sequence[bytes]] | None = None
    opening: Callable[[Body, VisionRequest], Span] = chat_opening
    takes_stream_options: bool = False
    observer: type[StreamObserver] = StreamObserver
    opening_events: int = 0
    usage_events: int = 1
    usage_of: Callable[[bytes], Usage | None] = usage_of
    usage_is_early: bool = False
