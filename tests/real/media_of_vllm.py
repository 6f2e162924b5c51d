"""How many media vLLM itself finds in bodies; run by the interpreter that has vLLM, and by no test directly.

Reads [[path, body], ...] as JSON, and writes one line of JSON: for each body a number, or null where vLLM refuses it.
Its own request models and its own reader of content parts do the work; only what they would load is counted instead.
"""

import json
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import vllm
from pydantic import TypeAdapter
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest, AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest, ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages
from vllm.entrypoints.pooling.classify.protocol import ClassificationRequest
from vllm.entrypoints.pooling.embed.io_processor import EmbedIOProcessor
from vllm.entrypoints.pooling.embed.protocol import (
    CohereEmbedContent,
    CohereEmbedInput,
    CohereEmbedRequest,
    EmbeddingRequest,
)
from vllm.entrypoints.pooling.pooling.protocol import PoolingRequest
from vllm.entrypoints.pooling.scoring.protocol import RerankRequest, ScoreRequest
from vllm.entrypoints.serve.tokenize.protocol import TokenizeRequest
from vllm.renderers import chat_utils

# `sys` speaks to the test, and vLLM prints too.
_ANSWER = sys.stdout
sys.stdout = sys.stderr


class _Counter(chat_utils.BaseMultiModalContentParser):
    """Counts what others would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    @property
    def model_config(self) -> Any:
        return types.SimpleNamespace(enable_prompt_embeds=False)

    def _count(self, *_: Any, **__: Any) -> None:
        self.found += 1


for _name in _Counter.__abstractmethods__:
    if _name.startswith("parse_"):
        setattr(_Counter, _name, _Counter._count)
_Counter.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


class _Tracker:
    """Hands out the one counter."""

    def __init__(self) -> None:
        self.counter = _Counter()

    def create_parser(self, **_: Any) -> _Counter:
        return self.counter


def of_messages(messages: Any) -> int:
    tracker = _Tracker()
    for message in messages:
        chat_utils._parse_chat_message_content(message, tracker, "openai", False)  # noqa: FBT003
    return tracker.counter.found


def of_parts(content: Any) -> int:
    tracker = _Tracker()
    chat_utils._parse_chat_message_content_parts(
        "query", content, tracker, wrap_dicts=False, interleave_strings=False, multimodal_content_part_separator=""
    )
    return tracker.counter.found


def of_conversations(conversations: Any) -> int:
    return sum(map(of_messages, conversations))


def of_pooling(request: Any) -> int:
    if type(request).__name__.startswith("IOProcessorRequest"):
        return 9  # whatever a plugin makes of it
    messages = getattr(request, "messages", None)
    # Of a request for texts it is an unknown field, which is kept and not looked at.
    if "messages" not in type(request).model_fields:
        return 0
    return of_conversations(messages) if "Batch" in type(request).__name__ else of_messages(messages)


def of_cohere(request: Any) -> int:
    inputs = request.inputs or [
        CohereEmbedInput(content=[CohereEmbedContent(type="image_url", image_url={"url": url})])
        for url in request.images or ()
    ]
    return of_conversations(map(EmbedIOProcessor._mixed_input_to_messages, inputs))


def of_scores(*sides: Any) -> int:
    entries = [entry for side in sides for entry in (side if isinstance(side, list) else [side])]
    return sum(of_parts(entry["content"]) for entry in entries if not isinstance(entry, str))


def of_tokenize(request: Any) -> int:
    return of_messages(request.messages) if "messages" in type(request).model_fields else 0


def of_completion(request: Any) -> int:
    embeds = request.prompt_embeds
    return len(embeds) if isinstance(embeds, list) else int(embeds is not None)


def of_responses(request: Any) -> int:
    return of_messages(construct_input_messages(request_input=request.input))


def of_anthropic(request: Any) -> int:
    return of_messages(AnthropicServingMessages.to_chat_completion_request(request).messages)


_Reader = tuple[TypeAdapter[Any], Callable[[Any], int]]


def _reader(kind: Any, count: Callable[[Any], int]) -> _Reader:
    return TypeAdapter(kind), count


CHAT = _reader(ChatCompletionRequest, lambda request: of_messages(request.messages))
COMPLETION = _reader(CompletionRequest, of_completion)
EMBEDDING = _reader(EmbeddingRequest, of_pooling)
POOLING = _reader(PoolingRequest, of_pooling)
CLASSIFICATION = _reader(ClassificationRequest, of_pooling)
SCORE = _reader(ScoreRequest, lambda request: of_scores(request.data_1, request.data_2))
RERANK = _reader(RerankRequest, lambda request: of_scores(request.query, request.documents))
ROUTES = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/batch": _reader(
        BatchChatCompletionRequest, lambda request: of_conversations(request.messages)
    ),
    "/tokenize": _reader(TokenizeRequest, of_tokenize),
    "/v1/completions": COMPLETION,
    "/v1/embeddings": EMBEDDING,
    "/v2/embed": _reader(CohereEmbedRequest, of_cohere),
    "/pooling": POOLING,
    "/classify": CLASSIFICATION,
    "/score": SCORE,
    "/v1/score": SCORE,
    "/rerank": RERANK,
    "/v1/rerank": RERANK,
    "/v2/rerank": RERANK,
    "/v1/messages": _reader(AnthropicMessagesRequest, of_anthropic),
    "/v1/messages/count_tokens": _reader(AnthropicCountTokensRequest, of_anthropic),
    "/v1/responses": _reader(ResponsesRequest, of_responses),
}
# By what the model does; of each the first that takes the body serves it (serve/sagemaker/api_router.py).
INVOCATIONS = ((CHAT, COMPLETION), (EMBEDDING, RERANK, SCORE, POOLING), (CLASSIFICATION, POOLING))


def count(path: str, body: str) -> int | None:
    """Media in one body, the most that any server finds; None where it is refused."""
    if path != "/invocations":
        return _counted(ROUTES[path], body)
    counts = [_first(readers, body) for readers in INVOCATIONS]
    return max((each for each in counts if each is not None), default=None)


def _first(readers: tuple[_Reader, ...], body: str) -> int | None:
    for adapter, counted in readers:
        try:
            request = adapter.validate_python(json.loads(body))
        except Exception:  # noqa: BLE001 - the next may take it
            continue
        return _safely(counted, request)
    return None


def _counted(reader: _Reader, body: str) -> int | None:
    adapter, counted = reader
    try:
        request = adapter.validate_python(json.loads(body))
    except Exception:  # noqa: BLE001 - whatever it raises, the client gets an error
        return None
    return _safely(counted, request)


def _safely(counted: Callable[[Any], int], request: Any) -> int | None:
    try:
        return counted(request)
    except Exception:  # noqa: BLE001 - likewise
        return None


def fields_of(kind: Any) -> dict[str, list[str]]:
    """Names of the fields of all models that a union holds."""
    members = typing.get_args(kind)
    if members:
        found: dict[str, list[str]] = {}
        for member in members:
            if typing.get_args(member) or hasattr(member, "model_fields"):
                found |= fields_of(member)
        return found
    return {kind.__name__.partition("[")[0]: sorted(kind.model_fields)}


def main() -> None:
    kinds = [adapter._type for adapter, _ in ROUTES.values()]
    fields = {name: names for kind in kinds for name, names in fields_of(kind).items()}
    part_fields = chat_utils._KNOWN_CONTENT_PART_FIELDS
    view = {
        "version": vllm.__version__,
        "part_types": sorted(chat_utils.MM_PARSER_MAP),
        "part_fields": sorted(part_fields),
        "fields": fields,
        "counts": [count(path, body) for path, body in json.load(sys.stdin)],
    }
    _ANSWER.write(json.dumps(view) + "\n")


if __name__ == "__main__":
    main()
