"""Who stands between the clients and the server, started as the proxy benchmark starts them.

Two arms are the server itself: bare, and with vLLM's own limit. Limits that an operator must choose are set for them as
a careful one would, who knows the server's seats; the gateway is told the service level and nothing of the server.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.overload.upstream import ServerSize
from benchmarks.overload.visit import Slo
from benchmarks.peers import PEERS, ROOT, Launch, Peer, Setup, gateway

OURS = "gateway"
SHRINKING = "gateway-ladder"


@dataclass(frozen=True, slots=True)
class Arm:
    """One row of the tables. `peer_for` makes what is started in front of a server of that size, under that level.

    `limits_itself`: the server gets a limit of its own. `is_special`: only for cells that name it.
    """

    name: str
    peer_for: Callable[[ServerSize, Slo], Peer]
    limits_itself: bool = False
    is_ours: bool = False
    is_special: bool = False


def fixed(peer: Peer) -> Arm:
    """A peer that is the same whatever it stands before."""
    return Arm(peer.name, lambda size, slo: peer, is_ours=peer.is_ours)  # noqa: ARG005


def _semaphore(size: ServerSize, _: Slo) -> Peer:
    def launch(setup: Setup) -> Launch:
        limits = {"LIMIT": str(size.seats), "QUEUE": str(size.in_flight - size.seats)}
        program = str(ROOT / "benchmarks" / "proxies" / "semaphore.py")
        return Launch([sys.executable, program], {"UPSTREAM": setup.upstream, "PORT": str(setup.port), **limits})

    return Peer("semaphore", launch)


def _gateway(_: ServerSize, slo: Slo) -> Peer:
    return _gateway_with(OURS, slo)


def _shrinking_gateway(_: ServerSize, slo: Slo) -> Peer:
    return _gateway_with(SHRINKING, slo, GATEWAY_PRESSURE__SHRINK="on")


def _gateway_with(name: str, slo: Slo, **settings: str) -> Peer:
    level = {
        "GATEWAY_SLO__FIRST_TOKEN_SECONDS": str(slo.first_token_seconds),
        "GATEWAY_SLO__TOTAL_SECONDS": str(slo.total_seconds),
    }
    return Peer(name, gateway(**level, **settings), ready_path="/readyz", is_ours=True)


ARMS = {
    arm.name: arm
    for arm in (
        fixed(PEERS["direct"]),
        Arm("native", lambda size, slo: PEERS["direct"], limits_itself=True),  # noqa: ARG005
        Arm("semaphore", _semaphore),
        fixed(PEERS["litellm"]),
        fixed(PEERS["vllm-router"]),
        Arm(OURS, _gateway, is_ours=True),
        Arm(SHRINKING, _shrinking_gateway, is_ours=True, is_special=True),
    )
}
