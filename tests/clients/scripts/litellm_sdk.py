"""litellm's SDK as a client, by its routes `openai/` and `anthropic/`.

Without `num_retries`, which sends again whatever failed, what is wrong for good too.
"""

from typing import Any

import litellm
from lines import KEY, MODEL, QUESTION, serve

litellm.suppress_debug_info = True


def messages(text: str, image: str | None) -> list[Any]:
    picture = [] if image is None else [{"type": "image_url", "image_url": {"url": image}}]
    return [{"role": "user", "content": [{"type": "text", "text": text}, *picture]}]


def ask(provider: str, base: str, text: str, image: str | None, **options: Any) -> Any:
    return litellm.completion(
        model=f"{provider}/{MODEL}",
        api_base=base,
        api_key=KEY,
        messages=messages(text, image),
        max_tokens=8,
        **options,
    )


def seen(answer: Any) -> dict[str, Any]:
    return {"text": answer.choices[0].message.content, "prompt_tokens": answer.usage.prompt_tokens}


def chat(url: str, text: str = QUESTION, image: str | None = None) -> dict[str, Any]:
    return seen(ask("openai", f"{url}/v1", text, image))


def stream(url: str, image: str | None = None) -> dict[str, Any]:
    events = ask("openai", f"{url}/v1", QUESTION, image, stream=True)
    pieces = [event.choices[0].delta.content for event in events if event.choices and event.choices[0].delta.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


def responses(url: str, image: str | None = None) -> dict[str, Any]:
    picture = [] if image is None else [{"type": "input_image", "image_url": image}]
    asked = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}, *picture]}]
    answer = litellm.responses(
        model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key=KEY, input=asked, max_output_tokens=16
    )
    return {"text": answer.output_text, "prompt_tokens": answer.usage.input_tokens}


def by_messages(url: str, image: str | None = None, text: str = QUESTION) -> dict[str, Any]:
    """/v1/messages."""
    return seen(ask("anthropic", url, text, image))


def embeddings(url: str) -> dict[str, Any]:
    answer = litellm.embedding(
        model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key=KEY, input=["one", "two"], encoding_format="float"
    )
    return {"vectors": len(answer.data), "length": len(answer.data[0]["embedding"])}


serve({"chat": chat, "stream": stream, "responses": responses, "messages": by_messages, "embeddings": embeddings})
