"""Selectors and the few kinds of query that the panels are made of. Text only.

Every selector is narrowed by the dashboard's `job` and `instance`; which of `model` and `upstream` too is said by name.
"""

RATE = "$__rate_interval"
RANGE = "$__range"
_ALWAYS = ("job", "instance")


def of(*variables: str, **labels: str | tuple[str, ...]) -> str:
    """Such as `{job=~"$job",instance=~"$instance",model=~"$model",outcome="finished"}`.

    A tuple of values matches any of them; a value that begins with `!` matches all others.
    """
    narrowed = [f'{name}=~"${name}"' for name in (*_ALWAYS, *variables)]
    return "{" + ",".join([*narrowed, *[_matcher(name, value) for name, value in labels.items()]]) + "}"


def _matcher(name: str, value: str | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f'{name}=~"{"|".join(value)}"'
    return f'{name}!="{value[1:]}"' if value.startswith("!") else f'{name}="{value}"'


def rate(series: str, *by: str) -> str:
    """Per second; summed over all labels but `by`."""
    return f"sum{_by(by)}(rate({series}[{RATE}]))"


def total(series: str, *by: str) -> str:
    """In the time range of the dashboard."""
    return f"sum{_by(by)}(increase({series}[{RANGE}]))"


def total_per_step(series: str, *by: str) -> str:
    """How many within each step of the graph: for what happens seldom."""
    return f"sum{_by(by)}(increase({series}[{RATE}]))"


def summed(series: str, *by: str) -> str:
    """Of a gauge, over all gateways."""
    return f"sum{_by(by)}({series})"


def highest(series: str, *by: str) -> str:
    """Of a gauge, the gateway that has most."""
    return f"max{_by(by)}({series})"


def lowest(series: str, *by: str) -> str:
    return f"min{_by(by)}({series})"


def quantile(share: float, metric: str, *variables: str) -> str:
    """Of a histogram; `metric` is its name without `_bucket`."""
    return f"histogram_quantile({share}, {buckets(metric, *variables)})"


def buckets(metric: str, *variables: str) -> str:
    """Of a histogram, per second, for a heatmap."""
    return rate(f"{metric}_bucket{of(*variables)}", "le")


def ratio(part: str, whole: str) -> str:
    return f"{part} / {whole}"


def only_if_any(query: str) -> str:
    """Without the series that are zero: a label has many values, and few of them occur."""
    return f"{query} > 0"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""
