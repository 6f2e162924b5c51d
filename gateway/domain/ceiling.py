"""How much of the static budget is let in: as much as the engine shows that it can take.

Told one look at the engine after the other. Three things lower the ceiling, and none is ever a reason to refuse:

- pressure, which is preemptions, or requests that stand waiting before a full pool while this gateway fills its
  ceiling. Multiplicative decrease, additive increase (Chiu and Jain, 1989). What runs cannot be unmade, and what was
  preempted makes others be preempted, so a decrease is followed by another only once what is held has come down to it,
  and not in the next two looks; else one overload would be punished many times (measured: down to half in five looks);
- load of others: what the engine has in work beyond what this gateway holds. Our own answers come and go between the
  engine's count and ours, so only what stands over several looks counts, and only beyond our own fluctuation. What is
  held is at least what our requests use, so blocks used beyond it are others', or ours that were estimated too low:
  they are gone either way;
- a start: a server that has just come up has empty caches and has compiled nothing.

Without numbers for some looks the static budget holds. The engine's own refusals are no matter of looks:
BackPressure.
"""

from typing import NamedTuple

_FLOOR_SHARE = 4
"""At least a quarter of the static budget is let in, whatever is seen: a gateway that admitted nothing would learn
nothing, and two before one engine must be able to share it."""


class Look(NamedTuple):
    """A fresh look at the engine, and what this gateway held of it just then. None: the engine does not tell.

    `fill` is the share of the ceiling in force that is held. `used_blocks` and `held_blocks` are of the KV pool.
    """

    running: int
    waiting: int
    fill: float = 0.0
    held_sequences: int = 0
    preemptions: int | None = None
    kv_usage: float | None = None
    used_blocks: int = 0
    held_blocks: int = 0

    def beside(self, sequences: int, blocks: int) -> "Look":
        """With so much at the engine that was sent without a place (in shadow mode): ours too, and no load of others.
        Whether those that have a place would be pressed without it is then not to be seen.
        """
        return self._replace(
            held_sequences=self.held_sequences + sequences,
            held_blocks=self.held_blocks + blocks,
            preemptions=None,
            kv_usage=None,
        )


class PressureShare:
    """A share between 0.5 and 1: down by a tenth with pressure, up by a hundredth with each quiet look.

    So it is back at 1 after at most 50 quiet looks.
    """

    __slots__ = ("_is_over", "_looks_since", "_percent")

    LEAST = 0.5
    QUIET_LOOKS_TO_RECOVER = 50
    _LOOKS_TO_ACT = 2

    def __init__(self) -> None:
        # In percent, for a hundred times a hundredth is not 1 in floating point.
        self._percent = 100
        self._is_over = False
        self._looks_since = self._LOOKS_TO_ACT

    @property
    def share(self) -> float:
        return self._percent / 100

    def observe(self, *, is_pressed: bool, fill: float) -> None:
        """One look; `fill` as in Look."""
        self._is_over = self._is_over and fill > 1.0
        has_acted = self._looks_since >= self._LOOKS_TO_ACT and not self._is_over
        self._looks_since += 1
        if not is_pressed:
            self._percent = min(self._percent + 1, 100)
        elif has_acted:
            self._percent = max(self._percent * 9 // 10, 50)
            self._is_over, self._looks_since = True, 0


class ForeignLoad:
    """What an engine has of something beyond what is held here, as far as it stands for three looks.

    It follows what was seen no further than all of the last three looks agree, in either direction.
    """

    __slots__ = ("_held_before", "_recent", "amount")

    def __init__(self) -> None:
        self.amount = 0
        self._held_before = 0
        self._recent = (0, 0, 0)

    def observe(self, reported: int, held: int) -> None:
        """`reported` by the engine, some time between the look before and this one; `held` here now.

        An eighth of what is held is fluctuation: requests that are on their way in or out.
        """
        most_held = max(held, self._held_before)
        self._held_before = held
        self._recent = (*self._recent[1:], max(0, reported - most_held - most_held // 8))
        self.amount = min(max(self.amount, min(self._recent)), max(self._recent))


class Ceiling:
    """All of it for one engine. Start, end and pace of the looks are the caller's."""

    __slots__ = ("_blocks", "_looks_missed", "_preemptions", "_pressure", "_requests", "_start_share", "_was_crowded")

    STALE_LOOKS = 3
    """After so many looks without numbers they are stale."""
    _START_SHARE = 0.25
    _FULL = 0.9

    def __init__(self) -> None:
        self._looks_missed = 0
        self._forget()

    def _forget(self) -> None:
        self._pressure = PressureShare()
        self._start_share = 1.0
        self._requests = ForeignLoad()
        self._blocks = ForeignLoad()
        self._preemptions: int | None = None
        self._was_crowded = False

    @property
    def is_stale(self) -> bool:
        return self._looks_missed >= self.STALE_LOOKS

    @property
    def is_starting(self) -> bool:
        return self._start_share < 1.0

    @property
    def is_pressed(self) -> bool:
        """Pressure was seen and has not been recovered from."""
        return self._pressure.share < 1.0

    @property
    def foreign_requests(self) -> int:
        return self._requests.amount

    @property
    def foreign_blocks(self) -> int:
        return self._blocks.amount

    def started(self) -> None:
        """The server was started anew: a quarter at first, twice as much with each quiet look."""
        self._forget()
        self._start_share = self._START_SHARE

    def missed(self) -> None:
        """A look brought no numbers."""
        self._looks_missed += 1
        if self.is_stale:
            self._forget()

    def look(self, seen: Look) -> None:
        """A look brought numbers."""
        self._looks_missed = 0
        self._requests.observe(seen.running + seen.waiting, seen.held_sequences)
        self._blocks.observe(seen.used_blocks, seen.held_blocks)
        is_pressed = self._is_pressed_now(seen)
        self._pressure.observe(is_pressed=is_pressed, fill=seen.fill)
        if not is_pressed:
            self._start_share = min(2 * self._start_share, 1.0)

    def _is_pressed_now(self, seen: Look) -> bool:
        before, self._preemptions = self._preemptions, seen.preemptions
        was_crowded = self._was_crowded
        # Requests also wait for seats and for the next step; for blocks only where there are none left.
        is_short = seen.kv_usage is not None and seen.kv_usage >= self._FULL
        self._was_crowded = seen.waiting > 0 and is_short and seen.fill >= self._FULL
        has_preempted = before is not None and seen.preemptions is not None and seen.preemptions > before
        return has_preempted or (was_crowded and self._was_crowded)

    def kv_blocks(self, static: int, whole: int) -> int:
        """Of `static` blocks, which are this gateway's share of a pool of `whole`."""
        return _allowed(min(static, whole - self._blocks.amount), static, min(self._pressure.share, self._start_share))

    def sequences(self, static: int, whole: int | None, *, is_kv_known: bool) -> int:
        """Of `static` sequences, where the engine runs `whole` (None: not known). Pressure is on KV, where that is
        known.
        """
        left = static if whole is None else min(static, whole - self._requests.amount)
        return _allowed(left, static, min(1.0 if is_kv_known else self._pressure.share, self._start_share))


def _allowed(left: int, static: int, share: float) -> int:
    return min(max(int(share * left), static // _FLOOR_SHARE, 1), static)


class BackPressure:
    """How long to send nothing after the engine turned requests away (429, 503): its Retry-After, up to 30 s, else
    1 s, and twice as long each time that it does so within 8 s after a pause, up to 8 s.

    Many are turned away at once: whatever comes during a pause belongs to it.
    """

    __slots__ = ("_seconds", "until")

    _FIRST_SECONDS = 1.0
    _MOST_SECONDS = 8.0
    _MOST_RETRY_AFTER_SECONDS = 30.0

    def __init__(self) -> None:
        self._seconds = 0.0
        self.until = float("-inf")

    def pushed_back(self, now: float, retry_after_seconds: float | None = None) -> float:
        """A request was turned away; returns until when to send nothing."""
        if now >= self.until:
            is_again = now - self.until < self._MOST_SECONDS
            self._seconds = min(2 * self._seconds, self._MOST_SECONDS) if is_again else self._FIRST_SECONDS
            self.until = now + self._seconds if retry_after_seconds is None else now
        if retry_after_seconds is not None:
            self.until = max(self.until, now + min(retry_after_seconds, self._MOST_RETRY_AFTER_SECONDS))
        return self.until
