"""Fields of a request by which a client could cost more than is counted, or harm whoever shares the server: what is
done about each, why, and what vLLM 0.32 does with it. docs/reference/fields.md is made of this table.

A field that is not in it goes on as it came. What a bound says holds for one request; what its cost says is cost.py's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import FieldUse, Span

EVERYTHING = 2**62
"""The amount of a number that stands for the whole vocabulary."""


class Measure(StrEnum):
    """What of a field is looked at."""

    PRESENCE = "there, and neither empty, false nor 0"
    GIVEN = "there, whatever it is but null"
    NUMBER = "the number"
    URGENCY = "how far below 0"
    BYTES = "bytes of its JSON"

    @property
    def is_bounded(self) -> bool:
        return self not in {Measure.PRESENCE, Measure.GIVEN}

    @property
    def is_number(self) -> bool:
        """It can be brought down."""
        return self in {Measure.NUMBER, Measure.URGENCY}


class Treatment(StrEnum):
    """What becomes of a field that is there, or is more than its bound."""

    ALLOW = "allow"
    CLAMP = "clamp"
    REFUSE = "refuse"


class FieldRule(NamedTuple):
    """`most` goes on untouched; None: nothing does."""

    treatment: Treatment
    most: int | None = None


class Field(NamedTuple):
    """`name` in the body, `a.b` for what stands in `a`. `why` goes on from the field: "`n` makes ...". `vllm` is what
    the server makes of it by itself.
    """

    name: str
    measure: Measure
    rule: FieldRule
    why: str
    vllm: str

    @property
    def setting(self) -> str:
        """Its name in the settings."""
        return f"fields.{self.name.replace('.', '_')}"


_REFUSED = FieldRule(Treatment.REFUSE)


def _at_most(most: int) -> FieldRule:
    return FieldRule(Treatment.REFUSE, most)


_TRUSTED_MM = "Answers 400 unless it runs with `--trust-request-mm-kwargs`; older releases took it from anybody."
_TRUSTED_TEMPLATE = (
    "Answers 400 unless it runs with `--trust-request-chat-template`. Rendering has no bound of its own: "
    "CVE-2025-61620, and vllm-project/vllm#52025 for its front end in Rust."
)
_COMPILED = "compiles to a grammar before the first token, in time that grows with its length"
_BY_ANOTHER_WAY = (
    "Puts both into one table, and takes a text or a number there, of which its front end and its connectors ask what "
    "only an object has: a 500, and where a connector asks, the end of the engine."
)
_BEFORE_0_12 = "Ignores it; releases before 0.12 read it."
_REGEX = (
    "Refuses what does not compile; until 0.9 that ended the engine (vllm-project/vllm#17313, #19270). 15 KB of nested "
    "repetition took the compiler of 0.32 four seconds here."
)

FIELDS = (
    Field(
        "mm_processor_kwargs",
        Measure.PRESENCE,
        _REFUSED,
        "would change what an image costs after it was counted",
        _TRUSTED_MM,
    ),
    Field(
        "media_io_kwargs",
        Measure.PRESENCE,
        _REFUSED,
        "would change how images are read after they were counted",
        _TRUSTED_MM,
    ),
    Field(
        "chat_template",
        Measure.PRESENCE,
        _REFUSED,
        "would render another prompt than the one that was counted",
        _TRUSTED_TEMPLATE,
    ),
    Field(
        "chat_template_kwargs.chat_template",
        Measure.PRESENCE,
        _REFUSED,
        "would render another prompt than the one that was counted",
        _TRUSTED_TEMPLATE,
    ),
    Field(
        "chat_template_kwargs",
        Measure.BYTES,
        _at_most(16_384),
        "goes into the template, whose work it may multiply",
        "Hands to the template what it has a variable for.",
    ),
    Field(
        "kv_transfer_params",
        Measure.PRESENCE,
        _REFUSED,
        "tells the engine from which host to fetch the state of a prompt, and is for routers that split prefill from "
        "decoding",
        "Hands it to its KV connector, which trusts the addresses in it (vllm-project/vllm#47843).",
    ),
    Field(
        "ec_transfer_params",
        Measure.PRESENCE,
        _REFUSED,
        "tells the engine from which host to fetch encoded images, and is for routers that split the encoder off",
        "Hands it to its encoder-cache connector.",
    ),
    Field(
        "use_beam_search",
        Measure.PRESENCE,
        _REFUSED,
        "keeps `n` whole prompts, and costs more with every token",
        "Serves it, with beams of width `n`.",
    ),
    Field(
        "prompt_logprobs",
        Measure.GIVEN,
        _REFUSED,
        "makes the engine compute logits for the whole vocabulary at every token of the prompt, in memory that it did "
        "not set aside",
        "Bounds the number by `--max-logprobs`, not the prompt; 0 costs the same. Long prompts have ended the engine "
        "(vllm-project/vllm#5907). `echo` asks for it too: in completions with `logprobs`, in chats always.",
    ),
    Field(
        "top_logprobs",
        Measure.NUMBER,
        _at_most(20),
        "is kept for every token of every answer, in memory that the engine did not set aside",
        "Answers 400 above `--max-logprobs` (20); -1 is the whole vocabulary. Chats only.",
    ),
    Field(
        "logprobs",
        Measure.NUMBER,
        _at_most(20),
        "is kept for every token of every answer, in memory that the engine did not set aside",
        "Answers 400 above `--max-logprobs` (20); -1 is the whole vocabulary. Completions only: in chats it is no "
        "number.",
    ),
    Field(
        "n",
        Measure.NUMBER,
        _at_most(128),
        "makes a sequence in the engine for each answer",
        "Takes up to 16,384 (VLLM_MAX_N_SEQUENCES), and so many over all prompts are the most here too.",
    ),
    Field(
        "best_of",
        Measure.NUMBER,
        FieldRule(Treatment.CLAMP, 1),
        "made so many sequences in old engines, which nobody would have counted",
        "Ignores it, as all engines since V1 do.",
    ),
    Field(
        "priority",
        Measure.URGENCY,
        FieldRule(Treatment.CLAMP, 0),
        "would let a client pass all others in the engine's own queue",
        "Serves the lowest number first with `--scheduling-policy priority`, and preempts others for it. Here the "
        "field still asks for a class (docs/tuning.md), and `hand_on` tells the engine what was granted.",
    ),
    Field(
        "stream_interval",
        Measure.NUMBER,
        FieldRule(Treatment.CLAMP, 1),
        "keeps tokens back from a stream, by whose pace it is known here what this answer and others hold",
        "Sends so many at once, for this request alone, where that is more than its own `--stream-interval`.",
    ),
    Field(
        "repetition_detection.max_pattern_size",
        Measure.NUMBER,
        _at_most(128),
        "is looked for by the engine's scheduler, in Python, at every token, while all other requests wait",
        "Sets no bound.",
    ),
    Field(
        "stop",
        Measure.BYTES,
        _at_most(4096),
        "is searched for at every token",
        "Takes 4 strings (VLLM_MAX_STOP_STRINGS) of any length.",
    ),
    Field(
        "stop_sequences",
        Measure.BYTES,
        _at_most(4096),
        "is searched for at every token",
        "Anthropic's word for `stop`, with the same bounds.",
    ),
    Field(
        "stop_token_ids",
        Measure.BYTES,
        _at_most(4096),
        "becomes columns of the logits at every step",
        "Refuses ids outside of the vocabulary since a single one could end the engine (vllm-project/vllm#54195).",
    ),
    Field(
        "allowed_token_ids",
        Measure.BYTES,
        _at_most(65_536),
        "becomes a mask over the vocabulary for every answer",
        "Refuses ids outside of the vocabulary.",
    ),
    Field(
        "logit_bias",
        Measure.BYTES,
        _at_most(16_384),
        "becomes columns of the logits at every step",
        "Refuses ids outside of the vocabulary since they ended the engine (vllm-project/vllm#16529); OpenAI takes 300 "
        "entries.",
    ),
    Field(
        "bad_words",
        Measure.BYTES,
        _at_most(16_384),
        "is looked for at every step",
        "Takes 128 words of 1,024 tokens together; older releases took any (vllm-project/vllm#48824).",
    ),
    Field(
        "structured_outputs",
        Measure.BYTES,
        _at_most(65_536),
        _COMPILED,
        "Refuses JSON schemas that nest deeper than 64. How long one may take to compile has no bound.",
    ),
    Field("structured_outputs.regex", Measure.BYTES, _at_most(4096), _COMPILED, _REGEX),
    Field("structured_outputs.grammar", Measure.BYTES, _at_most(32_768), _COMPILED, "Refuses what does not compile."),
    Field("structured_outputs.whitespace_pattern", Measure.BYTES, _at_most(256), _COMPILED, _REGEX),
    Field(
        "response_format",
        Measure.BYTES,
        _at_most(65_536),
        _COMPILED,
        "Makes `structured_outputs` of it, with the same bounds.",
    ),
    Field("guided_json", Measure.BYTES, _at_most(65_536), _COMPILED, _BEFORE_0_12),
    Field("guided_regex", Measure.BYTES, _at_most(4096), _COMPILED, f"{_BEFORE_0_12} {_REGEX}"),
    Field("guided_grammar", Measure.BYTES, _at_most(32_768), _COMPILED, _BEFORE_0_12),
    Field("guided_choice", Measure.BYTES, _at_most(65_536), _COMPILED, _BEFORE_0_12),
    Field("guided_whitespace_pattern", Measure.BYTES, _at_most(256), _COMPILED, _BEFORE_0_12),
    Field(
        "guided_decoding_backend",
        Measure.PRESENCE,
        _REFUSED,
        "would choose the engine's compiler, of which one filled the server's disk",
        f"{_BEFORE_0_12} GHSA-mgrm-fgjv-mhv8.",
    ),
    Field(
        "vllm_xargs",
        Measure.BYTES,
        _at_most(4096),
        "goes to extensions of the engine, whose bounds nobody knows here",
        "Hands it to its extensions, the logits processors of some OCR models among them.",
    ),
    Field(
        "vllm_xargs.kv_transfer_params",
        Measure.GIVEN,
        _REFUSED,
        "is the field `kv_transfer_params` by another way, past what checks its type",
        _BY_ANOTHER_WAY,
    ),
    Field(
        "vllm_xargs.ec_transfer_params",
        Measure.GIVEN,
        _REFUSED,
        "is the field `ec_transfer_params` by another way, past what checks its type",
        _BY_ANOTHER_WAY,
    ),
)

RULES: Mapping[str, FieldRule] = {field.name: field.rule for field in FIELDS}
"""Where the operator says nothing."""

_BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True, slots=True)
class Clamp:
    """What is written in the place of a number that is more than its bound."""

    name: str
    span: Span
    number: int


def judge(uses: Iterable[FieldUse], rules: Mapping[str, FieldRule]) -> tuple[Clamp, ...]:
    """What is to be brought down. Raises GatewayError invalid_request for the first that is refused."""
    clamps = []
    for use in uses:
        rule = rules[use.name]
        if rule.treatment is Treatment.ALLOW or (rule.most is not None and use.amount <= rule.most):
            continue
        if rule.treatment is Treatment.REFUSE:
            raise _refusal(use, rule)
        assert rule.most is not None, "what is brought down has a bound"
        sign = -1 if _BY_NAME[use.name].measure is Measure.URGENCY else 1
        clamps.append(Clamp(use.name, use.span, sign * rule.most))
    return tuple(clamps)


def _refusal(use: FieldUse, rule: FieldRule) -> GatewayError:
    field = _BY_NAME[use.name]
    asked_by = use.asked_by or use.name
    if rule.most is None:
        text = f"`{asked_by}` {field.why}. Leave it out. ({field.setting} may allow it.)"
    else:
        text = (
            f"`{asked_by}` {_amount(use, field.measure)}, and the most is {rule.most} ({field.setting}): it "
            f"{field.why}. Ask for less."
        )
    return GatewayError(Code.INVALID_REQUEST, text, param=asked_by)


def _amount(use: FieldUse, measure: Measure) -> str:
    if use.amount == EVERYTHING:
        return "asks for the whole vocabulary"
    if measure is Measure.BYTES:
        return f"has {use.amount} bytes"
    return f"is {-use.amount if measure is Measure.URGENCY else use.amount}"
