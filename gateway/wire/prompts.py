"""Prompts outside chat: a string, a list of strings, a list of token ids, or a list of such lists."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.wire.read import utf8_bytes


class Prompts(NamedTuple):
    """How many prompts, their token ids over all, and the UTF-8 bytes of their text."""

    prompts: int
    token_ids: int = 0
    text_bytes: int = 0


def too_many_prompts(prompts: int, name: str, most: int) -> GatewayError:
    return GatewayError(
        Code.INVALID_REQUEST,
        f"`{name}` holds {prompts} prompts, and at most {most} are taken at once. Send fewer.",
        param=name,
    )


def count_prompts(prompt: str | Sequence[str | int | Sequence[int]], name: str, most: int) -> Prompts:
    """Raises GatewayError invalid_request for an empty list, one of mixed kinds, or one of more than `most` prompts."""
    if isinstance(prompt, str):
        return Prompts(1, text_bytes=utf8_bytes(prompt))
    kinds = set(map(type, prompt))
    if kinds == {int}:
        return Prompts(1, token_ids=len(prompt))
    if len(prompt) > most:
        raise too_many_prompts(len(prompt), name, most)
    if kinds == {str}:
        return Prompts(len(prompt), text_bytes=sum(utf8_bytes(item) for item in prompt if isinstance(item, str)))
    if kinds == {list}:
        return Prompts(len(prompt), token_ids=sum(len(item) for item in prompt if isinstance(item, list)))
    raise GatewayError(
        Code.INVALID_REQUEST,
        f"`{name}` must be a string, a list of strings, a list of token ids or a list of such lists, and not empty.",
        param=name,
    )
