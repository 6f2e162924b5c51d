"""What holds where a flag was not given: the defaults of `vllm serve`, by version and card.

Source: vLLM 0.32 `engine/arg_utils.py` (`get_batch_defaults`); older rows from its pull requests 12369, 17073 and the
tag 0.28.0.
"""

from dataclasses import replace
from typing import NamedTuple

from gateway.domain.memory.plan import Flags, Gpu, ModelSpec, Version


class NotPlannableError(ValueError):
    """No plan can be made; the text says what is missing or out of scope."""


AUTO_LENGTH = -1
"""`--max-model-len auto`: as long as the pool allows."""

_UTILISATION_SINCE = Version(0, 21)
_LARGE_TIER_BY_SIZE_SINCE = Version(0, 8, 5)
_LARGEST_TIER_SINCE = Version(0, 28)


class Batch(NamedTuple):
    sequences: int
    tokens: int


def default_utilisation(version: Version) -> float:
    return 0.92 if version >= _UTILISATION_SINCE else 0.9


def default_batch(gpu: Gpu, version: Version) -> Batch:
    """`--max-num-seqs` and `--max-num-batched-tokens` of a server."""
    if gpu.total_gib >= 160 and version >= _LARGEST_TIER_SINCE:
        return Batch(1024, 16_384)
    card = gpu.name.lower()
    is_large = gpu.total_gib >= 70 and "a100" not in card
    if is_large and (version >= _LARGE_TIER_BY_SIZE_SINCE or "h100" in card or "h200" in card):
        return Batch(1024, 8192)
    # 0.8.0 to 0.8.1 gave every card 1024 sequences, which is what vLLM's issue 15105 ran into.
    return Batch(1024 if Version(0, 8) <= version < Version(0, 8, 2) else 256, 2048)


def settled(flags: Flags, model: ModelSpec, gpu: Gpu, version: Version) -> Flags:
    """`flags` with every default filled in. Raises NotPlannableError where the context is not known."""
    length = flags.max_model_len
    if length is None or length == AUTO_LENGTH:
        length = model.text.max_positions
    if length is None:
        raise NotPlannableError(f"the context of {model.name} is not known: give --max-model-len")
    batch = default_batch(gpu, version)
    sequences = flags.max_num_seqs or batch.sequences
    tokens = flags.max_num_batched_tokens or min(batch.tokens, sequences * length)
    return replace(
        flags,
        gpu_memory_utilization=flags.gpu_memory_utilization or default_utilisation(version),
        max_model_len=length,
        max_num_seqs=min(sequences, tokens),
        max_num_batched_tokens=tokens,
    )
