"""llama-index, by its class for servers that are like OpenAI's."""

from typing import Any

from lines import KEY, MODEL, QUESTION, serve
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike


def model(url: str) -> OpenAILike:
    return OpenAILike(
        model=MODEL, api_base=f"{url}/v1", api_key=KEY, is_chat_model=True, context_window=32_768, max_tokens=8
    )


def messages(text: str, image: str | None) -> list[ChatMessage]:
    picture = [] if image is None else [ImageBlock(url=image)]
    return [ChatMessage(role="user", blocks=[TextBlock(text=text), *picture])]


def chat(url: str, text: str = QUESTION, image: str | None = None) -> dict[str, Any]:
    answer = model(url).chat(messages(text, image))
    return {"text": answer.message.content, "prompt_tokens": answer.raw.usage.prompt_tokens}


def stream(url: str, image: str | None = None) -> dict[str, Any]:
    pieces = [piece.delta for piece in model(url).stream_chat(messages(QUESTION, image)) if piece.delta]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def embeddings(url: str) -> dict[str, Any]:
    embedder = OpenAILikeEmbedding(model_name=MODEL, api_base=f"{url}/v1", api_key=KEY)
    vectors = embedder.get_text_embedding_batch(["one", "two"])
    return {"vectors": len(vectors), "length": len(vectors[0])}


serve({"chat": chat, "stream": stream, "embeddings": embeddings})
