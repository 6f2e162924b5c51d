"""The clients that people have, each in a process of its own that does what a line of JSON says.

They live in an environment of their own (`make clients`): what they need must not meet what the gateway needs.
"""

import json
import os
import pathlib
import select
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = pathlib.Path(os.environ.get("CLIENTS_VENV", ROOT / ".venv-clients"))
PACKAGES_OF_NODE = ENVIRONMENT / "node" / "node_modules"
SCRIPTS = pathlib.Path(__file__).with_name("scripts")
KEY = "sk-clients"
MODEL = "tiny"
QUESTION = "What is in it?"
_ANSWER_SECONDS = 90.0  # only ends what hangs


@dataclass(frozen=True, slots=True)
class Known:
    """`package` is what it is installed as, `script` how it is driven, `actions` what it can do."""

    package: str
    script: str
    actions: tuple[str, ...]


CLIENTS = {
    "openai (Python)": Known(
        "openai", "openai_python.py", ("chat", "stream", "responses", "responses_stream", "embeddings")
    ),
    "openai (Node)": Known(
        "openai", "openai_node.cjs", ("chat", "stream", "responses", "responses_stream", "embeddings")
    ),
    "anthropic (Python)": Known(
        "anthropic", "anthropic_python.py", ("messages", "messages_stream", "tool_result", "count_tokens")
    ),
    "langchain-openai": Known("langchain-openai", "langchain.py", ("chat", "stream", "responses", "embeddings")),
    "llama-index": Known("llama-index-llms-openai-like", "llama_index_python.py", ("chat", "stream", "embeddings")),
    "Vercel AI SDK": Known("ai", "ai_sdk.cjs", ("chat", "stream", "embeddings")),
    "litellm": Known("litellm", "litellm_sdk.py", ("chat", "stream", "responses", "messages", "embeddings")),
    "curl": Known("curl", "", ("chat", "stream", "responses", "messages", "embeddings")),
}


class Client:
    """One client's process, which is started at the latest with the first that is asked of it."""

    def __init__(self, name: str, known: Known | None = None) -> None:
        self.name = name
        self._known = known or CLIENTS[name]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process: subprocess.Popen[str] | None = None
        self._is_ready = False

    @property
    def asks_by(self) -> str:
        """The action of a plain question."""
        return self._known.actions[0]

    def start(self) -> Self:
        is_node = self._known.script.endswith(".cjs")
        program = PACKAGES_OF_NODE.parent / "bin" / "node" if is_node else ENVIRONMENT / "bin" / "python"
        self._process = subprocess.Popen(
            [program, SCRIPTS / self._known.script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(),
        )
        return self

    def do(self, action: str, url: str, **asked: Any) -> dict[str, Any]:
        """What the client saw."""
        if self._process is None:
            self.start()
        if not self._is_ready:
            assert self._answer() == {"ready": True}
            self._is_ready = True
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": action, "url": url, **asked}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], _ANSWER_SECONDS)
        line = output.readline() if ready else ""
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"{self.name} said nothing:\n{self._errors.read().decode(errors='replace')[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(_ANSWER_SECONDS)
            self._process.stdout.close()
        self._errors.close()


def _environment() -> Mapping[str, str]:
    """Nothing of who runs the tests: no proxies, no keys. litellm would fetch a table of prices."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": tempfile.gettempdir(),
        "NODE_PATH": str(PACKAGES_OF_NODE),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "DO_NOT_TRACK": "1",
    }


class Curl(Client):
    """curl, with the bodies that its user would write: a process each."""

    def start(self) -> Self:
        return self

    def do(self, action: str, url: str, **asked: Any) -> dict[str, Any]:
        path, body = _body(action, asked.get("image"), asked.get("text", QUESTION))
        done = subprocess.run(
            [
                "curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--retry", "2", "--max-time", "60",
                "--header", f"authorization: Bearer {KEY}", "--header", "content-type: application/json",
                "--data-binary", "@-", "--output", "-", "--write-out", "\n%{http_code}", f"{url}{path}",
            ],
            input=json.dumps(body), capture_output=True, text=True, check=True, timeout=_ANSWER_SECONDS,
        )  # fmt: skip
        text, _, status = done.stdout.rpartition("\n")
        if status != "200":
            return {"error": "", "module": "curl", "status": int(status), "message": text}
        return _events(text) if action == "stream" else _READ[action](json.loads(text[text.index('{"id"') :]))


def _body(action: str, image: str | None, text: str) -> tuple[str, dict[str, Any]]:
    if action == "embeddings":
        return "/v1/embeddings", {"model": MODEL, "input": ["one", "two"]}
    if action == "responses":
        parts = [{"type": "input_text", "text": text}]
        parts += [{"type": "input_image", "image_url": image}] if image else []
        return "/v1/responses", {
            "model": MODEL, "input": [{"role": "user", "content": parts}], "max_output_tokens": 16,
        }  # fmt: skip
    parts = [{"type": "text", "text": text}]
    if action == "messages":
        if image:
            kind, data = image.removeprefix("data:").split(";base64,")
            parts += [{"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}]
        return "/v1/messages", {"model": MODEL, "messages": [{"role": "user", "content": parts}], "max_tokens": 8}
    parts += [{"type": "image_url", "image_url": {"url": image}}] if image else []
    body = {"model": MODEL, "messages": [{"role": "user", "content": parts}], "max_tokens": 8}
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    return "/v1/chat/completions", body | (streaming if action == "stream" else {})


def _events(text: str) -> dict[str, Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    pieces = [choice["delta"]["content"] for event in events for choice in event["choices"]]
    pieces = [piece for piece in pieces if piece]
    return {"text": "".join(pieces), "pieces": len(pieces), "prompt_tokens": events[-1]["usage"]["prompt_tokens"]}


_READ = {
    "chat": lambda answer: {
        "text": answer["choices"][0]["message"]["content"], "prompt_tokens": answer["usage"]["prompt_tokens"],
    },
    "responses": lambda answer: {
        "text": "".join(
            part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]
        ),
        "prompt_tokens": answer["usage"]["input_tokens"],
    },
    "messages": lambda answer: {
        "text": "".join(part.get("text", "") for part in answer["content"]),
        "prompt_tokens": sum(count or 0 for name, count in answer["usage"].items() if name.endswith("input_tokens")),
    },
    "embeddings": lambda answer: {"vectors": len(answer["data"]), "length": len(answer["data"][0]["embedding"])},
}  # fmt: skip


def client(name: str) -> Client:
    return (Client if CLIENTS[name].script else Curl)(name)
