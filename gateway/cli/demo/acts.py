"""The demo's four acts, through the OpenAI SDK as any client would play them, and what was seen of each.

Every number is one that the gateway declared in a header, the engine reported as usage, or /metrics counted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from gateway.cli.demo.meter import Meter, Reading
from gateway.cli.demo.pictures import Picture, photograph, screenshot
from gateway.domain.geometry import Size

TURNS = 20
TURN_SCREENSHOT = Size(1280, 800)
BURST_REQUESTS = 40
BURST_PHOTOGRAPH = Size(1600, 1200)
_BURST_PICTURES = 8
_SHORT_ANSWER_TOKENS = 32
_BURST_ANSWER_TOKENS = 96
_SETTLED_SECONDS = 5.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Served:
    """One answered request. `encoder_tokens` are the engine's own count, `visual_tokens` the gateway's prediction,
    which counts each image's two markers too; `cached_tokens` the engine found in its prefix cache.
    """

    seconds: float
    headers: Mapping[str, str]
    prompt_tokens: int
    encoder_tokens: int
    cached_tokens: int
    text: str

    @property
    def visual_tokens(self) -> int:
        return int(self.headers["x-gateway-visual-tokens"])

    @property
    def predicted_tokens(self) -> int:
        return int(self.headers["x-gateway-prompt-tokens"])

    @property
    def changes(self) -> str:
        """What the gateway says that it did to the images; empty for nothing."""
        return self.headers.get("x-gateway-images", "")


@dataclass(frozen=True, slots=True)
class PictureSeen:
    """One picture twice: as it came (`x-gateway-resize: off`) and under the operator's policy."""

    picture: Picture
    before: Served
    after: Served


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the conversation. `decode_seconds` is what the gateway spent on checking pictures."""

    number: int
    sent: int
    forwarded: int
    trimmed: int
    engine_cache_hits: int
    decode_seconds: float
    served: Served


@dataclass(frozen=True, slots=True)
class BurstAnswer:
    """One request of the burst. `answered_seconds` until its first token or its refusal, of which `waited_seconds` were
    in the gateway's queue (told only of those served); `reason` None where it was served.
    """

    status: int
    answered_seconds: float
    waited_seconds: float = 0.0
    reason: str | None = None
    message: str = ""
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Burst:
    """All of them, and what the gateway still held when it was over."""

    answers: tuple[BurstAnswer, ...]
    held_blocks_after: float
    queue_depth_after: float

    @property
    def at_once(self) -> list[BurstAnswer]:
        return [answer for answer in self.answers if answer.reason is None and not answer.waited_seconds]

    @property
    def waited(self) -> list[BurstAnswer]:
        return [answer for answer in self.answers if answer.reason is None and answer.waited_seconds]

    @property
    def refused(self) -> list[BurstAnswer]:
        return [answer for answer in self.answers if answer.reason is not None]


@dataclass(frozen=True, slots=True)
class Play:
    """All acts."""

    pictures: list[PictureSeen]
    turns: list[Turn]
    burst: Burst

    @property
    def served(self) -> list[Served]:
        """Every answer that came with usage."""
        pairs = [(seen.before, seen.after) for seen in self.pictures]
        return [served for pair in pairs for served in pair] + [turn.served for turn in self.turns]


class Stage:
    """What the acts need: the SDK, the meter, and a way to tell how far they are."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, meter: Meter, tell: Tell) -> None:
        self._client = client
        self._model = model
        self._meter = meter
        self._tell = tell

    async def show_pictures(self) -> list[PictureSeen]:
        """Acts 1 and 2: a photograph and a screenshot."""
        self._tell("making a 12 MP photograph and a screenshot")
        seen = []
        for picture in (await asyncio.to_thread(photograph), await asyncio.to_thread(screenshot)):
            messages = [_user("What is in this picture?", picture)]
            self._tell(f"{picture.name}: as it came")
            before = await self._ask(messages, resize="off")
            self._tell(f"{picture.name}: under the operator's policy")
            seen.append(PictureSeen(picture, before, await self._ask(messages)))
        return seen

    async def converse(self, turns: int = TURNS) -> list[Turn]:
        """Act 3: every turn adds a screenshot and sends all that was said before again."""
        history: list[dict[str, Any]] = []
        seen: list[Turn] = []
        reading = await self._meter.read()
        for number in range(1, turns + 1):
            self._tell(f"conversation: turn {number} of {turns}")
            picture = await asyncio.to_thread(screenshot, TURN_SCREENSHOT, number)
            history.append(_user(f"Step {number}: here is the screen now. What next?", picture))
            served = await self._ask(history)
            history.append({"role": "assistant", "content": served.text})
            before, reading = reading, await self._meter.read()
            seen.append(_turn(number, served, before, reading))
        return seen

    async def burst(self, requests: int = BURST_REQUESTS) -> Burst:
        """Act 4: many streaming requests at the same moment, more than the KV pool and the queue hold."""
        self._tell(f"burst: making {_BURST_PICTURES} photographs")
        pictures = [
            await asyncio.to_thread(photograph, BURST_PHOTOGRAPH, seed) for seed in range(1, _BURST_PICTURES + 1)
        ]
        self._tell(f"burst: {requests} streaming requests at once")
        answers = await asyncio.gather(
            *(self._stream(f"Request {number}.", pictures[number % len(pictures)]) for number in range(requests))
        )
        after = await self._settled()
        held = after.sum("gateway_held", resource="kv_blocks")
        return Burst(tuple(answers), held, after.sum("gateway_queue_depth"))

    async def _ask(self, messages: Sequence[dict[str, Any]], resize: str | None = None) -> Served:
        begun = time.monotonic()
        answer = await self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=messages,  # type: ignore[arg-type]  # plain dictionaries, as users write them
            max_tokens=_SHORT_ANSWER_TOKENS,
            extra_headers={"x-gateway-resize": resize} if resize else None,
        )
        completion = answer.parse()
        assert completion.usage is not None, "vLLM always reports usage of what is not streamed"
        return _served(
            time.monotonic() - begun, answer.headers, completion.usage, completion.choices[0].message.content
        )

    async def _stream(self, text: str, picture: Picture) -> BurstAnswer:
        begun = time.monotonic()
        try:
            answer = await self._client.chat.completions.with_raw_response.create(
                model=self._model,
                messages=[_user(text, picture)],  # type: ignore[list-item]  # plain dictionaries, as users write them
                max_tokens=_BURST_ANSWER_TOKENS,
                stream=True,
            )
        except openai.APIStatusError as refused:
            return _refused(time.monotonic() - begun, refused)
        stream: openai.AsyncStream[ChatCompletionChunk] = answer.parse()  # type: ignore[assignment]  # raw loses `stream`
        answered_seconds = 0.0
        async for _ in stream:
            answered_seconds = answered_seconds or time.monotonic() - begun
        waited_seconds = int(answer.headers["x-gateway-queue-ms"]) / 1000
        return BurstAnswer(200, answered_seconds, waited_seconds)

    async def _settled(self) -> Reading:
        """The metrics once the last lease is given back, or as they are when that takes too long."""
        give_up_at = time.monotonic() + _SETTLED_SECONDS
        while True:
            reading = await self._meter.read()
            if not reading.sum("gateway_held", resource="seats") or time.monotonic() > give_up_at:
                return reading
            await asyncio.sleep(0.05)


def _user(text: str, picture: Picture) -> dict[str, Any]:
    return {"role": "user", "content": [picture.part, {"type": "text", "text": text}]}


def _served(seconds: float, headers: Mapping[str, str], usage: CompletionUsage, text: str | None) -> Served:
    details = usage.prompt_tokens_details
    # vLLM's own field, beside those that the SDK knows.
    by_kind = (details.model_extra or {}).get("multimodal_tokens") if details else None
    return Served(
        seconds=seconds,
        headers=headers,
        prompt_tokens=usage.prompt_tokens,
        encoder_tokens=(by_kind or {}).get("image", 0),
        cached_tokens=(details.cached_tokens if details else None) or 0,
        text=text or "",
    )


def _turn(number: int, served: Served, before: Reading, after: Reading) -> Turn:
    return Turn(
        number=number,
        sent=number,
        forwarded=round(after.since(before, "vllm:mm_cache_queries_total")),
        trimmed=round(after.since(before, "gateway_images_total", action="trimmed")),
        engine_cache_hits=round(after.since(before, "vllm:mm_cache_hits_total")),
        decode_seconds=after.since(before, "gateway_transform_seconds_sum"),
        served=served,
    )


def _refused(seconds: float, error: openai.APIStatusError) -> BurstAnswer:
    headers = error.response.headers
    body = error.body if isinstance(error.body, dict) else {}
    return BurstAnswer(
        status=error.status_code,
        answered_seconds=seconds,
        reason=headers.get("x-gateway-reason", "-"),
        message=str(body.get("message", error.message)),
        retry_after=headers.get("retry-after"),
    )
