"""What is held of which capacity. Conservation lives here and nowhere else: every change is take, grow or give back.

No order and no waiting (queue.py, admission.py), no knowledge of who holds. Hot path: plain lists indexed by Resource.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.quantities import Amounts, Capacity, Resource

_UNLIMITED = 1 << 62
_RESOURCES = tuple(Resource)
_NOTHING_ENFORCED = Capacity()


@dataclass(frozen=True, slots=True)
class HoldingsStatistics:
    """Per resource, in the order of `Resource`; capacity None where it is not enforced. Of the KV blocks held,
    `overlap_blocks` will not be needed at once (unfolding.py).
    """

    capacity: tuple[int | None, ...]
    held: tuple[int, ...]
    overlap_blocks: int = 0

    @property
    def needed_blocks(self) -> int:
        """The most KV blocks that what is held will take at once."""
        return self.held[Resource.KV_BLOCKS] - self.overlap_blocks

    @property
    def overcommit_blocks(self) -> int:
        """KV blocks needed beyond the capacity: answers that outgrew their reservation, or a capacity that fell."""
        capacity = self.capacity[Resource.KV_BLOCKS]
        return 0 if capacity is None else max(0, self.needed_blocks - capacity)


class Holdings:
    """Amounts held of each resource, and its `capacity` (None: not enforced), which only `set_capacity` changes."""

    __slots__ = ("_capacity", "_held", "capacity")

    def __init__(self, capacity: Sequence[int | None] = _NOTHING_ENFORCED) -> None:
        self.capacity = tuple(capacity)
        by_resource = zip(_RESOURCES, self.capacity, strict=True)
        self._capacity = [_UNLIMITED if amount is None else amount for _, amount in by_resource]
        self._held = [0] * len(_RESOURCES)

    @classmethod
    def of(cls, statistics: HoldingsStatistics) -> "Holdings":
        """Holdings that are alike now and go their own way from then on."""
        holdings = cls(statistics.capacity)
        holdings.grow(Amounts(*statistics.held))
        return holdings

    def shortage(self, amounts: Amounts) -> Resource | None:
        """The first resource of which there is too little now; None if all fits.

        What nobody holds is never short: so even an item larger than a whole capacity gets its turn, alone.
        """
        held = self._held
        capacity = self._capacity
        index = 0
        for amount in amounts:
            if amount and held[index] and held[index] + amount > capacity[index]:
                return _RESOURCES[index]
            index += 1  # noqa: SIM113 - enumerate costs a tuple for each resource on the hottest path
        return None

    def held(self, resource: Resource) -> int:
        return self._held[resource]

    def try_reserve(self, amounts: Amounts) -> Resource | None:
        """Take `amounts` if all of it fits (then None), else nothing and say what was short."""
        short = self.shortage(amounts)
        if short is None:
            self.grow(amounts)
        return short

    def grow(self, amounts: Amounts) -> None:
        """Hold more, fitting or not: work that runs cannot be unmade. The excess stops new reservations."""
        held = self._held
        held[0] += amounts[0]
        held[1] += amounts[1]
        held[2] += amounts[2]
        held[3] += amounts[3]
        held[4] += amounts[4]
        held[5] += amounts[5]

    def give_back(self, amounts: Amounts) -> None:
        """Hold less. Raises ValueError, changing nothing, if that is more than is held: someone gave back twice."""
        held = self._held
        left = [
            held[0] - amounts[0],
            held[1] - amounts[1],
            held[2] - amounts[2],
            held[3] - amounts[3],
            held[4] - amounts[4],
            held[5] - amounts[5],
        ]
        if min(left) < 0:
            raise ValueError(f"gives back {amounts} of {Amounts(*held)}")
        self._held = left

    def set_capacity(self, resource: Resource, capacity: int | None) -> None:
        """At any time, and below what is held too: then nothing new fits until enough is given back."""
        self._capacity[resource] = _UNLIMITED if capacity is None else capacity
        self.capacity = tuple(None if amount == _UNLIMITED else amount for amount in self._capacity)

    def statistics(self) -> HoldingsStatistics:
        return HoldingsStatistics(capacity=self.capacity, held=tuple(self._held))

    def whole(self) -> HoldingsStatistics:
        """Of all who hold something there; here these are all."""
        return self.statistics()
