"""The ladder in a replayed day: the gateway's own rungs, on what a line says of its request.

A log has no body, so a conversation is known by its first picture instead of by all that was said before the first
answer. Requests stay with the model that they asked for: how long another would have taken, no log tells.
"""

from collections.abc import Iterable

from gateway.domain.pressure import PressurePolicy, Rung
from gateway.domain.request import VisionRequest
from gateway.domain.resize import OPT_OUT
from gateway.ledger.gate import Gate
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.ladder import refuse_under_pressure, treat_conversation, treat_images
from gateway.pipeline.relief import Relief
from gateway.replay.lines import Line
from gateway.replay.virtual_time import VirtualTime

_ENGINE = "replayed"


class LadderReplay:
    """One engine's ladder in virtual time."""

    def __init__(self, policy: PressurePolicy, gate: Gate, time: VirtualTime) -> None:
        self._relief = Relief(policy, {_ENGINE: gate}, None, "", time, is_told=False)
        self._policy = policy
        self._gate = gate

    def meet(self, exchange: Exchange, request: VisionRequest, line: Line) -> VisionRequest:
        """The request with fewer tokens to answer, where it gets fewer. Raises GatewayError where it is refused."""
        relieved = exchange.relieved = self._relief.look(_ENGINE, on_images=bool(request.images))
        refuse_under_pressure(relieved, exchange, self._gate)
        if request.images and Rung.HISTORY in self._policy.bands:
            treat_conversation(relieved, exchange, line.digest(0))
        if Rung.MAX_TOKENS in relieved.in_force and request.wants_output:
            most = self._policy.max_tokens
            return request._replace(max_tokens=min(request.max_tokens or most, most))
        return request

    def shrink(self, exchange: Exchange, request: VisionRequest, line: Line, ordinals: Iterable[int]) -> None:
        """Decides it for the pictures that stay."""
        assert exchange.relieved is not None, "it has met the ladder"
        if Rung.SHRINK in self._policy.bands and exchange.resize_preset != OPT_OUT:
            treat_images(exchange.relieved, exchange, request, {each: line.digest(each) for each in ordinals})
