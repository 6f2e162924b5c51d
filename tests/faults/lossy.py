"""`unshare --net python -m tests.faults.lossy`: streams through a gateway where every tenth packet is lost.

Run in a network namespace of its own, for it changes the rules of the network that it is in. Prints one JSON object.
"""

import asyncio
import json
import re
import subprocess
import tempfile
from pathlib import Path

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.faults.asking import ask_many
from tests.faults.outside import outside
from tests.support.live_gateway import chat

STREAMS = 30
_LOSE = ["-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.1", "-j", "DROP"]


def system(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def lost_packets() -> int:
    match = re.search(r"^\s*(\d+).*DROP", system("iptables", "-nvxL", "INPUT"), re.MULTILINE)
    return int(match.group(1)) if match else 0


async def main() -> None:
    system("ip", "link", "set", "lo", "up")
    with (
        tempfile.TemporaryDirectory() as work,
        running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as emulator,
    ):
        async with outside(emulator.base_url, Path(work)) as gateway:
            system("iptables", "-A", "INPUT", *_LOSE)
            bodies = [chat(f"Number {n}.", stream=True, max_tokens=50, ignore_eos=True) for n in range(STREAMS)]
            answers = await ask_many(gateway, bodies)
            lost = lost_packets()
            system("iptables", "-F")
            whole = [each for each in answers if each.content.endswith(b"data: [DONE]\n\n")]
            held = await gateway.held()
    print(json.dumps({"asked": STREAMS, "whole": len(whole), "held": held, "lost_packets": lost}))


if __name__ == "__main__":
    asyncio.run(main())
