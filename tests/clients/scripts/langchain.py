"""langchain-openai, as agents use it."""

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from lines import KEY, MODEL, QUESTION, serve


def model(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=KEY, **{"max_tokens": 8} | options)


def message(text: str, image: str | None) -> HumanMessage:
    picture = [] if image is None else [{"type": "image_url", "image_url": {"url": image}}]
    return HumanMessage([{"type": "text", "text": text}, *picture])


def chat(url: str, text: str = QUESTION, image: str | None = None) -> dict[str, Any]:
    answer = model(url).invoke([message(text, image)])
    return {"text": answer.text, "prompt_tokens": answer.usage_metadata["input_tokens"]}


def stream(url: str, image: str | None = None) -> dict[str, Any]:
    pieces, whole = [], None
    for piece in model(url, stream_usage=True).stream([message(QUESTION, image)]):
        pieces += [piece.text] if piece.text else []
        whole = piece if whole is None else whole + piece
    return {"text": "".join(pieces), "pieces": len(pieces), "prompt_tokens": whole.usage_metadata["input_tokens"]}


def responses(url: str, image: str | None = None) -> dict[str, Any]:
    answer = model(url, use_responses_api=True, max_tokens=16).invoke([message(QUESTION, image)])
    return {"text": answer.text, "prompt_tokens": answer.usage_metadata["input_tokens"]}


def embeddings(url: str) -> dict[str, Any]:
    # Without the check it would count tokens with a file from the internet, and send ids of OpenAI's own vocabulary.
    embedder = OpenAIEmbeddings(model=MODEL, base_url=f"{url}/v1", api_key=KEY, check_embedding_ctx_length=False)
    vectors = embedder.embed_documents(["one", "two"])
    return {"vectors": len(vectors), "length": len(vectors[0])}


serve({"chat": chat, "stream": stream, "responses": responses, "embeddings": embeddings})
