"""What `check` asks the servers itself: the calibration that a gateway with these settings would do."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from gateway.cli.options import errors
from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.geometry import Size
from gateway.models.served import ModelTable
from gateway.pipeline.calibration import asked_models, is_idle, known_family, measure, new_picture
from gateway.policies import UpstreamPolicy
from gateway.upstream.counting import Counter, Way
from gateway.upstream.state import UpstreamState
from gateway.upstream.tls import UpstreamTls

_NOT_IDLE = "the server's metrics do not show that it is idle, and only then it is asked"


async def calibrate(
    upstream: UpstreamPolicy,
    table: ModelTable,
    state: UpstreamState,
    ways: Sequence[Way],
    tls: UpstreamTls | None = None,
) -> dict[str, Calibration]:
    """By served name; none where there are no `ways` or no server."""
    names = asked_models(state) if ways and state.is_up else ()
    if not is_idle(state):
        return dict.fromkeys(names, Calibration(CalibrationState.WAITING, trouble=_NOT_IDLE))
    counter = Counter(upstream.url, upstream.key, tls=tls)
    try:
        return {
            name: await measure(partial(_ask, counter, name), known_family(table.served(name)), ways) for name in names
        }
    finally:
        await counter.close()


async def _ask(counter: Counter, model: str, way: Way, size: Size | None) -> int:
    return await counter.count(way, model, None if size is None else await new_picture(size))


def print_calibrations(console: Console, results: Mapping[str, Calibration], families: Mapping[str, str]) -> None:
    """`families` are the names of those that the models are priced by. What is wrong is said among the errors too."""
    for name, result in results.items():
        sentence = f"Calibration of {name}: {result.sentence(families[name])}."
        console.print(sentence, markup=False, soft_wrap=True)
        if result.state is CalibrationState.DISAGREES:
            errors.print(f"WRONG PRICES. {sentence}", markup=False)


def calibration_json(result: Calibration, family: str) -> dict[str, Any]:
    """With every picture: its size, what was predicted (least and most) and what was measured."""
    return {
        "state": result.state.value,
        "way": result.way or None,
        "text": result.sentence(family),
        "candidates": list(result.candidates),
        "pictures": [
            {"size": str(each.size), "predicted": each.predicted, "measured": each.measured} for each in result.compared
        ],
    }
