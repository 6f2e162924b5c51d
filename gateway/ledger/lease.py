"""What an admitted request holds of its engine, and what its answer shows of the engine's pace.

From `Resource.ENCODER_TOKENS` on, resources are held until the first token (of the last two one after the other);
those before it to the end, but for the KV blocks that lie before the windows of a prompt.
"""

from typing import TYPE_CHECKING

from gateway.domain.outcome import Ending
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.ticket import Ticket
from gateway.domain.unfolding import Unfolding
from gateway.ledger.timing import Timer

if TYPE_CHECKING:
    from gateway.ledger.gate import Gate

_UNSEEN_TOKENS = 3
"""An answer is so far ahead of what was seen of it: on its way, and being made."""


class Lease:
    """What an admitted request holds, until it is closed: exactly once, however it ended.

    The pipeline's order: `sent`, for streams `first_event` and `grow`, then `close`; `abandon` in its `finally`.
    """

    __slots__ = (
        "_behind_tokens",
        "_first_event_at",
        "_front_timer",
        "_gate",
        "_generated_tokens",
        "_grown_blocks",
        "_held",
        "_pixels_in_sight",
        "_sent_at",
        "_ticket",
        "queue_seconds",
    )

    def __init__(self, gate: "Gate", ticket: Ticket, queue_seconds: float) -> None:
        self._gate = gate
        self._ticket = ticket
        self._held: Amounts | None = ticket.amounts
        self._grown_blocks = 0
        self._pixels_in_sight = 0
        self._behind_tokens = 0
        self._generated_tokens = 0
        self._sent_at: float | None = None
        self._first_event_at: float | None = None
        self._front_timer: Timer | None = None
        self.queue_seconds = queue_seconds

    @property
    def is_open(self) -> bool:
        return self._held is not None

    @property
    def held(self) -> Amounts:
        """What it holds now; nothing once closed."""
        return self._held or Amounts()

    def unfolding(self, *, as_begun: bool = False) -> Unfolding:
        """What its answers have yet to take. Until the first of them shows, nobody knows when they will have begun:
        then it is all at once, or as if they began now.
        """
        blocks, generated = self.held.kv_blocks, self._generated_tokens
        if not generated and not as_begun:
            return Unfolding(blocks, blocks, may_outgrow=self._ticket.growth.may_outgrow)
        ahead = _UNSEEN_TOKENS * self._ticket.growth.answers if generated else 0
        return self._ticket.unfolding(blocks, generated + ahead, self._grown_blocks)

    def sent(self, *, is_streamed: bool) -> None:
        """The body is on its way to the engine.

        A stream shows by its first event that its prompt and images are through; once its images should be decoded, it
        is in the way of texts. Any other answer shows nothing: it counts as through once it should be, by the learned
        paces, and is in nobody's way.
        """
        pixels = self._ticket.amounts.preprocess_pixels
        delay = self._gate.preprocessing_started(pixels) if pixels else 0.0
        if is_streamed:
            self._pixels_in_sight = pixels
            self._sent_at, self._behind_tokens = self._gate.now, self._gate.tokens_to_begin(self._ticket)
            if delay and self._gate.has_levels:
                self._front_timer = self._gate.call_later(delay, self._decoded)
            return
        if pixels:
            self._gate.preprocessing_out_of_sight(pixels)
        delay = max(delay, self._gate.first_token_seconds(self._ticket))
        # Without a pace nothing says when it is through, and where no level is set nobody waits for that.
        if (delay or self._gate.has_levels) and any(self._ticket.amounts[Resource.ENCODER_TOKENS :]):
            self._front_timer = self._gate.call_later(delay, self._release_front)

    def first_event(self) -> None:
        """The first event of the stream came: all that it held on the way there is free. Later calls do nothing."""
        if self._pixels_in_sight:
            self._gate.preprocessing_seen_through(self._pixels_in_sight)
            self._pixels_in_sight = 0
        if self._sent_at is not None and self._first_event_at is None and self._held is not None:
            self._first_event_at = self._gate.now
            if not self._ticket.is_bounded:
                self._gate.first_token_came(self._behind_tokens, self._first_event_at - self._sent_at)
        self._release_front()

    def grow(self, generated_tokens: int) -> None:
        """So many tokens (over all answers of the request) have been generated; beyond the reservation they cost."""
        self._generated_tokens = generated_tokens
        blocks = self._ticket.growth.blocks(generated_tokens)
        more = blocks - self._grown_blocks
        if more <= 0 or self._held is None:
            return
        self._grown_blocks = blocks
        self._held = self._held._replace(kv_blocks=self._held.kv_blocks + more)
        self._gate.grow(Amounts(kv_blocks=more))

    def close(self, ending: Ending) -> None:
        """Give everything back. Raises RuntimeError when it is closed already."""
        held = self._held
        if held is None:
            raise RuntimeError("this lease was closed before")
        self._held = None
        if self._front_timer is not None:
            self._front_timer.cancel()
        if self._pixels_in_sight:
            self._gate.preprocessing_out_of_sight(self._pixels_in_sight)
            self._pixels_in_sight = 0
        if ending is Ending.DONE and self._first_event_at is not None:
            tokens = self._generated_tokens // self._ticket.amounts.sequences
            self._gate.generated(tokens, self._gate.now - self._first_event_at)
        self._gate.ended(self, held, ending)

    def abandon(self) -> None:
        """For `finally`: close, teaching nothing, unless that was done."""
        if self._held is not None:
            self.close(Ending.IGNORED)

    def _decoded(self) -> None:
        """Its images should be, so that it is in the way of texts until it begins."""
        held, tokens = self.held, self.held.image_prefill_tokens
        if tokens:
            self._held = held._replace(prefill_tokens=tokens, image_prefill_tokens=0)
            self._gate.grow(Amounts(prefill_tokens=tokens))
            self._gate.give_back(Amounts(image_prefill_tokens=tokens))

    def _release_front(self) -> None:
        held = self.held
        front = held[Resource.ENCODER_TOKENS :]
        if any(front):
            kv_blocks = self._ticket.prefill_kv_blocks
            self._held = Amounts(held.kv_blocks - kv_blocks, held.sequences)
            self._gate.give_back(Amounts(kv_blocks, 0, *front))
