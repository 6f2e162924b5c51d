"""What a server's own counts of a few small pictures tell of the arithmetic that prices its images. Pure.

A picture's tokens are those of a prompt with it less those of the same prompt without it, so that text, system prompt
and template cancel; what the template writes around a picture stays, as it does in the prices (ImageTokens.markers).
How the counts are got is others' business (pipeline/calibration.py), and so is what follows from them for a request.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError, VisionFamily
from gateway.domain.vision.checkpoints import CHECKPOINTS
from gateway.domain.vision.measured import Measured
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.registry import resolve
from gateway.domain.vision.sources import Number
from gateway.domain.vision.written import written_around

PICTURES = (
    Size(64, 64),  # below every minimum of pixels: what is spent on it is the minimum
    Size(98, 42),
    Size(128, 96),  # grids of tiles follow the shape, not the size
    Size(300, 200),  # between two units of 28 and of 32, so it tells these apart
    Size(150, 300),
    Size(500, 333),
    Size(640, 480),
    Size(1080, 1080),  # above the greatest areas that processor classes assume where a checkpoint's own is not read
)
"""The pictures that are asked for, the cheap ones first. All together have less than 2 megapixels."""

MOST_COMPLETION_TOKENS = 1024
"""Prompt tokens that all completions of one calibration may cost the engine, but for the first picture, which is sent
whatever it costs."""

_MOST_WRITTEN = 8
"""Tokens that a template may write around each picture beyond those that its family is known for: a line break, a
number."""
_NOT_EXPANDED = 32
"""A server that counts a picture as it stands in the template, not as the engine sees it, counts fewer, always the
same. So does Llama 3.2 Vision, whose pictures are no part of the prompt, and no other family."""
_NARROW = 2
"""Bounds no wider than this are as good as exact: a token may melt into its neighbour."""
_LIKELY = 3
_LEVEL_SHARE = 0.8
"""Pictures that a maximum of pixels cuts cost no less than so much of the dearest of them."""
_ABOVE_MINIMUM = 1.5
"""A picture that costs so many times the cheapest was not enlarged to a minimum of pixels: what it costs more than
predicted, larger ones do too."""
_COMMON_SIDES = (28, 100, 333, 640, 1024, 1500, 2000)
_COMMON_SIZES = tuple(Size(width, height) for width in _COMMON_SIDES for height in _COMMON_SIDES)
_RARE_SIZES = tuple(
    Size(*sides) for sides in ((9000, 300), (3000, 2000), (3400, 3400), (3550, 3550), (5000, 4000), (8000, 6000))
)


class Range(NamedTuple):
    """Prompt tokens of one picture, least and most."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"


class Answer(NamedTuple):
    """What the server made of a picture; `tokens` None: it refused it."""

    size: Size
    tokens: int | None


class Compared(NamedTuple):
    """A picture, what was predicted for it (None: that it is refused), and what was measured."""

    size: Size
    predicted: Range | None
    measured: int | None

    @property
    def agrees(self) -> bool:
        if self.predicted is None or self.measured is None:
            return self.predicted is None and self.measured is None
        return self.predicted.least <= self.measured <= self.predicted.most

    def __str__(self) -> str:
        measured = "refused" if self.measured is None else self.measured
        return f"{self.size}: predicted {self.predicted or 'refused'}, measured {measured}"


class CalibrationState(StrEnum):
    """What came of it; also the label of a metric."""

    WAITING = "waiting"
    """Nothing yet: the server has not been idle, or was not reached."""
    UNANSWERED = "unanswered"
    """The server gave no counts."""
    AGREES = "agrees"
    DISAGREES = "disagrees"
    FOUND = "found"
    """The family was not known, and one arithmetic fits."""
    SEVERAL = "several"
    """It was not known, and more than one fits."""
    UNKNOWN = "unknown"
    """It was not known, and none fits."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result for one model. `way` is how it was asked.

    `compared` is against the family that the model was priced by, or for `found` that one. `candidates` are those whose
    arithmetic fits, or for `unknown` those that come nearest. `written` tokens stand around each picture beyond what
    its family is known for. `family` takes the place of what prices the model now; None: it stays. `most_tokens`: the
    family is right but for large pictures, of which none costs more than so many prompt tokens.
    """

    state: CalibrationState
    way: str = ""
    compared: tuple[Compared, ...] = ()
    candidates: tuple[str, ...] = ()
    written: int = 0
    most_tokens: int | None = None
    family: VisionFamily | None = None
    numbers: tuple[Number, ...] = ()
    trouble: str | None = None

    @property
    def disagreeing(self) -> tuple[Compared, ...]:
        is_wrong = self.state is CalibrationState.DISAGREES
        return tuple(each for each in self.compared if is_wrong and not each.agrees)

    def sentence(self, family: str) -> str:
        """For people; `family` is the name of the one that the model was priced by."""
        pictures, names = len(self.compared), ", ".join(self.candidates)
        text = f"no family fits what {pictures} pictures cost{f'; nearest: {names}' if names else ''}"
        match self.state:
            case CalibrationState.WAITING:
                text = self.trouble or "not calibrated yet"
            case CalibrationState.UNANSWERED:
                text = f"not calibrated: {self.trouble}"
            case CalibrationState.AGREES:
                more = f", with {self.written:+d} tokens that the template writes around each" if self.written else ""
                text = f"{family} agrees with the server on all of {pictures} pictures{more}"
            case CalibrationState.DISAGREES:
                wrong = "; ".join(map(str, self.disagreeing))
                fits = f"the server's counts fit {names}" if names else "no family fits the server's counts"
                if self.most_tokens is not None:
                    fits = f"as if the server had a smaller maximum of pixels, about {self.most_tokens} tokens"
                count = f"{len(self.disagreeing)} of {pictures} pictures"
                text = f"{family} DISAGREES with the server on {count} ({wrong}); {fits}"
            case CalibrationState.FOUND:
                text = f"its family was found by {pictures} pictures: they cost as with {names}"
            case CalibrationState.SEVERAL:
                text = f"its family is one of {names}: all of them fit {pictures} pictures"
        return text


class Hypothesis(NamedTuple):
    """A published checkpoint's arithmetic, with so many tokens `written` around each picture beyond it."""

    title: str
    family: VisionFamily
    numbers: tuple[Number, ...]
    written: int = 0

    def __str__(self) -> str:
        return f"{self.family.name} ({self.title})"


class Fit(NamedTuple):
    """How well predictions meet answers. `width` is that of the widest bounds."""

    agreeing: int
    is_whole: bool
    written: int
    width: int

    @property
    def is_strong(self) -> bool:
        return self.is_whole and self.written == 0 and self.width <= _NARROW


@cache
def published() -> tuple[Hypothesis, ...]:
    """All families, with the numbers of each checkpoint that is known."""
    found = [(each.title, resolve(each.family, checkpoint=each)) for each in CHECKPOINTS]
    return tuple(Hypothesis(title, each.family, each.numbers) for title, each in found)


def predicted(family: VisionFamily, size: Size) -> Range | None:
    """What an image of that size costs in the prompt; None where the family refuses it."""
    try:
        tokens = family.tokens(size)
    except UnservableImageError:
        return None
    return Range(tokens.least_prompt, tokens.prompt)


@cache
def _of_published() -> tuple[tuple[Range | None, ...], ...]:
    """What each of the published checkpoints predicts for each of the pictures."""
    return tuple(tuple(predicted(each.family, size) for size in PICTURES) for each in published())


def expands_images(answers: Sequence[Answer]) -> bool:
    """Whether the counts are those of the engine, and not of a placeholder in the template."""
    counts = {answer.tokens for answer in answers if answer.tokens is not None}
    return len(counts) > 1 or any(count >= _NOT_EXPANDED for count in counts)


def next_picture(family: VisionFamily | None, answers: Sequence[Answer], left_tokens: int | None) -> Size | None:
    """Which picture to ask for after these `answers`, if another one; `family` is what the model is priced by, if that
    is known. `left_tokens` may still be spent; None: pictures cost the engine nothing.
    """
    asked = {answer.size for answer in answers}
    for size in PICTURES:
        if size in asked:
            continue
        if left_tokens is None or not answers:
            return size
        if _most_expected(family, size, answers) <= left_tokens:
            return size
    return None


def _most_expected(family: VisionFamily | None, size: Size, answers: Sequence[Answer]) -> int:
    """The most that a picture costs by all that fits so far, or else by what the others cost."""
    families = [each.family for each in fitting(answers)]
    if family is not None and fit(_predictions(family, answers), answers, family.markers).is_whole:
        families.append(family)
    costs = (predicted(each, size) for each in families or [_bounds(answers)])
    return max((cost.most for cost in costs if cost is not None), default=0)


def judge(family: VisionFamily | None, answers: Sequence[Answer], way: str = "") -> Calibration:
    """What the answers say of a model that is priced by `family`; None: nobody knows its family."""
    if family is None:
        return _identified(answers, way)
    predictions = _predictions(family, answers)
    own = fit(predictions, answers, family.markers)
    compared = _compared(predictions, answers)
    if own.is_whole:
        bounds = written_around(family, own.written) if own.written else None
        return Calibration(CalibrationState.AGREES, way, compared, written=own.written, family=bounds)
    candidates = fitting(answers)
    if not candidates and (most := _maximum(compared)) is not None:
        return Calibration(CalibrationState.DISAGREES, way, compared, most_tokens=most)
    names = tuple(str(each) for each in candidates)
    fits = _distinct(each.family for each in candidates)
    doubted = OneOf(family.name, (family, *fits), fits) if fits else _doubted(family, compared, answers)
    return Calibration(CalibrationState.DISAGREES, way, compared, names, family=doubted)


def _identified(answers: Sequence[Answer], way: str) -> Calibration:
    compared = _compared([None] * len(answers), answers)
    candidates = fitting(answers)
    if not candidates:
        return Calibration(CalibrationState.UNKNOWN, way, compared, tuple(_nearest(answers)), family=_bounds(answers))
    names, first = tuple(str(each) for each in candidates), candidates[0]
    families = _distinct(each.family for each in candidates)
    if len({_signature(family, _COMMON_SIZES) for family in families}) > 1:
        bounds = OneOf(" or ".join(dict.fromkeys(each.family.name for each in candidates)), families, families)
        return Calibration(CalibrationState.SEVERAL, way, compared, names, family=bounds)
    predictions = _predictions(first.family, answers)
    # Beyond what is common they may differ (in their greatest area), and there the price is a bound.
    return Calibration(
        CalibrationState.FOUND,
        way,
        _compared(predictions, answers),
        names,
        written=first.written,
        family=first.family if len(families) == 1 else OneOf(first.family.name, families, families),
        numbers=first.numbers,
    )


def _bounds(answers: Sequence[Answer]) -> Measured:
    counted = [(answer.size.pixels, answer.tokens) for answer in answers if answer.tokens is not None]
    most = max((tokens for _, tokens in counted), default=1)
    if len({tokens for _, tokens in counted}) == 1 < len(answers):
        return Measured("unknown", most, None)
    return Measured("unknown", _of_any_shape(most), max((pixels for pixels, _ in counted), default=1))


def _of_any_shape(tokens: int) -> int:
    """The most that pictures of an area cost of which a square costs `tokens`: its sides were rounded to whole units,
    and another shape may leave nothing over. The next square has a row and a column more.
    """
    return tokens + 2 * math.isqrt(tokens) + 1


def _maximum(compared: Sequence[Compared]) -> int | None:
    """The most that a picture costs where the largest alone cost less than predicted, all about the same, and all
    others agree.
    """
    cut = [each for each in compared if not each.agrees]
    pairs = [(each.predicted, each.measured) for each in cut]
    known = [(cost.least, tokens) for cost, tokens in pairs if cost is not None and tokens is not None]
    agreeing = [each.predicted.most for each in compared if each.agrees and each.predicted is not None]
    if len(known) < len(cut) or not agreeing:
        return None
    measured = [tokens for _, tokens in known]
    most = max(measured)
    is_level = min(measured) >= _LEVEL_SHARE * most
    is_cut = is_level and max(agreeing) <= most and all(tokens < least for least, tokens in known)
    return _of_any_shape(most) if is_cut else None


def _doubted(family: VisionFamily, compared: Sequence[Compared], answers: Sequence[Answer]) -> OneOf:
    """Bounds for a model whose family was named and is wrong, where none fits: at most what that family says, as many
    times as any picture cost more, and no less than what was measured lets expect.
    """
    least = min((each.measured for each in compared if each.measured is not None), default=0)
    ratios = [
        each.measured / each.predicted.most
        for each in compared
        if each.predicted is not None and each.measured is not None and each.measured > _ABOVE_MINIMUM * least
    ]
    raised = OneOf(family.name, (family,), (), max([1.0, *ratios]))
    return OneOf(family.name, (raised, _bounds(answers)), ())


def fitting(answers: Sequence[Answer]) -> tuple[Hypothesis, ...]:
    """The published checkpoints whose arithmetic gives all the answers. Where some give them exactly, not those whose
    bounds merely contain them, nor those that need a template which writes more than theirs.
    """
    fits = [(_with_written(each, result.written), result) for each, result in _all_fits(answers) if result.is_whole]
    strong = [each for each, result in fits if result.is_strong]
    return tuple(strong or [each for each, _ in fits])


def _with_written(hypothesis: Hypothesis, written: int) -> Hypothesis:
    return hypothesis._replace(family=written_around(hypothesis.family, written), written=written)


def _nearest(answers: Sequence[Answer]) -> Iterator[str]:
    """Those that give most of the answers, if they give half of them."""
    ranked = sorted(_all_fits(answers), key=lambda pair: -pair[1].agreeing)
    yield from (str(each) for each, result in ranked[:_LIKELY] if 2 * result.agreeing >= len(answers))


def _all_fits(answers: Sequence[Answer]) -> Iterable[tuple[Hypothesis, Fit]]:
    places = [PICTURES.index(answer.size) for answer in answers]
    for each, predictions in zip(published(), _of_published(), strict=True):
        yield each, fit([predictions[place] for place in places], answers, each.family.markers)


def fit(predictions: Sequence[Range | None], answers: Sequence[Answer], markers: int) -> Fit:
    """`markers` are as many as the template may leave out of those that the family counts."""
    compared = _compared(predictions, answers)
    agreeing = sum(each.agrees for each in compared)
    width = max((cost.most - cost.least for cost in predictions if cost is not None), default=0)
    if agreeing == len(compared):
        return Fit(agreeing, is_whole=True, written=0, width=width)
    written = _written(compared, markers)
    return Fit(agreeing, is_whole=written is not None, written=written or 0, width=width)


def _compared(predictions: Sequence[Range | None], answers: Sequence[Answer]) -> tuple[Compared, ...]:
    return tuple(Compared(answer.size, cost, answer.tokens) for cost, answer in zip(predictions, answers, strict=True))


def _written(compared: Sequence[Compared], markers: int) -> int | None:
    """By how many tokens all pictures differ alike, where a template can be the reason. With a family whose pictures
    all cost the same nothing could be told from that.
    """
    pairs = [(each.predicted, each.measured) for each in compared]
    known = [(cost, tokens) for cost, tokens in pairs if cost is not None and tokens is not None]
    refused_alike = all((cost is None) == (tokens is None) for cost, tokens in pairs)
    differences = {tokens - cost.most for cost, tokens in known}
    varies = len({cost for cost, _ in known}) > 1 and all(cost.least == cost.most for cost, _ in known)
    if not (refused_alike and varies and len(differences) == 1):
        return None
    written = differences.pop()
    return written if -markers <= written <= _MOST_WRITTEN else None


def _predictions(family: VisionFamily, answers: Iterable[Answer]) -> tuple[Range | None, ...]:
    return tuple(predicted(family, answer.size) for answer in answers)


def _distinct(families: Iterable[VisionFamily]) -> tuple[VisionFamily, ...]:
    """One of each arithmetic, the first."""
    of_each: dict[tuple[Range | None, ...], VisionFamily] = {}
    for family in families:
        of_each.setdefault(_signature(family, (*_COMMON_SIZES, *_RARE_SIZES)), family)
    return tuple(of_each.values())


def _signature(family: VisionFamily, sizes: Iterable[Size]) -> tuple[Range | None, ...]:
    return tuple(predicted(family, size) for size in sizes)
