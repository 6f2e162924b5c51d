"""The KV pool: pages, page groups, and the tokens that vLLM prints for them.

Exact arithmetic over a pool's bytes; how large the pool is, is planning.py's. Source: vLLM 0.32
`v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`.
"""

from gateway.domain.memory.dtypes import kv_bytes
from gateway.domain.memory.plan import Flags, KvLayout, TextSpec, Version
from gateway.domain.quantities import ceil_div

GROUP_AWARE_SINCE = Version(0, 20)
"""Before, vLLM printed blocks / groups x block size for models with several page groups; seen in 0.19 and 0.23."""
_TWO_BATCHES_SINCE = Version(0, 24)
"""With asynchronous scheduling a second batch is in flight, whose pages sliding layers keep. Read in 0.32, and not yet
so in 0.23."""


def kv_layout(text: TextSpec, flags: Flags, version: Version, *, is_v0: bool = False) -> KvLayout:
    """V0 had one group and treated every layer as full attention, and so does V1 with its hybrid manager off."""
    layer_bytes = _layer_bytes_per_token(text, flags)
    sliding = None if is_v0 or flags.disable_hybrid_kv_cache_manager else text.sliding
    if sliding is None or not text.full_layers:
        groups, size, local_groups, sliding = 1, text.layers, 0, None
    else:
        size = _group_size(text.full_layers, sliding.local_layers)
        local_groups = ceil_div(sliding.local_layers, size)
        groups = ceil_div(text.full_layers, size) + local_groups
    batches = 2 if version >= _TWO_BATCHES_SINCE else 1
    return KvLayout(
        groups,
        flags.block_size,
        size * layer_bytes * flags.block_size,
        text.layers * layer_bytes,
        local_groups,
        sliding,
        batches * (flags.max_num_batched_tokens or 0),
        version >= GROUP_AWARE_SINCE,
    )


def _layer_bytes_per_token(text: TextSpec, flags: Flags) -> int:
    """Of one layer on one rank. Latent attention keeps one value for keys and values together, whole on every rank."""
    if text.latent_dims is not None:
        return text.latent_dims * kv_bytes(flags)
    heads = max(1, text.kv_heads // flags.tensor_parallel_size)
    return 2 * heads * text.head_dim * kv_bytes(flags)


def _group_size(full: int, local: int) -> int:
    """Layers of a group: as many as the rarer kind has, or the commoner where it is hardly more."""
    fewer, more = sorted((full, local))
    return more if more < 1.5 * fewer else fewer
