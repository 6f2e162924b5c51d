"""POST /score and /rerank of an embedding model: query and documents are prompts of their own, compared afterwards.

Follows the bi-encoder of `entrypoints/pooling/scoring/`: no chat template, a query counts once however many documents
it is held against, placeholders stand before the text.
"""

from typing import Any

from gateway.emulator.content import ImageRef, parts_of
from gateway.emulator.errors import bad_request, too_many
from gateway.emulator.exchange import Exchange
from gateway.emulator.generation import random_id, text_prompt
from gateway.emulator.pooling import listed, run_prompts, vector, with_pictures
from gateway.emulator.pooling_schema import RerankRequest, ScoreRequest
from gateway.emulator.prompt import Prompt, Rendered
from gateway.emulator.schema import parse_request
from gateway.emulator.server_state import ServerState
from gateway.emulator.tokens import encode

_PART_TYPES = ("text", "image_url", "image_embeds", "video_url")


async def score(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /score and /v1/score."""
    request = parse_request(ScoreRequest, data)
    pair = request.pair()
    if pair is None:
        raise bad_request("Field required", "queries")
    state.check_model(request.model)
    prompts, scores = await _scores(state, *pair)
    items = [{"index": place, "object": "score", "score": value} for place, value in enumerate(scores)]
    await exchange.respond_json(200, listed(state, "score", items, prompts))


async def rerank(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /rerank, /v1/rerank and /v2/rerank."""
    request = parse_request(RerankRequest, data)
    state.check_model(request.model)
    documents = request.documents if isinstance(request.documents, list) else [request.documents]
    prompts, scores = await _scores(state, request.query, documents)
    ranked = sorted(range(len(documents)), key=lambda place: -scores[place])
    results = [
        {"index": place, "document": _shown(documents[place]), "relevance_score": scores[place]} for place in ranked
    ]
    tokens = sum(len(prompt.tokens) for prompt in prompts)
    answer = {
        "id": f"score-{random_id()}",
        "model": state.config.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": results[: request.top_n or None],
    }
    await exchange.respond_json(200, answer)


async def _scores(state: ServerState, first: Any, second: Any) -> tuple[list[Prompt], list[float]]:
    """All prompts, queries first, and the cosine of each pair. Raises ApiError."""
    queries = first if isinstance(first, list) else [first]
    documents = second if isinstance(second, list) else [second]
    if len(queries) > 1 and len(queries) != len(documents):
        raise bad_request("Input lengths must be either 1:1, 1:N or N:N")
    if not queries:
        raise bad_request("At least one text element must be given")
    if not documents:
        raise bad_request("At least one text_pair element must be given")
    prompts = [await _prompt(state, each) for each in (*queries, *documents)]
    await run_prompts(state, prompts)
    vectors = [vector(prompt) for prompt in prompts]
    asked = vectors[: len(queries)] * (len(documents) if len(queries) == 1 else 1)
    pairs = zip(asked, vectors[len(queries) :], strict=True)
    return prompts, [sum(a * b for a, b in zip(one, other, strict=True)) for one, other in pairs]


async def _prompt(state: ServerState, entry: Any) -> Prompt:
    if isinstance(entry, str):
        return text_prompt(state, entry)
    parts = list(parts_of([_checked(part) for part in entry.content]))
    texts = [part for part in parts if isinstance(part, str)]
    pictures = [part for part in parts if isinstance(part, ImageRef)]
    if len(pictures) > state.config.image_limit:
        raise too_many("image", state.config.image_limit)
    rendered: Rendered = [*pictures, encode("\n".join(texts))]
    return await with_pictures(state, rendered)


def _checked(part: Any) -> dict[str, Any]:
    """The schema of this route takes four kinds of parts and drops what it does not know of them."""
    if not isinstance(part, dict) or part.get("type") not in _PART_TYPES:
        raise bad_request("Input should be 'text', 'image_url', 'image_embeds' or 'video_url'", "content")
    return {name: value for name, value in part.items() if name in {"type", "text", "image_url", "image_embeds"}}


def _shown(document: Any) -> dict[str, Any]:
    if isinstance(document, str):
        return {"text": document, "multi_modal": None}
    return {"text": None, "multi_modal": document.content}
