"""The command line of `vllm serve` as far as memory depends on it. Only reading: what follows is planning.py's.

All spellings that vLLM takes: underscores for dashes, `--name=value`, JSON and dotted keys, 32k and 32K. Flags that do
not change a plan are listed and otherwise left alone; one that vLLM has not is an error.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.domain.memory.defaults import AUTO_LENGTH
from gateway.domain.memory.encoder import IMAGE, VIDEO
from gateway.domain.memory.flag_checks import amount_mistake, choice_mistake, modality_mistake
from gateway.domain.memory.plan import NEWEST, Flags, Version
from gateway.domain.vllm_flags.command import Command, Given, read_text, read_words
from gateway.domain.vllm_flags.known_flags import GONE, MOVES_MEMORY, NEVER
from gateway.domain.vllm_flags.naming import in_full, is_real, meant

_DASHES = "\u2012\u2013\u2014\u2015\u2212"
_CURLY_QUOTES = "\u2018\u2019\u201c\u201d"
_VARIABLE = re.compile(r"\$[A-Za-z_{(]|^`")
_MULTIPLES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_DIGITS = 15
_TOWERS = (IMAGE, VIDEO, "audio")


class ServeLineError(ValueError):
    """A flag that vLLM would not take, or that is misspelt; the text names it and says what to write."""


@dataclass(frozen=True, slots=True)
class ServeLine:
    """`ignored` are flags that memory does not depend on, `unplanned` those of which no plan is made though it does,
    `gone` (without dashes) those that a version before the newest took. `positions` are words that belong to no flag,
    `version` is that of the image, where the line names one.
    """

    model: str | None
    flags: Flags
    ignored: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    version: str | None = None
    unplanned: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def read_command(line: str) -> ServeLine:
    """A pasted command with what stands around it: variables, `docker run`, line ends with backslashes, a pipe.

    Raises ServeLineError, also for words that belong to no flag.
    """
    try:
        command = read_text(line)
    except ValueError as broken:
        raise ServeLineError(f"--command: {broken}") from broken
    planned = [each.value for each in command.given if each.name in {*_READERS, "model"}]
    for word in filter(None, (*planned, *command.positions)):
        _refuse_variable(word)
    found = _read(command)
    if found.positions:
        raise ServeLineError(f"--command: {found.positions[0]} belongs to no flag; check blanks and quotes before it")
    return found


def read_arguments(words: list[str]) -> ServeLine:
    """Of words as the shell hands them over; a first word `serve` says that the model may follow without a flag.

    Raises ServeLineError.
    """
    return _read(read_words(words))


def _read(command: Command) -> ServeLine:
    flags = Flags()
    others: list[str] = []
    model, positions = None, list(command.positions)
    for word in (*positions, *(word for each in command.given for word in each.words)):
        _refuse_typographic(word)
    for each in map(_in_full, command.given) if command.is_whole else command.given:
        if each.name == "model":
            model = _value(each)
            positions += each.more
        elif each.name in _READERS:
            flags = _READERS[each.name](flags, each)
            positions += each.words if each.name in _SWITCHES else each.more
        else:
            others.append(each.name)
    if command.is_whole and positions:
        model = positions.pop(0)
    return _with_others(ServeLine(model, flags, positions=tuple(positions), version=command.version), others)


def _in_full(given: Given) -> Given:
    """A unique beginning is enough for vLLM's parser, so in a pasted line it is no mistake."""
    return given if given.name in NEVER else given._replace(name=in_full(given.name) or given.name)


def _with_others(line: ServeLine, names: list[str]) -> ServeLine:
    """Those that no plan looks at, sorted by why."""
    gone = [name for name in names if name in GONE]
    for name in names:
        if name not in GONE:
            _refuse_unknown(name)
    unplanned = [name for name in names if name.removeprefix("no-") in MOVES_MEMORY]
    ignored = [f"--{name}" for name in names if name not in {*gone, *unplanned}]
    return replace(line, ignored=tuple(ignored), unplanned=tuple(f"--{name}" for name in unplanned), gone=tuple(gone))


def _refuse_typographic(word: str) -> None:
    """What editors and chats make of two hyphens, and of quotes."""
    if word[:1] in _DASHES:
        raise ServeLineError(f"{word} begins with a typographic dash; write --{word.lstrip(_DASHES + '-')}")
    if any(quote in word for quote in _CURLY_QUOTES):
        raise ServeLineError(f"{word} has typographic quotes; write ' and \"")


def _refuse_variable(word: str) -> None:
    """A shell would have put something in its place, or several words."""
    if _VARIABLE.search(word):
        raise ServeLineError(f"--command: {word} is for a shell to fill in; write what it stands for")


def _refuse_unknown(name: str) -> None:
    if name in NEVER:
        raise ServeLineError(f"--{name}: vLLM has never had this flag: {NEVER[name]}")
    if not is_real(name):
        close = meant(name)
        raise ServeLineError(f"--{name} is not a flag of vLLM" + (f"; did you mean {close}?" if close else ""))


def refuse_gone(line: ServeLine, version: Version) -> None:
    """Raises ServeLineError for a flag that this version has no more; where since when is unknown, only the newest."""
    for name in line.gone:
        gone = GONE[name]
        if version[:2] >= (gone.since or NEWEST[:2]):
            instead = f" Instead: {gone.instead}." if gone.instead else ""
            raise ServeLineError(f"--{name}: vLLM {version} has no such flag: {gone.why}.{instead}")


def _value(given: Given) -> str:
    if given.value is None:
        raise ServeLineError(f"--{given.name} needs a value")
    return given.value


def _whole(given: Given) -> int:
    """`4096`, and as vLLM takes lengths: 32k is 32,000 and 32K 32,768."""
    text = _value(given)
    found = re.fullmatch(r"(\d+)(\.\d+)?([kmgKMG]?)", text)
    if not found or (found[2] and found[3] not in {"k", "m", "g"}):
        raise ServeLineError(f"--{given.name} {text}: write a whole number, e.g. 8192")
    if len(found[1]) > _MOST_DIGITS:
        raise ServeLineError(f"--{given.name}: {len(found[1])} digits are more than any plan has")
    number = int(float(found[1] + (found[2] or "")) * _MULTIPLES.get(found[3], 1))
    if number < 1:
        raise ServeLineError(f"--{given.name} must be above 0")
    return number


def _length(given: Given) -> int:
    return AUTO_LENGTH if _value(given) in {"auto", "-1"} else _whole(given)


def _share(given: Given) -> float:
    share = _real(given)
    if not 0 < share <= 1:
        raise ServeLineError(f"--{given.name} {share:g}: write a share of the card above 0 and up to 1, e.g. 0.9")
    return share


def _real(given: Given) -> float:
    try:
        return float(_value(given))
    except ValueError as broken:
        raise ServeLineError(f"--{given.name} {given.value}: write a number") from broken


def _checked(mistake: str | None) -> None:
    if mistake is not None:
        raise ServeLineError(mistake)


def _choice(given: Given) -> str:
    text = _value(given)
    _checked(choice_mistake(given.name, text))
    return text


def _block(given: Given) -> int:
    return int(_choice(given))


def _amount(given: Given) -> float:
    amount = _real(given)
    _checked(amount_mistake(given.name, amount))
    return amount


def _limits(flags: Flags, given: Given) -> Flags:
    """Counts by modality, as JSON or by a dotted key; a count may stand in an object with options."""
    text = _value(given)
    if not given.key and re.fullmatch(r"\w+=\d+(,\w+=\d+)*", text):
        fixed = json.dumps({name: int(count) for name, count in (part.split("=") for part in text.split(","))})
        raise ServeLineError(f"--{given.name} {text}: vLLM no longer takes this form; write '{fixed}'")
    found = _merged(_as_objects(flags), given)
    limits = {name: _count(given, name, value) for name, value in found.items()}
    sized = {name for name, value in found.items() if isinstance(value, Mapping) and set(value) - {"count"}}
    sized_before = tuple(sorted({*flags.sized_modalities, *sized}))
    image = _image_size(found[IMAGE]) if IMAGE in sized else flags.profiled_image
    return replace(flags, limit_mm_per_prompt=limits, sized_modalities=sized_before, profiled_image=image)


def _as_objects(flags: Flags) -> dict[str, Any]:
    """What earlier flags said, so that dotted keys can add to it."""
    objects: dict[str, Any] = {name: {"count": count} for name, count in flags.limit_mm_per_prompt.items()}
    if IMAGE in objects and flags.profiled_image is not None:
        objects[IMAGE] |= _sides(flags.profiled_image)
    return objects


def _sides(image: tuple[int, int]) -> dict[str, int]:
    return {name: side for name, side in zip(("width", "height"), image, strict=True) if side}


def _image_size(options: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = (options.get(name) or 0 for name in ("width", "height"))
    if not all(type(each) is int and each >= 0 for each in (width, height)):
        raise ServeLineError("--limit-mm-per-prompt: width and height of images are whole numbers above 0")
    return (width, height) if width or height else None


def _count(given: Given, modality: str, value: object) -> int:
    _checked(modality_mistake(modality))
    count = value.get("count", 999) if isinstance(value, Mapping) else value
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ServeLineError(f"--{given.name}: {modality} must be a whole number of at least 0, not {value!r}")
    return count


def _options(flags: Flags, given: Given) -> Flags:
    return replace(flags, mm_processor_kwargs=_merged(flags.mm_processor_kwargs, given))


def _merged(present: Mapping[str, Any], given: Given) -> dict[str, Any]:
    """`present` with what one flag says: an object as JSON, or one value under a dotted key."""
    text = _value(given)
    try:
        value = json.loads(text)
    except ValueError as broken:
        if not given.key:
            raise ServeLineError(f"--{given.name} {text}: write JSON, e.g. '{{\"video\": 0}}' ({broken})") from broken
        value = text
    if given.key:
        for part in reversed(given.key.split(".")):
            value = {part: value}
    if not isinstance(value, dict):
        raise ServeLineError(f"--{given.name} {text}: write an object, e.g. '{{\"video\": 0}}'")
    return _deep(present, value) if given.key else {**present, **value}


def _deep(present: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of one flag make one object, as in vLLM."""
    both = {name: _deep(old, more[name]) for name, old in present.items() if _are_objects(old, more.get(name))}
    return {**present, **more, **both}


def _are_objects(*values: object) -> bool:
    return all(isinstance(each, Mapping) for each in values)


def _text_only(flags: Flags, _: Given) -> Flags:
    return replace(flags, limit_mm_per_prompt=dict.fromkeys(_TOWERS, 0))


def _reads(name: str, convert: Callable[[Given], object]) -> Callable[[Flags, Given], Flags]:
    def read(flags: Flags, given: Given) -> Flags:
        changes: dict[str, Any] = {name: convert(given)}
        return replace(flags, **changes)

    return read


def _says(name: str, *, value: bool) -> Callable[[Flags, Given], Flags]:
    return _reads(name, lambda _: value)


_SWITCH_NAMES = ("enforce-eager", "skip-mm-profiling", "disable-hybrid-kv-cache-manager")
_SWITCHES_OFF = frozenset(f"no-{name}" for name in _SWITCH_NAMES)
_SWITCHES = frozenset({*_SWITCH_NAMES, *_SWITCHES_OFF, "language-model-only"})

_READERS: Mapping[str, Callable[[Flags, Given], Flags]] = {
    "gpu-memory-utilization": _reads("gpu_memory_utilization", _share),
    "max-model-len": _reads("max_model_len", _length),
    "max-num-seqs": _reads("max_num_seqs", _whole),
    "max-num-batched-tokens": _reads("max_num_batched_tokens", _whole),
    "tensor-parallel-size": _reads("tensor_parallel_size", _whole),
    "pipeline-parallel-size": _reads("pipeline_parallel_size", _whole),
    "dtype": _reads("dtype", _choice),
    "kv-cache-dtype": _reads("kv_cache_dtype", _choice),
    "quantization": _reads("quantization", _value),
    "block-size": _reads("block_size", _block),
    "mm-encoder-tp-mode": _reads("mm_encoder_tp_mode", _choice),
    "runner": _reads("runner", _choice),
    "kv-cache-memory-bytes": _reads("kv_cache_memory_bytes", _whole),
    "cpu-offload-gb": _reads("cpu_offload_gb", _amount),
    "speculative-config": _reads("speculative_config", _value),
    "limit-mm-per-prompt": _limits,
    "mm-processor-kwargs": _options,
    "language-model-only": _text_only,
    **{name: _says(name.replace("-", "_"), value=True) for name in _SWITCH_NAMES},
    **{f"no-{name}": _says(name.replace("-", "_"), value=False) for name in _SWITCH_NAMES},
}

PLANNED = tuple(sorted(name for name in _READERS if name not in _SWITCHES_OFF))
"""Flags that change a plan."""


def write_command(model: str, flags: Flags) -> list[str]:
    """The words of `vllm serve` that say `flags`; what has its default is left out."""
    defaults, words = Flags(), ["vllm", "serve", model]
    for name in PLANNED:
        field_name = name.replace("-", "_")
        if name == "language-model-only" or (value := getattr(flags, field_name)) == getattr(defaults, field_name):
            continue
        words.append(f"--{name}")
        if name == "limit-mm-per-prompt":
            value = _with_size(value, flags.profiled_image)
        if name not in _SWITCHES:
            words.append(_written(value))
    return words


def _with_size(limits: Mapping[str, int], image: tuple[int, int] | None) -> Mapping[str, object]:
    if image is None or IMAGE not in limits:
        return limits
    return {**limits, IMAGE: {"count": limits[IMAGE], **_sides(image)}}


def _written(value: object) -> str:
    if value == AUTO_LENGTH:
        return "auto"
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
