"""OpenAI's own SDK for Python."""

from typing import Any

import openai
from lines import KEY, MODEL, QUESTION, serve


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)


def messages(text: str, image: str | None) -> list[Any]:
    if image is None:
        return [{"role": "user", "content": text}]
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
    return [{"role": "user", "content": parts}]


def chat(url: str, text: str = QUESTION, image: str | None = None) -> dict[str, Any]:
    answer = client(url).chat.completions.create(model=MODEL, messages=messages(text, image), max_tokens=8)
    return {"text": answer.choices[0].message.content, "prompt_tokens": answer.usage.prompt_tokens}


def stream(url: str, image: str | None = None) -> dict[str, Any]:
    events = client(url).chat.completions.create(
        model=MODEL,
        messages=messages(QUESTION, image),
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces, prompt_tokens = [], None
    for event in events:
        pieces += [choice.delta.content for choice in event.choices if choice.delta.content]
        prompt_tokens = event.usage.prompt_tokens if event.usage else prompt_tokens
    return {"text": "".join(pieces), "pieces": len(pieces), "prompt_tokens": prompt_tokens}


def _input(image: str | None) -> list[Any]:
    picture = [] if image is None else [{"type": "input_image", "image_url": image, "detail": "auto"}]
    return [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}, *picture]}]


def responses(url: str, image: str | None = None) -> dict[str, Any]:
    answer = client(url).responses.create(model=MODEL, input=_input(image), max_output_tokens=16)
    return {"text": answer.output_text, "prompt_tokens": answer.usage.input_tokens}


def responses_stream(url: str, image: str | None = None) -> dict[str, Any]:
    pieces = []
    with client(url).responses.stream(model=MODEL, input=_input(image), max_output_tokens=16) as events:
        pieces += [event.delta for event in events if event.type == "response.output_text.delta"]
        answer = events.get_final_response()
    return {"text": "".join(pieces), "pieces": len(pieces), "prompt_tokens": answer.usage.input_tokens}


def embeddings(url: str) -> dict[str, Any]:
    answer = client(url).embeddings.create(model=MODEL, input=["one", "two"])
    return {"vectors": len(answer.data), "length": len(answer.data[0].embedding)}


serve(
    {
        "chat": chat,
        "stream": stream,
        "responses": responses,
        "responses_stream": responses_stream,
        "embeddings": embeddings,
    }
)
