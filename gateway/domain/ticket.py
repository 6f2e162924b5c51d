"""One request at admission: what it takes, how urgent it is, whose it is."""

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.domain.cost import OutputGrowth, RequestCost
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts

FlowKey = tuple[str, bool]
"""A tenant, and whether the request has images."""


class Newcomer(NamedTuple):
    """What is known of a request at the door, before its body is read: the fields of its `Ticket` to be."""

    body_bytes: int = 0
    is_return: bool = False
    priority: Priority = Priority.DEFAULT
    tenant: str = ""
    weight: float = 1.0


@dataclass(slots=True, eq=False)
class Ticket:
    """One request at admission. Compared by identity: it is the request.

    Times are seconds on the caller's clock. `is_return` says that the client comes back after a refusal; `growth`
    what its answer costs beyond its reservation. A turn costs `cost_tokens` (prompt and reserved answers, at least 1)
    divided by the tenant's `weight` (above 0).
    """

    amounts: Amounts
    arrived: float
    deadline: float
    body_bytes: int = 0
    cost_tokens: int = 1
    growth: OutputGrowth = field(default_factory=OutputGrowth)
    is_return: bool = False
    priority: Priority = Priority.DEFAULT
    tenant: str = ""
    weight: float = 1.0

    @classmethod
    def of(
        cls,
        cost: RequestCost,
        arrived: float,
        wait_seconds: float,
        *,
        is_return: bool = False,
        priority: Priority = Priority.DEFAULT,
        tenant: str = "",
        weight: float = 1.0,
    ) -> "Ticket":
        return cls(
            amounts=cost.amounts,
            arrived=arrived,
            deadline=arrived + wait_seconds,
            body_bytes=cost.body_bytes,
            # An empty prompt takes a place too: free turns would go on for ever.
            cost_tokens=max(1, cost.prompt_tokens.expected + cost.output_tokens * cost.answers),
            growth=cost.growth,
            is_return=is_return,
            priority=priority,
            tenant=tenant,
            weight=weight,
        )

    @property
    def is_image(self) -> bool:
        """It has images that the engine has yet to see."""
        return self.amounts.preprocess_pixels > 0

    @property
    def flow(self) -> FlowKey:
        return self.tenant, self.is_image
