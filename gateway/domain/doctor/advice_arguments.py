"""Starts that failed on what was asked for: flags, context, ranks."""

from gateway.domain.doctor.advice import Advice, number
from gateway.domain.doctor.measured import Sighting, Start, Term
from gateway.domain.doctor.misleading import as_json_limits

_LARGEST_IMAGE_TOKENS = 16_384
"""Of the Qwen families, with the limits that they ship with."""
_SMALLEST_BATCH = 2048
"""vLLM's own default for small cards."""


def limit_mm_syntax(start: Start, seen: Sighting) -> Advice:
    value = seen.words.get("value") or str(start.flags.get("limit_mm_per_prompt", ""))
    escaped = value.startswith("{\\")
    cause = f"`{value}` is not JSON." if value else "The value is not JSON."
    if escaped:
        cause += " The shell gave the backslashes on to vLLM; inside single quotes they are not needed."
    else:
        cause += (
            " NAME=NUMBER was read until 0.9; since 0.10 it is JSON, or one flag a kind: --limit-mm-per-prompt.image 1."
        )
    limits = value.replace("\\", "") if escaped else as_json_limits(value)
    cure = 'A count above 0 saves no memory; `"video": 0` does.'
    return Advice("--limit-mm-per-prompt cannot be read", cause, (cure,), (f"--limit-mm-per-prompt '{limits}'",))


def unknown_arguments(_start: Start, seen: Sighting) -> Advice:
    given = seen.words.get("arguments", "")
    names = [word for word in given.split() if word.startswith("--")]
    cause = f"vLLM does not know {', '.join(names) or given}. It ends before it looks at the model."
    return Advice(
        "Flags that this vLLM has not",
        cause,
        ("Take them out; below is what each was meant for, as far as it is known.",),
    )


def bad_argument(_start: Start, seen: Sighting) -> Advice:
    cause = f"{seen.words.get('flag', 'A flag')}: {seen.words.get('why', 'its value cannot be read')}."
    return Advice("The value of a flag cannot be read", cause, ("`vllm serve --help=FLAG` says what it may be.",))


def context_above_model(_start: Start, seen: Sighting) -> Advice:
    own = number(seen.words, "own")
    cause = "--max-model-len is longer than what the model was made for."
    flags: tuple[str, ...] = ()
    if own is not None:
        cause += f" Its configuration says {own:,.0f}."
        flags = (f"--max-model-len {own:.0f}",)
    cure = "If the model's card describes a scaling of its positions, give it with --hf-overrides."
    return Advice("The context is longer than the model's own", cause, ("Lower it to the model's own.", cure), flags)


def chunked_mm_input(_start: Start, seen: Sighting) -> Advice:
    item, batched = int(seen.words["item"]), int(seen.words["batched"])
    cause = (
        "With --disable-chunked-mm-input the largest image or video must fit into one batch. "
        f"It has {item:,} tokens, the batch {batched:,}."
    )
    cures: tuple[str, ...] = ("Take the flag out, or make batches larger or images smaller.",)
    flags: tuple[str, ...] = (f"--max-num-batched-tokens {item}",)
    if item > _LARGEST_IMAGE_TOKENS:
        cures = ("So many tokens has a video; forbid it, if clients send none.", *cures)
        flags = ("--limit-mm-per-prompt '{\"video\": 0}'", *flags)
    return Advice("An image or a video is larger than a batch", cause, cures, flags)


def batch_below_sequences(_start: Start, seen: Sighting) -> Advice:
    batched, sequences = int(seen.words["batched"]), int(seen.words["sequences"])
    cause = f"Each sequence takes a token of every batch: {sequences:,} sequences, and batches of {batched:,} tokens."
    cures = ("Make batches larger, which also lets larger images in.", "Or let fewer sequences run at once.")
    flags = (f"--max-num-batched-tokens {max(sequences, _SMALLEST_BATCH)}", f"--max-num-seqs {max(1, batched)}")
    return Advice("Batches are smaller than the number of sequences", cause, cures, flags)


def heads(_start: Start, seen: Sighting) -> Advice:
    count, tp = number(seen.words, "heads"), number(seen.words, "tp")
    if count is None or tp is None or not 1 <= count < 1 << 20:
        return Advice("The model cannot be cut into so many parts", "Attention heads must divide evenly.")
    fitting = max(size for size in (1, 2, 4, 8, 16, 32) if size <= max(1.0, tp) and count % size == 0)
    cause = f"{count:.0f} attention heads cannot be shared evenly by {tp:.0f} GPUs."
    return Advice(
        "The model cannot be cut into so many parts",
        cause,
        ("Use a number of GPUs that divides them; others can serve a second copy.",),
        (f"--tensor-parallel-size {fitting}",),
    )


def too_few_gpus(_start: Start, seen: Sighting) -> Advice:
    gpus, ranks = number(seen.words, "gpus"), number(seen.words, "ranks")
    cause = "vLLM sees fewer GPUs than it should use."
    flags: tuple[str, ...] = ()
    if gpus is not None and ranks is not None:
        cause += f" {gpus:.0f} of {ranks:.0f} are there."
        flags = (f"--tensor-parallel-size {gpus:.0f}",) if gpus >= 1 else ()
    cure = "In a container, give it all of them (`--gpus all`), and see CUDA_VISIBLE_DEVICES."
    return Advice("Too few GPUs", cause, (cure,), flags)


def encoder_cache(start: Start, seen: Sighting) -> Advice:
    item, size = int(seen.words["item"]), int(seen.words["size"])
    cause = (
        "One item must fit into the encoder cache, and it did not. The request is answered with 400. "
        f"The {seen.words['modality']} has {item:,} tokens, the cache {size:,}."
    )
    batched = start.get(Term.BATCHED_TOKENS)
    if batched is not None:
        cause += f" Its size is that of a batch ({batched:,.0f}) or of the largest item that is allowed."
    cures = (
        "Make batches larger.",
        "Or make images smaller before vLLM sees them: the gateway does it (resize.fit, budget.encoder_tokens).",
    )
    flag = f"--max-num-batched-tokens {_next_thousand(item)}"
    return Advice("An image is larger than the encoder cache", cause, cures, (flag,))


def too_many_items(_start: Start, seen: Sighting) -> Advice:
    kind, most = seen.words.get("modality", "image"), seen.words.get("most", "0")
    cause = f"A request has more than {most} {kind}(s), counted over all its messages. It is answered with 400."
    cures = (
        "Raise the limit; the count takes no memory.",
        "Or leave out old images: the gateway does it with images.max_forwarded and history.mode.",
    )
    return Advice(f"Too many {kind}s in one request", cause, cures, (f"--limit-mm-per-prompt '{{\"{kind}\": 16}}'",))


def prompt_too_long(_start: Start, seen: Sighting) -> Advice:
    length, most = number(seen.words, "length"), number(seen.words, "most") or number(seen.words, "context")
    cause = "Text and images together are longer than the context; images count with all their tokens."
    if length is not None and most is not None:
        cause += f" {length:,.0f} tokens of {most:,.0f}."
    cures = (
        "`vlm-gateway estimate` says what each image costs and what would fit.",
        "The gateway leaves out old images in steps (history.mode) and makes them smaller (resize).",
    )
    return Advice("A prompt is longer than the context", cause, cures)


def _next_thousand(tokens: int) -> int:
    """Whole 1,024."""
    return -(-tokens // 1024) * 1024
