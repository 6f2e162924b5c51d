r"""Reading JSON bodies: one decoder call, and scalars as vLLM would read them.

vLLM reads bodies with Python's `json.loads` and pydantic. What that pair accepts and this module refuses is always a
400, never a different reading. The list, each with a test in tests/wire/test_json_differences.py:

- bodies that are not UTF-8 without a byte order mark (`json.loads` guesses UTF-16, UTF-32 and skips a mark);
- `NaN`, `Infinity`, `-Infinity` anywhere;
- lone surrogates (`"\ud800"`), escaped or as bytes;
- a number beyond the range of a double in a field that is read here; limits beyond 2^63 - 1;
- nesting deeper than the recursion limit;
- a wrong type in a field that is read here even where a later duplicate of the key would repair it;
- more brackets, quotes or commas than bulk.py allows (looked at before the body is parsed);
- integers written as strings or booleans (`"16"`, `true`), booleans written as strings or numbers (`"yes"`, `1`).

Duplicate keys (the last one wins, at every level), escaped keys and escapes in strings are read as vLLM does.
"""

import re
from typing import Any, TypeVar

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority

T = TypeVar("T")

# A value no JSON text can have: tells "key absent" from `null` without a union, which msgspec forbids for Raw.
ABSENT = msgspec.Raw(b"")

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
MOST_SEQUENCES = 16_384
"""vLLM's own limit of `n` (VLLM_MAX_N_SEQUENCES); here it also bounds `n` times the prompts."""
_any_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_INSIDE_CONTENT = re.compile(r"[a-z_12]+(?:\[\d+\])*\.(?:content|output)\[")


def _misfit(error: msgspec.ValidationError) -> GatewayError:
    """The text of msgspec reads "Expected `str`, got `int` - at `$.messages[0].role`"."""
    what, _, path = str(error).partition(" - at `$")
    param = path.strip("`.") or None
    code = Code.INVALID_CONTENT_PART if _INSIDE_CONTENT.match(param or "") else Code.INVALID_REQUEST
    return GatewayError(code, f"{what} at `{param or 'the top of the body'}`.", param=param)


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes | bytearray | msgspec.Raw) -> T:
    """The body as the decoder's type. Raises GatewayError: invalid_json, invalid_request or invalid_content_part."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(error) from error
    except msgspec.DecodeError as error:
        raise GatewayError(
            Code.INVALID_JSON,
            f"The body is not JSON that can be read: {'it is empty' if body == b'' else error}. "
            "Send UTF-8 without a byte order mark, without NaN or Infinity and without lone surrogates.",
        ) from error
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> GatewayError:
    return GatewayError(Code.INVALID_JSON, "The JSON of the body is nested too deeply.")


def integer(value: Any, name: str, *, minimum: int) -> int | None:
    """A whole number of at least `minimum`; `16.0` counts as one, as in vLLM. None where the field is null."""
    if value is None:
        return None
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not minimum <= value <= _LARGEST:
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"`{name}` must be a whole number of at least {minimum}, written as a JSON number.",
            param=name,
        )
    return int(value)


def answers(value: Any, prompts: int = 1) -> int:
    """`n`, the answers to each prompt. Raises GatewayError where they are more than MOST_SEQUENCES over all prompts."""
    n = integer(value, "n", minimum=1) or 1
    if prompts * n > MOST_SEQUENCES:
        each = "" if prompts == 1 else f" to each of its {prompts} prompts, {prompts * n} in all"
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"`n` asks for {n} answers{each}, and at most {MOST_SEQUENCES} are given to one request. Ask for fewer.",
            param="n",
        )
    return n


def truncation(value: Any) -> int | None:
    """`truncate_prompt_tokens`: the tokens that vLLM leaves of each prompt, -1 as many as fit, None all of them."""
    return integer(value, "truncate_prompt_tokens", minimum=-1)


def priority(value: Any) -> Priority | None:
    """The `priority` of vLLM, whose lowest number is served first; None where the field is null or absent."""
    number = integer(value, "priority", minimum=_SMALLEST)
    if number is None:
        return None
    return Priority.DEFAULT if number == 0 else Priority.INTERACTIVE if number < 0 else Priority.BATCH


def boolean(value: Any, name: str) -> bool:
    """True or false; null counts as false, as in vLLM."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise GatewayError(Code.INVALID_REQUEST, f"`{name}` must be true or false.", param=name)


class StreamOptions(msgspec.Struct, gc=False):
    """`stream_options` of every route that streams."""

    include_usage: Any = None


def include_usage(options: StreamOptions | msgspec.UnsetType | None) -> bool:
    return isinstance(options, StreamOptions) and boolean(options.include_usage, "stream_options.include_usage")


def string(value: Any, name: str) -> str | None:
    """A string, or None where the field is null."""
    if value is None or isinstance(value, str):
        return value
    raise GatewayError(Code.INVALID_REQUEST, f"`{name}` must be a string.", param=name)


def utf8_bytes(text: str) -> int:
    """Length in UTF-8; free for ASCII, which CPython marks."""
    return len(text) if text.isascii() else len(text.encode())


def value(raw: msgspec.Raw) -> Any:
    """What stands there; None where nothing does."""
    return None if raw is ABSENT else decode_body(_any_decoder, raw)


def rendered_bytes(value: Any) -> int:
    """UTF-8 bytes of a value that a chat template prints: strings as they are, anything else as JSON, null not.

    Raises GatewayError invalid_json.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        return utf8_bytes(value)
    try:
        return len(msgspec.json.encode(value))
    except RecursionError as error:
        # What the decoder still took may be too deep for the encoder, which stands on the same stack.
        raise _too_deep() from error


def json_bytes(*values: msgspec.Raw) -> int:
    """Bytes of JSON values as they were sent; absent and null ones count nothing."""
    total = 0
    for value in values:
        if value is not ABSENT:
            view = memoryview(value)
            total += 0 if bytes(view[:4]) == b"null" else len(view)
    return total


def bad_part(path: str, sentence: str) -> GatewayError:
    """The 400 for what stands at `path` of a body."""
    return GatewayError(Code.INVALID_CONTENT_PART, f"`{path}`: {sentence}", param=path)


def refuse_hidden_prompt(kv_transfer_params: dict[str, msgspec.Raw] | None) -> None:
    """Refuse ids that would replace the prompt that was counted (vLLM renderers/online_renderer.py)."""
    if kv_transfer_params and json_bytes(kv_transfer_params.get("prompt_token_ids", ABSENT)):
        raise GatewayError(
            Code.INVALID_REQUEST,
            "`kv_transfer_params.prompt_token_ids` would replace the prompt that is sent, so its cost could not be "
            "known. Leave it out.",
            param="kv_transfer_params.prompt_token_ids",
        )
