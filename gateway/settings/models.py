"""The served models of which the operator says more than their name."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from gateway.settings.section import Place, Section, checked


class ModelSettings(Section):
    """A served model, where its name alone does not tell. `aliases` are other names for it, `fallback` names the model
    that may serve in its place.
    """

    name: Annotated[str, Field(min_length=1, description="as vLLM lists it and clients ask for it")]
    aliases: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(description="names that clients may ask for in its place, such as one that a program has built in"),
    ] = ()
    family: Annotated[
        str | None,
        Field(
            description="whose arithmetic prices its images, one that `vlm-gateway tokens --help` lists; left out: "
            "what the model's files say (`folder`, else the server's own folder, a Hugging Face cache, the hub), else "
            "what the server loads, else the name; where none says it, what calibration finds"
        ),
    ] = None
    folder: Annotated[
        str | None,
        Field(
            description="of its config.json, processor configuration, tokenizer and chat template: with the extra "
            "exact-text its text is counted exactly; left out: text is estimated"
        ),
    ] = None
    processor: Annotated[
        dict[str, object] | None,
        Field(
            description="the image processor configuration, where the server was started with another than the "
            "model's files have; left out: that of `folder`, else of the files that are found, else as the checkpoint "
            "of that name, or the first of the family, ships it"
        ),
    ] = None
    mm_processor_kwargs: Annotated[
        dict[str, object] | None,
        Field(
            description="what the server was started with as `--mm-processor-kwargs`, the same JSON; goes before all "
            "files; left out: nothing"
        ),
    ] = None
    fallback: Annotated[
        str | None,
        Field(
            description="a model of this list that may serve in its place, see pressure.fallback; left out: none may"
        ),
    ] = None


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return checked(value, check, _conflicts(value))


def _conflicts(value: object) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what is no list of models has none."""
    models = value if isinstance(value, list | tuple) else ()
    readable = {index: model for index, model in enumerate(models) if isinstance(model, Mapping)}
    fallbacks = {str(model.get("name")): model.get("fallback") for model in readable.values()}
    yield from _doubtful_aliases(readable)
    for index, model in readable.items():
        name, fallback = str(model.get("name")), model.get("fallback")
        if fallback is None:
            continue
        if fallback not in fallbacks:
            yield (index, "fallback"), f"there is no model {fallback!r} among models; name it there too"
        elif (circle := _circle(name, fallbacks)) is not None:
            yield (index, "fallback"), f"goes in a circle: {circle}"


def _doubtful_aliases(models: Mapping[int, Mapping[str, object]]) -> Iterator[tuple[Place, str]]:
    taken = {str(model.get("name")): "is the name of a model of this list" for model in models.values()}
    for index, model in models.items():
        aliases = model.get("aliases")
        for place, alias in enumerate(aliases if isinstance(aliases, list | tuple) else ()):
            if alias in taken:
                yield (index, "aliases", place), f"{alias!r} {taken[alias]}; a name leads to one model"
            taken[str(alias)] = "is an alias already"


def _circle(name: str, fallbacks: Mapping[str, object]) -> str | None:
    """The way from one model over the fallbacks back to itself, if there is one."""
    way = [name]
    while isinstance(following := fallbacks.get(way[-1]), str) and following not in way:
        way.append(following)
    return " -> ".join([*way, name]) if following == name else None


Models = Annotated[tuple[ModelSettings, ...], WrapValidator(_all_mistakes)]
