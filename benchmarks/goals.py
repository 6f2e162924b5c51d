"""What the project wants to reach, as ratios of figures of one run. The floor is where the work is not done yet."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.scenarios import Figures, ratio

Results = Mapping[str, Mapping[str, Figures]]
HEADER_CHECK = "gateway-header"


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of `subject` divided by that of `peer` in `scenario`, or in `peer_scenario` where that is another one.

    Without a peer the figure is a share already, and is judged as it is. `name` is what a list of targets calls it.
    """

    scenario: str
    figure: str
    peer: str | None
    floor: float
    target: float
    less_is_better: bool = False
    subject: str = "gateway"
    peer_scenario: str | None = None
    name: str = ""

    @property
    def peer_name(self) -> str:
        """The row that is divided by, as a reader names it."""
        if self.peer is None:
            return "-"
        return f"{self.peer} in {self.peer_scenario}" if self.peer_scenario else self.peer

    def reached(self, results: Results) -> float | None:
        """The ratio, or None if one of the two was not measured."""
        ours = self._figure(results, self.scenario, self.subject)
        if self.peer is None:
            return ours
        return ratio(ours, self._figure(results, self.peer_scenario or self.scenario, self.peer))

    def _figure(self, results: Results, scenario: str, row: str) -> float | None:
        figure: float | None = results.get(scenario, {}).get(row, {}).get(self.figure)
        return figure

    def verdict(self, ratio: float) -> str:
        if self._holds(ratio, self.target):
            return "target"
        return "floor" if self._holds(ratio, self.floor) else "below"

    def _holds(self, ratio: float, bound: float) -> bool:
        return ratio <= bound if self.less_is_better else ratio >= bound


PER_CPU = "requests_per_cpu_second"
GOALS = (
    Goal("text", PER_CPU, "litellm", 30, 55),
    Goal("text", PER_CPU, "fastapi+httpx", 7, 12),
    Goal("text", PER_CPU, "haproxy", 0.07, 0.12),
    Goal("text", PER_CPU, "vllm-router", 0.20, 0.33),
    Goal("latency", "added_p50_us", "haproxy", 5, 3.5, less_is_better=True),
    Goal("latency", "added_p50_us", "litellm", 1 / 6, 1 / 10, less_is_better=True),
    Goal("sse_10k", "events_per_cpu_second", "haproxy", 0.20, 0.33),
    Goal("sse_10k", "events_per_cpu_second", "litellm", 9, 15),
    Goal("sse_10k", "event_p99_us", "direct", 10, 2, less_is_better=True),
    Goal("mixed", "event_p99_us", "haproxy", 8, 3.5, less_is_better=True, subject=HEADER_CHECK),
    Goal("mixed", "event_p99_us", "vllm-router", 0.8, 0.35, less_is_better=True, subject=HEADER_CHECK),
    Goal("image_1mb", "mb_per_cpu_second", "haproxy", 0.30, 0.50, subject=HEADER_CHECK),
    Goal("image_1mb", "mb_per_cpu_second", "litellm", 7, 12, subject=HEADER_CHECK),
    Goal("image_20mb", "mb_per_cpu_second", "haproxy", 0.35, 0.60, subject=HEADER_CHECK),
    Goal("image_20mb", "mb_per_cpu_second", "vllm-router", 1.0, 1.5, subject=HEADER_CHECK),
    Goal("refuse", PER_CPU, "haproxy", 0.12, 0.22),
    Goal("refuse", "cpu_us_per_request", "gateway", 0.5, 0.3, less_is_better=True, peer_scenario="text"),
    Goal("refuse_5mb", PER_CPU, "nginx", 0.4, 1.0),
    Goal("refuse_seen", "httpx_seen", None, 100, 100),
    Goal("refuse_seen", "openai_seen", None, 100, 100),
    Goal("memory", "growth_per_budget", None, 1.5, 1.15, less_is_better=True, subject=HEADER_CHECK),
    Goal("memory", "peak_mb", "litellm", 1 / 5, 1 / 12, less_is_better=True, subject=HEADER_CHECK),
    Goal("memory", "peak_mb", "vllm-router", 1 / 5, 1 / 8, less_is_better=True, subject=HEADER_CHECK),
)
