"""What the two servers' /metrics say, before and after: the demo's numbers that no single answer carries."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """All samples of both pages at one moment."""

    samples: Mapping[tuple[str, Labels], float]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name with those labels, whatever their other labels. 0 where there are none.

        For gauges with one sample it is that sample.
        """
        wanted = set(labels.items())
        return sum(value for (found, own), value in self.samples.items() if found == name and wanted <= set(own))

    def since(self, earlier: "Reading", name: str, **labels: str) -> float:
        """By how much a counter has grown."""
        return self.sum(name, **labels) - earlier.sum(name, **labels)


class Meter:
    """Reads both pages."""

    def __init__(self, client: httpx.AsyncClient, urls: tuple[str, ...]) -> None:
        self._client = client
        self._urls = urls

    async def read(self) -> Reading:
        samples: dict[tuple[str, Labels], float] = {}
        for url in self._urls:
            page = (await self._client.get(f"{url}/metrics")).raise_for_status().text
            for family in text_string_to_metric_families(page):
                samples |= {(s.name, tuple(sorted(s.labels.items()))): s.value for s in family.samples}
        return Reading(samples)
