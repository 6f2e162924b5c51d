"""Cards by name, with the memory that torch sees: less than what they are sold with, and that is what vLLM shares out.

Totals come from start-up logs, from nvidia-smi where no log had one; a card sold in several sizes has a row for each.
The first row that matches counts.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from gateway.domain.memory.plan import Gpu


class Row(NamedTuple):
    """`names` is a pattern searched in the lower-case name of a card without blanks and dashes. `capability` is CUDA's
    where it is below 8.9, which has fp8 (vLLM 0.32 `platforms/cuda.py`). The capabilities are recalled, not read from a
    source: no card was there to ask, so what is said of them is a doubt and never a refusal.
    """

    title: str
    names: str
    total_gib: float
    capability: float | None = None


CARDS: tuple[Row, ...] = (
    Row("A100-80GB", r"a100(?!0).*80", 79.15, 8.0),
    Row("A100-40GB", r"a100(?!0)", 39.38, 8.0),
    Row("H100-80GB", r"h100(?!.*(94|96|nvl))", 79.19),
    Row("H100-NVL", r"h100.*(94|nvl)", 93.1),
    Row("GH200-96GB", r"gh200|h100.*96", 94.5),
    Row("H200", r"h200", 139.8),
    Row("H20", r"h20(?!0)", 95.0),
    Row("B200", r"(?<!g)b200", 178.4),
    Row("MI300X", r"mi300(?!a)", 191.7),
    Row("L40S", r"l40", 44.4),
    Row("L20", r"l20", 44.5),
    Row("L4", r"l4", 22.03),
    Row("T4", r"t4(?!\d)|t416g", 14.56, 7.5),
    Row("V100-32GB", r"v100.*32", 31.7, 7.0),
    Row("V100-16GB", r"v100", 15.7, 7.0),
    Row("A10G", r"a10g", 22.0, 8.6),
    Row("A10", r"a10(?!0)", 22.09, 8.6),
    Row("A40", r"a40(?!00)", 44.4, 8.6),
    Row("RTX A6000", r"a6000", 47.5, 8.6),
    Row("RTX 6000 Ada", r"rtx6000ada", 47.5),
    Row("RTX PRO 6000", r"pro6000", 94.9),
    Row("RTX A5000", r"a5000", 23.55, 8.6),
    Row("RTX 5090", r"5090", 31.4),
    Row("RTX 4090", r"4090", 23.6),
    Row("RTX 3090", r"3090", 23.58, 8.6),
    Row("RTX 5070 Ti", r"5070ti", 15.47),
    Row("RTX 4060 Ti 16GB", r"4060ti", 15.5),
    Row("RX 7900 XTX", r"7900xtx", 23.98),
    Row("RX 7800 XT", r"7800xt", 15.98),
)

_LEAST_SHARE = 0.88
"""Of what a card is sold with torch sees 0.91 (T4) to 0.998 (MI300X)."""
_FP8_WEIGHTS_FROM = 7.5
"""From there on vLLM unpacks them (Marlin; vLLM 0.32 `quantization/fp8.py`); a KV cache in fp8 wants 8.9."""
_KERNEL_LESS = re.compile(r"\brx ?\d{4}|radeon", re.IGNORECASE)
"""Consumer cards of AMD: vLLM 0.13 had no attention kernel for vision towers on them."""
_NOT_CUDA_OR_ROCM = re.compile(r"ascend|kunlun|xpu|tpu|gaudi|neuron|unified memory|jetson|gb10", re.IGNORECASE)


def known_card(name: str) -> Row | None:
    """The card of that name; None: the name is not known, or tells a size or a kind that no row has."""
    plain = re.sub(r"[\s_-]+", "", name.lower())
    row = next((row for row in CARDS if re.search(row.names, plain)), None)
    if row is None or "laptop" in plain or "mobile" in plain:
        return None
    return row if all(_is_sold_as(row, gigabytes) for gigabytes in _told_sizes(name)) else None


def known_total_gib(name: str) -> float | None:
    """What torch sees of it."""
    row = known_card(name)
    return row.total_gib if row else None


def recalled_capability(name: str) -> float | None:
    """CUDA's, where it is below the one that has fp8."""
    row = known_card(name)
    return row.capability if row else None


def fp8_doubt(name: str, *, is_kv: bool) -> str | None:
    """Why fp8 may not start on that card, of the KV cache or of the weights; None: nothing speaks against it."""
    capability = recalled_capability(name)
    if capability is None or (not is_kv and capability >= _FP8_WEIGHTS_FROM):
        return None
    what = "a KV cache in fp8" if is_kv else "weights in fp8"
    return (
        f"{name} has CUDA capability {capability:g}, with which vLLM may refuse {what}: try it before you count on it."
    )


def assumed_size(name: str) -> str | None:
    """The title of the card that was taken where its name leaves open which of several sizes it has."""
    row = known_card(name)
    if row is None or not row.title.endswith("GB"):
        return None
    size = next(iter(_told_sizes(row.title)))
    return None if str(size) in name else row.title


def _told_sizes(name: str) -> list[int]:
    """In GB. The 480 of a GH200 are its processor's."""
    return [int(size) for size in re.findall(r"(\d+) ?gi?b\b", name.lower()) if size != "480"]


def _is_sold_as(row: Row, gigabytes: int) -> bool:
    return _LEAST_SHARE * gigabytes <= row.total_gib <= gigabytes


def is_supported(name: str) -> bool:
    """Other accelerators, and memory shared with the host, account in other ways."""
    return not _NOT_CUDA_OR_ROCM.search(name)


def gpu_of(name: str, total_gib: float, foreign_gib: float = 0.0, assumed: str | None = None) -> Gpu:
    return Gpu(name, total_gib, foreign_gib, has_tower_kernel=not _KERNEL_LESS.search(name), assumed=assumed)


def titles() -> Mapping[str, float]:
    """Every card that is known, with its memory in GiB."""
    return {row.title: row.total_gib for row in CARDS}
