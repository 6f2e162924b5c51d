"""What a request will take of memory, in bytes and as a share of what there is: for people, decided by nothing."""

from typing import NamedTuple

from gateway.domain.cost import EngineLimits, RequestCost


class MemoryView(NamedTuple):
    """Bytes, and their share of what there is (None where that is unknown)."""

    bytes: int
    share: float | None

    @property
    def mebibytes(self) -> float:
        return self.bytes / 2**20


def kv_memory(cost: RequestCost, limits: EngineLimits, kv_bytes_per_token: int) -> MemoryView:
    """KV cache of the request; `kv_bytes_per_token` counts all layers of one rank (models/ knows it)."""
    blocks = cost.amounts.kv_blocks
    held = blocks * limits.kv_block_tokens * kv_bytes_per_token // limits.charged_kv_groups
    return MemoryView(held, blocks / limits.kv_blocks if limits.kv_blocks else None)


def encoder_memory(cost: RequestCost, limits: EngineLimits, embedding_bytes: int) -> MemoryView:
    """Encoder output of all its images; `embedding_bytes` is one embedding: width x bytes per number."""
    tokens = sum(image.encoder_tokens for image in cost.images)
    budget = limits.encoder_budget_tokens
    return MemoryView(tokens * embedding_bytes, tokens / budget if budget else None)


def host_memory(cost: RequestCost, decode_bytes: int, limit_bytes: int) -> MemoryView:
    """Memory of the gateway: the body and the largest single image decoded (`decode_bytes`) of `limit_bytes`."""
    held = cost.body_bytes + decode_bytes
    return MemoryView(held, held / limit_bytes)
