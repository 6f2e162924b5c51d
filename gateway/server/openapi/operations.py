"""The routes that go on to vLLM or take bodies: one record each, by path. Data only; which are open is routes.py's."""

from dataclasses import dataclass

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """`request` and `answer` name schemas; `request` None: no body. `streams`: as server-sent events too.
    An empty `request` is a file.
    """

    summary: str
    request: str | None
    answer: str
    streams: bool = False
    description: str = ""
    method: str = "post"
    media_type: str = JSON


_POOLED = "Images are inspected as in a chat; nothing is generated."

OPERATIONS: dict[str, Operation] = {
    "/v1/chat/completions": Operation("Chat", "ChatRequest", "Completion", streams=True),
    "/v1/chat/completions/batch": Operation("Several chats in one request", "BatchRequest", "Anything"),
    "/v1/completions": Operation("Completion of a prompt", "CompletionRequest", "Completion", streams=True),
    "/v1/responses": Operation("OpenAI's Responses", "ResponsesRequest", "Response", streams=True),
    "/v1/responses/{response_id}": Operation(
        "A stored answer", None, "Response", streams=True, method="get", description="Of the tenant that asked for it."
    ),
    "/v1/responses/{response_id}/cancel": Operation("End a stored answer", None, "Response"),
    "/v1/messages": Operation("Anthropic's Messages", "MessagesRequest", "AnthropicAnswer", streams=True),
    "/v1/messages/count_tokens": Operation("What a message would cost", "CountTokensRequest", "Counted"),
    "/v1/embeddings": Operation("Embeddings", "EmbeddingRequest", "Anything", description=_POOLED),
    "/v2/embed": Operation("Cohere's embeddings", "CohereEmbedRequest", "Anything", description=_POOLED),
    "/pooling": Operation("Pooling", "EmbeddingRequest", "Anything", description=_POOLED),
    "/classify": Operation("Classes", "EmbeddingRequest", "Anything", description=_POOLED),
    "/score": Operation("Scores of pairs", "ScoreRequest", "Anything", description=_POOLED),
    "/v1/score": Operation("Scores of pairs", "ScoreRequest", "Anything", description=_POOLED),
    "/rerank": Operation("Reranking", "RerankRequest", "Anything", description=_POOLED),
    "/v1/rerank": Operation("Reranking", "RerankRequest", "Anything", description=_POOLED),
    "/v2/rerank": Operation("Reranking", "RerankRequest", "Anything", description=_POOLED),
    "/tokenize": Operation("Count tokens, or list them", "TokenizeRequest", "Counted"),
    "/detokenize": Operation("Text of tokens", "DetokenizeRequest", "Anything"),
    "/v1/models": Operation("What is served", None, "Models", method="get"),
    "/v1/models/{model}": Operation("One model", None, "Model", method="get"),
    "/gateway/try": Operation(
        "What would become of a picture",
        "",
        "Anything",
        media_type="image/*",
        description="For the status page, and only for whom that is for.",
    ),
}

UNDESCRIBED = Operation("Goes on to vLLM", "Anything", "Anything")
"""A route that has no record yet."""
