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


def lost_packets() -> int:
    told = subprocess.run(["iptables", "-nvxL", "INPUT"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"^\s*(\d+).*DROP", told, re.MULTILINE)
    return int(match.group(1)) if match else 0


async def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with (
        tempfile.TemporaryDirectory() as work,
        running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as emulator,
    ):
        async with outside(emulator.base_url, Path(work)) as gateway:
            subprocess.run(["iptables", "-A", "INPUT", *_LOSE], check=True)
            bodies = [chat(f"Number {n}.", stream=True, max_tokens=50, ignore_eos=True) for n in range(STREAMS)]
            answers = await ask_many(gateway, bodies)
            lost = lost_packets()
            subprocess.run(["iptables", "-F"], check=True)
            whole = [each for each in answers if each.content.endswith(b"data: [DONE]\n\n")]
            held = await gateway.held()
    print(json.dumps({"asked": STREAMS, "whole": len(whole), "held": held, "lost_packets": lost}))


if __name__ == "__main__":
    asyncio.run(main())
