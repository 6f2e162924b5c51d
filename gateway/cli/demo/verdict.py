"""Whether the demo showed what it is there to show. Pure: what was seen in, sentences about what was not right out."""

from collections.abc import Iterator, Sequence

from gateway.cli.demo.acts import Burst, PictureSeen, Play, Served, Turn

_REFUSALS = {429, 503}


def complaints(play: Play) -> list[str]:
    """Empty where everything behaved."""
    return [
        *_about_predictions(play.served),
        *_about_pictures(play.pictures),
        *_about_turns(play.turns),
        *_about_burst(play.burst),
    ]


def _about_predictions(served: Sequence[Served]) -> Iterator[str]:
    wrong = [each for each in served if each.predicted_tokens != each.prompt_tokens]
    if wrong:
        yield (
            f"{len(wrong)} of {len(served)} predictions were wrong: first {wrong[0].predicted_tokens} prompt tokens "
            f"predicted, {wrong[0].prompt_tokens} counted by the engine."
        )


def _about_pictures(pictures: Sequence[PictureSeen]) -> Iterator[str]:
    for seen in pictures:
        before, after = seen.before.visual_tokens, seen.after.visual_tokens
        if after >= before:
            yield f"The {seen.picture.name} did not become cheaper: {before} tokens as it came, {after} after."


def _about_turns(turns: Sequence[Turn]) -> Iterator[str]:
    if not any(turn.trimmed for turn in turns):
        yield "Nothing was trimmed, although the conversation outgrew the context."
    for turn in turns:
        if turn.forwarded + turn.trimmed != turn.sent:
            yield (
                f"Turn {turn.number}: {turn.sent} images were sent, {turn.trimmed} left out and {turn.forwarded} "
                "forwarded; the sum is wrong."
            )
        if turn.engine_cache_hits < turn.forwarded - 1:
            yield (
                f"Turn {turn.number}: {turn.forwarded - 1} forwarded images were sent before, but only "
                f"{turn.engine_cache_hits} hit the engine's cache: their bytes changed."
            )


def _about_burst(burst: Burst) -> Iterator[str]:
    groups = {"was admitted at once": burst.at_once, "waited": burst.waited, "was refused": burst.refused}
    yield from (f"Nobody of the burst {what}." for what, answers in groups.items() if not answers)
    strange = sorted({answer.status for answer in burst.refused} - _REFUSALS)
    if strange:
        yield f"Refusals of the burst had the status {', '.join(map(str, strange))} instead of 429 or 503."
    if any(not answer.retry_after for answer in burst.refused):
        yield "A refusal of the burst named no Retry-After."
    if burst.held_blocks_after or burst.queue_depth_after:
        yield (
            f"After the burst {burst.held_blocks_after:.0f} KV blocks are still held and "
            f"{burst.queue_depth_after:.0f} requests still wait."
        )
