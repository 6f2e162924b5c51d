"""The emulated server that everybody is measured before: how large it is, and what a request takes of it.

Its times are slept, not computed, so that one core carries a server of more than thirty requests a second: an engine
step takes 20 ms and a few microseconds a token, so some fifty steps a second serve everybody.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.vision import FAMILIES

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"  # a name that tells its family, served as its authors ship it
FAMILY = FAMILIES["qwen2_5_vl"]
MARKER_TOKENS = 2  # before and after each image
TEMPLATE_TOKENS = 60


@dataclass(frozen=True, slots=True)
class ServerSize:
    """One emulated server. `step_factor` scales the emulator's times per token, `step_seconds` is what a step takes
    before any token; both and `pixels_per_second` (of the one preprocessing thread) are flags of `emulate`.
    """

    name: str
    seats: int = 64
    kv_blocks: int = 16_384
    batched_tokens: int = 4_096
    step_seconds: float = 0.02
    step_factor: float = 0.1
    pixels_per_second: float = 80e6

    @property
    def in_flight(self) -> int:
        """Where a careful operator would set a count limit: the seats, and half as many that wait."""
        return self.seats + self.seats // 2

    def command(self, port: int, queued_requests: int | None = None) -> list[str]:
        """`queued_requests` is vLLM's own limit, `--max-num-queued-reqs`."""
        flags = {
            "--port": port,
            "--model": MODEL,
            "--max-num-seqs": self.seats,
            "--num-gpu-blocks": self.kv_blocks,
            "--max-num-batched-tokens": self.batched_tokens,
            "--step-seconds": self.step_seconds,
            "--step-cost": self.step_factor,
            "--preprocess-pixels-per-second": self.pixels_per_second,
        }
        if queued_requests is not None:
            flags["--max-num-queued-reqs"] = queued_requests
        program = Path(sys.executable).parent / "vlm-gateway"
        return [str(program), "emulate", *(str(word) for flag in flags.items() for word in flag)]

    def work_seconds(self, text_tokens: int, images: Sequence[tuple[int, int]], output_tokens: int) -> float:
        """Seconds of the engine's time that a request takes while all seats are taken.

        The preprocessing thread works beside the engine and is the faster of the two, so it counts for nothing; nor is
        anything taken off for caches: work is a property of the request alone.
        """
        cost = self._step_cost()
        visual = sum(FAMILY.visual_tokens(*size) for size in images)
        prompt = TEMPLATE_TOKENS + text_tokens + visual + MARKER_TOKENS * len(images)
        per_output = cost.decode_sequence_seconds + self.step_seconds / self.seats
        return prompt * cost.prefill_token_seconds + visual * cost.encoder_token_seconds + output_tokens * per_output

    def _step_cost(self) -> StepCost:
        return EmulatorConfig().step_cost.scaled(self.step_factor)


MIXED = ServerSize("mixed")
# Sixty-four answers of this scenario's kind at their full length need one and a half times these blocks.
SMALL_KV = ServerSize("small KV", kv_blocks=1_067)
# Slow, so that ten times its capacity is a rate that this machine can send.
SLOW = ServerSize("slow", seats=24, step_seconds=0.05)
QUICK = ServerSize("quick", seats=8, step_seconds=0.005)
