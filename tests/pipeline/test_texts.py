"""How much text is worth counting, and what becomes of the rest."""

import json
import threading

import pytest

from gateway.domain.media import MediaKind, MediaRef
from gateway.domain.request import MessageOutline, VisionRequest
from gateway.domain.vision.registry import family_for
from gateway.models.exact_text import TextCount
from gateway.models.served import ServedModel
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.texts import count_text, encode_chat
from gateway.wire.dialects.batch import parse_batch
from gateway.wire.routes import classify

PATH = "/v1/chat/completions"


class Counter:
    """Says 7; notes how long the texts were."""

    def __init__(self):
        self.lengths = []

    def count(self, chat):
        self.lengths.append(len(chat["messages"][0]["content"]))
        return TextCount(7, None)


@pytest.mark.parametrize(
    ("max_model_len", "text_bytes", "is_exact"),
    [
        (1_000, 15_900, True),
        (1_000, 16_100, False),
        (1_000_000, 1_000_000, True),
        (1_000_000, 1_100_000, False),
        (None, 1_000_000, True),
        (None, 1_100_000, False),
    ],
)
async def test_texts_that_cannot_fit_or_take_too_much_memory_are_bounded_by_their_bytes(
    max_model_len, text_bytes, is_exact
):
    model = ServedModel("m", family_for("qwen2_5_vl", None), exact_text=Counter(), max_model_len=max_model_len)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * text_bytes}]}).encode()
    exchange = Exchange("id", "POST", PATH, b"", (), 0.0, route=classify("POST", PATH), body=body)
    text = await count_text(exchange, VisionRequest("m", messages=(MessageOutline("user", text_bytes),)), model)
    assert (text.lower == text.upper == 7) is is_exact
    assert model.exact_text.lengths == ([text_bytes] if is_exact else [])


async def test_a_video_leaves_the_text_to_be_estimated():
    """What a template makes of it is not followed, and its megabytes are not worth a parser's time."""
    model = ServedModel("m", family_for("qwen2_5_vl", None), exact_text=Counter())
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 100}]}).encode()
    exchange = Exchange("id", "POST", PATH, b"", (), 0.0, route=classify("POST", PATH), body=body)
    request = VisionRequest("m", messages=(MessageOutline("user", 100),), media=(MediaRef(MediaKind.VIDEO, "p", "p"),))
    text = await count_text(exchange, request, model)
    assert text.lower < text.expected < text.upper
    assert await encode_chat(exchange, request, model, (), "") is None
    assert model.exact_text.lengths == []


BATCH = "/v1/chat/completions/batch"


async def count_batch(conversations, counter):
    model = ServedModel("m", family_for("qwen2_5_vl", None), exact_text=counter, max_model_len=1000)
    body = json.dumps({"messages": [[{"role": "user", "content": "x"}]] * conversations}).encode()
    exchange = Exchange("id", "POST", BATCH, b"", (), 0.0, route=classify("POST", BATCH), body=body)
    return await count_text(exchange, parse_batch(body), model)


class NotingThreads(Counter):
    def __init__(self):
        super().__init__()
        self.threads = set()

    def count(self, chat):
        self.threads.add(threading.current_thread())
        return super().count(chat)


@pytest.mark.parametrize(("conversations", "is_inline"), [(1, True), (16, True), (17, False), (1024, False)])
async def test_many_conversations_do_not_hold_up_the_loop_while_they_are_counted(conversations, is_inline):
    counter = NotingThreads()
    text = await count_batch(conversations, counter)
    assert text.lower == text.upper == 7 * conversations
    assert (counter.threads == {threading.main_thread()}) is is_inline
    assert len(counter.threads) == 1


async def test_very_many_conversations_are_bounded_by_their_bytes():
    counter = NotingThreads()
    text = await count_batch(1025, counter)
    assert text.lower < text.upper
    assert counter.lengths == []
