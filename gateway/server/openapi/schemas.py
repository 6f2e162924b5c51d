"""Bodies as OpenAPI has them: what the gateway reads of requests, and what clients can count on in answers. Data only.

No copy of OpenAI's document: what is not read here goes on as it comes, so every object may have other members.
"""

from typing import Any

Schema = dict[str, Any]

COMPONENTS = "#/components/schemas/"
_COUNT: Schema = {"type": "integer", "minimum": 1}
_TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT: Schema = {"type": "string"}
_OBJECT: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"{COMPONENTS}{name}"}


def _many(*items: Schema) -> Schema:
    return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": list(items)}, "minItems": 1}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def _part(kind: str, *required: str, **members: Schema) -> Schema:
    return _object(("type", *required), type={"const": kind}, **members)


def _described(schema: Schema, text: str) -> Schema:
    return schema | {"description": text}


_MODEL = _described(_TEXT, "A name that GET /v1/models lists. Left out: the first of them.")
_NAMED = _described({"type": "string", "minLength": 1}, "A name that GET /v1/models lists.")
_PRIORITY = _described({"type": "integer"}, "As vLLM has it: less is more urgent. `x-gateway-priority` stands above.")
_STREAM = _described({"type": ["boolean", "null"]}, "The answer comes as server-sent events.")
_ENGINE = {"model": _MODEL, "priority": _PRIORITY}
_GENERATION = _ENGINE | {
    "stream": _STREAM,
    "stream_options": _object(include_usage={"type": "boolean"}) | {"type": ["object", "null"]},
    "n": _described(_COUNT, "Each answer takes a place of its own."),
    "max_tokens": _described(_COUNT, "Kept free for the answer, as far as models make use of it."),
}
_PICTURE = _described(
    {"type": "string", "pattern": "^(data:image/|https?://)"},
    "`data:image/png;base64,...`, or an http(s) address where the settings allow it.",
)
_SOURCE = {
    "anyOf": [
        _part("base64", "media_type", "data", media_type=_TEXT, data=_TEXT),
        _part("url", "url", url=_TEXT),
    ]
}
_SAID = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": f"{COMPONENTS}AnthropicText"}}]}
_TOOL_RESULT = _part(
    "tool_result",
    "tool_use_id",
    tool_use_id=_TEXT,
    content={"anyOf": [_TEXT, _many(ref("AnthropicText"), ref("AnthropicImage"))]},
)
_WITH_MESSAGES = _object(
    ("messages",), **_ENGINE, messages=_many(ref("Message")), add_generation_prompt={"type": "boolean"}
)
_WITH_PROMPT = _object(("prompt",), **_ENGINE, prompt=_TEXT, add_special_tokens={"type": "boolean"})
_INPUTS = {"anyOf": [_TEXT, _many(_TEXT), _TOKENS, _many(_TOKENS)]}
_SCORED = {"anyOf": [_TEXT, _many(_TEXT), _OBJECT]}
_USAGE = _object(prompt_tokens={"type": "integer"}, completion_tokens={"type": ["integer", "null"]})


SCHEMAS: dict[str, Schema] = {
    "Text": _part("text", "text", text=_TEXT),
    "Image": _part("image_url", "image_url", image_url=_object(("url",), url=_PICTURE, detail=_TEXT)),
    "Message": _object(
        ("role",),
        role={"enum": ["system", "developer", "user", "assistant", "tool"]},
        content={"anyOf": [_TEXT, _many(ref("Text"), ref("Image"))]},
    ),
    "ChatRequest": _object(
        ("messages",), messages=_many(ref("Message")), **_GENERATION, max_completion_tokens=_COUNT,
        tools=_described({"type": ["array", "null"]}, "Counted as part of the prompt."),
        tool_choice={"type": ["string", "object", "null"]}, response_format={"type": ["object", "null"]},
        structured_outputs={"type": ["object", "null"]}, chat_template_kwargs={"type": ["object", "null"]},
        documents={"type": ["array", "null"], "items": _OBJECT},
    ),
    "BatchRequest": _object(
        ("messages",), messages=_described(_many(_many(ref("Message"))), "One conversation each."),
        **_ENGINE, max_tokens=_COUNT, max_completion_tokens=_COUNT, n=_COUNT,
    ),
    "CompletionRequest": _object(("prompt",), prompt=_INPUTS, **_GENERATION),
    "AnthropicText": _part("text", "text", text=_TEXT),
    "AnthropicImage": _part("image", "source", source=_SOURCE),
    "AnthropicMessage": _object(
        ("role", "content"),
        role={"enum": ["user", "assistant"]},
        content={"anyOf": [_TEXT, _many(ref("AnthropicText"), ref("AnthropicImage"), _TOOL_RESULT)]},
    ),
    "MessagesRequest": _object(
        ("model", "messages", "max_tokens"), model=_NAMED, messages=_many(ref("AnthropicMessage")), max_tokens=_COUNT,
        stream={"type": "boolean"}, system=_SAID,
    ),
    "CountTokensRequest": _object(
        ("model", "messages"), model=_NAMED, messages=_many(ref("AnthropicMessage")), system=_SAID
    ),
    "ResponseItem": _object(
        ("role", "content"),
        role={"enum": ["system", "developer", "user", "assistant"]},
        content={
            "anyOf": [
                _TEXT,
                _many(
                    _part("input_text", "text", text=_TEXT), _part("input_image", "image_url", image_url=_PICTURE)
                ),
            ]
        },
    ),
    "ResponsesRequest": _object(
        ("input",), input={"anyOf": [_TEXT, _many(ref("ResponseItem"))]}, **_ENGINE, stream=_STREAM,
        instructions={"type": ["string", "null"]}, max_output_tokens=_COUNT, store={"type": "boolean"},
        background={"type": "boolean"}, previous_response_id={"type": ["string", "null"]},
    ),
    "EmbeddingRequest": {
        "anyOf": [
            _object(("input",), **_ENGINE, input=_INPUTS),
            _object(("messages",), **_ENGINE, messages=_many(ref("Message"))),
        ]
    },
    "CohereEmbedRequest": _object(
        (), **_ENGINE, texts=_many(_TEXT), images=_many(_PICTURE), inputs={"type": "array"}, input_type=_TEXT
    ),
    "ScoreRequest": _object((), **_ENGINE, queries=_SCORED, documents=_SCORED, text_1=_SCORED, text_2=_SCORED),
    "RerankRequest": _object(
        ("query", "documents"), **_ENGINE, query=_SCORED, documents={"anyOf": [{"type": "array"}, _OBJECT]},
        top_n={"type": "integer"},
    ),
    "TokenizeRequest": {"anyOf": [_WITH_MESSAGES, _WITH_PROMPT]},
    "DetokenizeRequest": _object(("tokens",), model=_MODEL, tokens={"type": "array", "items": {"type": "integer"}}),
    "PreflightRequest": {"anyOf": [ref("ChatRequest"), ref("CompletionRequest")]},
    "Completion": _object(
        ("id", "object", "choices"), id=_TEXT, object=_TEXT, model=_TEXT, choices={"type": "array"}, usage=_USAGE
    ),
    "AnthropicAnswer": _object(
        ("type", "role", "content"), type={"const": "message"}, role={"const": "assistant"},
        content={"type": "array"}, usage=_object(input_tokens={"type": "integer"}),
    ),
    "Response": _object(("id", "object", "output"), id=_TEXT, object=_TEXT, status=_TEXT, output={"type": "array"}),
    "Models": _object(("object", "data"), object={"const": "list"}, data={"type": "array", "items": ref("Model")}),
    "Model": _object(
        ("id", "object"), id=_TEXT, object={"const": "model"}, max_model_len={"type": ["integer", "null"]}
    ),
    "Counted": _object((), count={"type": "integer"}, input_tokens={"type": "integer"}),
    "Anything": _described(_OBJECT, "vLLM's answer as it comes."),
    "Error": _described(
        _object(
            ("error",),
            error=_object(
                ("message",), message=_TEXT, type=_TEXT, param={"type": ["string", "null"]},
                code={"type": ["string", "integer", "null"]},
            ),
        ),
        "OpenAI's shape; `code` of vLLM's own errors is a number.",
    ),
    "AnthropicError": _object(
        ("type", "error"), type={"const": "error"}, error=_object(("type", "message"), type=_TEXT, message=_TEXT)
    ),
    "VllmDetail": _described(_object(("detail",), detail={}), "How vLLM says that it has no such route."),
}  # fmt: skip
