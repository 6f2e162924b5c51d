"""Answers that no sane model server gives, each a script for `model_server`, and the status that a client must see.

None of them may hurt the gateway: what cannot be passed on is a 502 or 504 with a sentence, what breaks off later is
cut off, and what is only unusual passes unchanged.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.model_server import ANSWER, EVENTS
from tests.support.raw_http import Script, Visit

_JSON = b"content-type: application/json\r\n"
_SSE = b"content-type: text/event-stream\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"


@dataclass(frozen=True)
class OddAnswer:
    """`status` is what the client sees; `body` what it reads, None where that does not matter.

    `is_faulty` says that the fault stands in the body: a client is told by a 502 where it shows together with the
    head, else by an answer that is cut off or, in a stream, by an error event.
    """

    name: str
    script: Script
    status: int = 502
    body: bytes | None = None
    is_faulty: bool = False

    def __str__(self) -> str:
        return self.name


def wire(*pieces: bytes, hang_up: bool = True) -> Script:
    """Writes just these bytes."""

    async def script(visit: Visit) -> None:
        for piece in pieces:
            await visit.write(piece)
        if hang_up:
            visit.writer.close()
            raise ConnectionError

    return script


def whole(body: bytes, *, status: str = "200 OK", head: bytes = _JSON) -> Script:
    return wire(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status.encode(), head, len(body), body))


def chunked(*chunks: bytes, head: bytes = _SSE, end: bytes = b"0\r\n\r\n") -> Script:
    framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return wire(b"HTTP/1.1 200 OK\r\n" + head + _CHUNKED + b"\r\n", *framed, end)


def dripping(begin: bytes, piece: bytes) -> Script:
    """`begin`, and then a piece each twentieth of a second, for as long as somebody reads."""

    async def script(visit: Visit) -> None:
        await visit.write(begin)
        while True:
            await visit.write(piece)
            await asyncio.sleep(0.05)

    return script


def endless(piece: Callable[[int], bytes], *, begin: bytes, pieces: int) -> Script:
    """`begin`, and then piece after piece, for as long as somebody reads, `pieces` at most."""

    async def script(visit: Visit) -> None:
        await visit.write(begin)
        for index in range(pieces):
            await visit.write(piece(index))
        await visit.reader.read()

    return script


def answer_with_usage(usage: bytes) -> bytes:
    return b'{"choices":[],"usage":%s}' % usage


_LINE = b"HTTP/1.1 200 OK\r\n"
_DEEP = b"[" * 100_000 + b"]" * 100_000
_LONG_NUMBER = b"9" * 5_000

STATUSES = [
    OddAnswer(f"status {status}", whole(ANSWER, status=status))
    for status in (
        "000 Zero",
        "099 Low",
        "199 Odd",
        "600 High",
        "999 Odd",
        "101 Switching Protocols",
        "2000 Long",
        "-1 x",
        "abc",
    )
] + [
    OddAnswer(
        "an endless line of 100 Continue",
        endless(lambda _: b"HTTP/1.1 100 Continue\r\n\r\n" * 100, begin=b"", pieces=10_000_000),
        504,
    ),
    OddAnswer(
        "102 before the answer",
        wire(b"HTTP/1.1 102 Processing\r\n\r\n" + _LINE + b"content-length: 2\r\n\r\n{}", hang_up=False),
        200,
        b"{}",
    ),
    OddAnswer("204 with a body", whole(b"{}", status="204 No Content"), 204, is_faulty=True),
    OddAnswer("304", whole(b"", status="304 Not Modified")),
    OddAnswer("300", whole(b"", status="300 Multiple Choices")),
    OddAnswer("418", whole(b"{}", status="418 Teapot"), 418, b"{}"),
    OddAnswer("599", whole(b"{}", status="599 Odd"), 599, b"{}"),
]

HEADS = [
    OddAnswer("no HTTP at all", wire(b"hello\r\n\r\n")),
    OddAnswer("HTTP/0.9", wire(b"<html>")),
    OddAnswer("HTTP/2", wire(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    OddAnswer("binary", wire(bytes(range(256)))),
    OddAnswer("nothing", wire()),
    OddAnswer("half a head", wire(_LINE + b"content-ty")),
    OddAnswer(
        "a head that never ends", endless(lambda index: b"x-%d: y\r\n" % index * 100, begin=_LINE, pieces=1_000_000)
    ),
    OddAnswer("a header of 100 MB", endless(lambda _: b"y" * 1_000_000, begin=_LINE + b"x: ", pieces=100)),
    OddAnswer("a status line of 100 MB", endless(lambda _: b"y" * 1_000_000, begin=b"HTTP/1.1 200 ", pieces=100)),
    OddAnswer("a head that drips", dripping(_LINE + b"x: ", b"y"), 504),
    OddAnswer("a content-length that is no number", wire(_LINE + b"content-length: ten\r\n\r\n{}")),
    OddAnswer("a negative content-length", wire(_LINE + b"content-length: -2\r\n\r\n{}")),
    OddAnswer("a content-length of 400 digits", wire(_LINE + b"content-length: " + b"9" * 400 + b"\r\n\r\n{}")),
    OddAnswer("two lengths", wire(_LINE + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}")),
    OddAnswer("length and chunks", wire(_LINE + b"content-length: 2\r\n" + _CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\r\n")),
    OddAnswer("a header name with a space", wire(_LINE + b"x y: z\r\ncontent-length: 2\r\n\r\n{}")),
    OddAnswer("a header value with a null", wire(_LINE + b"x: a\0b\r\ncontent-length: 2\r\n\r\n{}")),
    OddAnswer(
        "a header value with a bare carriage return",
        wire(_LINE + b"x: a\rset-cookie: b\r\ncontent-length: 2\r\n\r\n{}"),
    ),
    OddAnswer("a header value in Latin-1", wire(_LINE + b"x: \xe4\xff\r\ncontent-length: 2\r\n\r\n{}"), 200, b"{}"),
]

BODIES = [
    OddAnswer("an empty 200", whole(b""), 200, b""),
    OddAnswer("an empty 200 without a length", wire(_LINE + b"\r\n"), 200, b""),
    OddAnswer("no content type", whole(ANSWER, head=b""), 200, ANSWER),
    OddAnswer("HTML", whole(b"<html>", head=b"content-type: text/html\r\n"), 200, b"<html>"),
    OddAnswer("a content type that is none", whole(ANSWER, head=b"content-type: \xff;;=\r\n"), 200, ANSWER),
    OddAnswer(
        "a coding nobody asked for",
        whole(b"\x1f\x8bnot gzip", head=b"content-encoding: compress\r\n"),
        200,
        b"\x1f\x8bnot gzip",
    ),
    OddAnswer(
        "fewer bytes than announced",
        wire(_LINE + _JSON + b"content-length: 500\r\n\r\n" + ANSWER[:20]),
        200,
        is_faulty=True,
    ),
    OddAnswer(
        "more bytes than announced",
        wire(_LINE + _JSON + b"content-length: 2\r\n\r\n{}and more", hang_up=False),
        200,
        is_faulty=True,
    ),
    OddAnswer("a body until the connection ends", wire(_LINE + _JSON + b"\r\n" + ANSWER), 200, ANSWER),
    OddAnswer("chunks without an end", chunked(ANSWER, head=_JSON, end=b""), 200, is_faulty=True),
    OddAnswer("a chunk size that is no number", chunked(ANSWER, head=_JSON, end=b"zz\r\n"), 200, is_faulty=True),
    OddAnswer("a negative chunk size", chunked(ANSWER, head=_JSON, end=b"-5\r\n"), 200, is_faulty=True),
    OddAnswer("a chunk size of 400 digits", chunked(ANSWER, head=_JSON, end=b"f" * 400 + b"\r\n"), 200, is_faulty=True),
    OddAnswer(
        "a chunk extension of 10 MB", chunked(ANSWER, head=_JSON, end=b"5;" + b"x" * 10_000_000), 200, is_faulty=True
    ),
    OddAnswer(
        "trailers of 10 MB", chunked(ANSWER, head=_JSON, end=b"0\r\nx: " + b"x" * 10_000_000), 200, is_faulty=True
    ),
    OddAnswer(
        "a body that drips", dripping(_LINE + _JSON + b"content-length: 9999\r\n\r\n", b" "), 200, is_faulty=True
    ),
    OddAnswer("a byte order mark", whole(b"\xef\xbb\xbf" + ANSWER), 200, b"\xef\xbb\xbf" + ANSWER),
    OddAnswer("JSON that is not UTF-8", whole(b'{"x":"\xff\xfe\xed\xa0\x80"}'), 200, b'{"x":"\xff\xfe\xed\xa0\x80"}'),
]

USAGES = [
    OddAnswer(f"usage that is {name}", whole(body), 200, body)
    for name, body in {
        "deep": answer_with_usage(_DEEP),
        "deep inside": answer_with_usage(b'{"prompt_tokens":1,"x":%s}' % _DEEP),
        "deep and cut": answer_with_usage(b'{"prompt_tokens":1,"x":' + b"[" * 4_000),
        "deep objects": answer_with_usage(b'{"x":' * 2_000 + b"1" + b"}" * 2_000),
        "huge": answer_with_usage(b"{%s}" % b",".join(b'"k%d":1' % key for key in range(200_000))),
        "of long numbers": answer_with_usage(
            b'{"prompt_tokens":%s,"completion_tokens":%s}' % (_LONG_NUMBER, _LONG_NUMBER)
        ),
        "of long numbers after a long text": b'{"x":"%s","usage":{"prompt_tokens":%s}}' % (b"x" * 9_000, _LONG_NUMBER),
        "of great numbers": answer_with_usage(b'{"prompt_tokens":%d,"completion_tokens":%d}' % (2**63 - 1, 2**63 - 1)),
        "negative": answer_with_usage(b'{"prompt_tokens":-5,"completion_tokens":-7}'),
        "of fractions": answer_with_usage(b'{"prompt_tokens":1e308,"completion_tokens":-1e308}'),
        "a text": answer_with_usage(b'"many"'),
        "a list": answer_with_usage(b"[1,2]"),
        "true": answer_with_usage(b'{"prompt_tokens":true,"completion_tokens":false}'),
    }.items()
]

_EVENT = EVENTS[1].removesuffix(b"\n\n")
STREAMS = [
    OddAnswer("a stream without [DONE]", chunked(*EVENTS[:-1]), 200, is_faulty=True),
    OddAnswer("a stream without events", chunked(), 200, is_faulty=True),
    OddAnswer(
        "a stream of CRLF",
        chunked(_EVENT + b"\r\n\r\n", b"data: [DONE]\r\n\r\n"),
        200,
        _EVENT + b"\r\n\r\ndata: [DONE]\r\n\r\n",
    ),
    OddAnswer("a stream of CR", chunked(_EVENT + b"\r\r", b"data: [DONE]\r\r"), 200, _EVENT + b"\r\rdata: [DONE]\r\r"),
    OddAnswer(
        "a stream that is not UTF-8", chunked(b"data: \xff\xfe\n\n", EVENTS[2]), 200, b"data: \xff\xfe\n\n" + EVENTS[2]
    ),
    OddAnswer("comments only", chunked(b": ping\n\n" * 1000), 200, is_faulty=True),
    OddAnswer("a stream with deep usage", chunked(b'data: {"usage":%s}\n\n' % _DEEP, EVENTS[2]), 200),
    OddAnswer("a stream with a deep error", chunked(b'data: {"error":%s}\n\n' % _DEEP, EVENTS[2]), 200),
    OddAnswer(
        "a stream with an odd error code",
        chunked(b'data: {"error":{"message":"x","code":%d}}\n\n' % 10**18, EVENTS[2]),
        200,
    ),
    OddAnswer(
        "a stream with a negative error code", chunked(b'data: {"error":{"message":"x","code":-1}}\n\n', EVENTS[2]), 200
    ),
    OddAnswer(
        "a stream with negative usage",
        chunked(b'data: {"usage":{"prompt_tokens":-9,"completion_tokens":-9}}\n\n', EVENTS[2]),
        200,
    ),
    OddAnswer(
        "a stream that is reset",
        wire(_LINE + _SSE + _CHUNKED + b"\r\n", b"%x\r\n%s\r\n" % (len(EVENTS[0]), EVENTS[0])),
        200,
        is_faulty=True,
    ),
    OddAnswer(
        "a stream that is HTML", chunked(b"<html>" * 1000, head=b"content-type: text/html\r\n"), 200, b"<html>" * 1000
    ),
    OddAnswer("a million empty events", chunked(*[b"data:\n\n" * 10_000] * 100, EVENTS[2]), 200),
]
