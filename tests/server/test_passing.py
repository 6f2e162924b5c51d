"""What passes unchanged passes byte for byte; what is changed differs in the spliced ranges only.

That streams are asked for their usage, and how it is kept out of them again: test_usage.py.
"""

import gzip
import json

import pytest

from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway
from tests.support.model_server import ANSWER, EVENTS, model_server, posts
from tests.support.pictures import data_url, encoded, picture

JSON = {"content-type": "application/json"}
SOUND = data_url(encoded(picture(56, 28)))
TURNED = data_url(encoded(picture(56, 28), "JPEG", orientation=6), "image/jpeg")
ODD = """  {"zeta":1e40, "temperature" :0.50,"messages": [
\t{"content":[ {"image_url":{"url":"%s" ,"detail":"auto"}, "type":"image_url","x-extra":[1, 2 ,{}]},
 {"type" : "text","text":"\\u00e9\\/ caf\u00e9"} ] , "role":"user"}],\r
 "model":"%s", "unknown":{"b":null,"a":[ ]}, "seed":0}  """


async def sent(body: bytes, **headers: str) -> tuple[bytes, object]:
    """What the upstream got for `body`, and the answer."""
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.post(CHAT, content=body, headers=JSON | headers)
        assert answer.status_code == 200, answer.text
        (visit,) = posts(upstream)
        return visit.body, answer


async def test_a_body_with_nothing_to_change_goes_on_as_it_came():
    body = (ODD % (SOUND, MODEL)).encode()
    received, answer = await sent(body)
    assert received == body
    assert answer.content == ANSWER
    assert "x-gateway-images" not in answer.headers


async def test_a_large_body_goes_on_as_it_came():
    body = json.dumps(
        chat("y" * 100, *[image(data_url(encoded(picture(700, 500, seed=s)))) for s in range(3)])
    ).encode()
    assert len(body) > 300_000
    received, _ = await sent(body)
    assert received == body


async def test_only_the_picture_that_is_turned_is_written_anew():
    body = json.dumps(chat("Before", image(TURNED), image(SOUND), user="é"), indent=3).encode()
    before, after = body.split(TURNED.encode())
    received, answer = await sent(body)
    assert received.startswith(before + b"data:image/jpeg;base64,")
    assert received.endswith(after)
    assert TURNED.encode() not in received
    assert answer.headers["x-gateway-images"] == "0;normalised;28x56"


@pytest.mark.parametrize(
    ("spelling", "becomes"),
    [
        (SOUND.replace("image/png", "image/jpeg"), SOUND),
        (SOUND.replace("data:image", "DATA:image"), SOUND),
        (SOUND.rstrip("="), SOUND),
    ],
)
async def test_a_spelling_that_vllm_would_refuse_is_mended_in_place(spelling, becomes):
    body = json.dumps(chat(image(spelling), seed=1)).encode()
    received, _ = await sent(body)
    assert received == body.replace(spelling.encode(), becomes.encode())


async def test_a_bare_string_becomes_the_object_that_vllm_wants():
    body = json.dumps(chat({"type": "image_url", "image_url": SOUND})).encode()
    received, _ = await sent(body)
    assert received == body.replace(b'"%s"' % SOUND.encode(), b'{"url":"%s"}' % SOUND.encode())


async def test_a_uuid_beside_a_picture_is_another_one_behind_the_gateway():
    received, _ = await sent(json.dumps(chat(image(SOUND) | {"uuid": "u-1"}, seed=1)).encode())
    uuid = json.loads(received)["messages"][0]["content"][0]["uuid"]
    assert uuid != "u-1"
    assert json.loads(received) == chat(image(SOUND) | {"uuid": uuid}, seed=1)


async def test_a_uuid_that_is_no_text_stays_here():
    received, _ = await sent(json.dumps(chat(image(SOUND) | {"uuid": 7}, seed=1)).encode())
    assert json.loads(received) == chat(image(SOUND), seed=1)


async def test_a_coded_body_goes_on_decoded_and_says_nothing_of_the_coding():

    plain = json.dumps(chat(seed=1)).encode()
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.http.post(CHAT, content=gzip.compress(plain), headers=JSON | {"content-encoding": "gzip"})
        (visit,) = posts(upstream)
    assert (visit.body, visit.header("content-encoding")) == (plain, [])
    assert visit.header("content-length") == [str(len(plain))]


async def test_a_chunked_body_holds_only_what_came():
    held = {}

    async def look(visit):
        held.update(gateway.held())
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    async def chunks():
        yield b" " * 10
        yield json.dumps(chat()).encode()

    async with model_server(look) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.post(CHAT, content=chunks(), headers=JSON)
        assert answer.status_code == 200
        await gateway.until_released()
        assert held['{resource="body_bytes"}'] == len(posts(upstream)[0].body)


@pytest.mark.parametrize("url", [SOUND.replace("/", "\\/"), TURNED], ids=["spelled anew", "encoded anew"])
async def test_what_is_made_of_a_body_is_held_beside_it(url):
    held = {}

    async def look(visit):
        held.update(gateway.held())
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    body = json.dumps(chat(image("URL"))).replace("URL", url).encode()
    async with model_server(look) as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.http.post(CHAT, content=body, headers=JSON)
        assert answer.status_code == 200, answer.text
        await gateway.until_released()
        (url_sent,) = [
            part["image_url"]["url"] for part in json.loads(posts(upstream)[0].body)["messages"][0]["content"]
        ]
    beside = held['{resource="body_bytes"}'] - len(body)
    made = url_sent if url is not TURNED else url_sent.partition(",")[2]
    assert beside == len(made)


async def test_a_stream_comes_back_byte_for_byte():
    _, answer = await sent(json.dumps(chat(stream=True)).encode())
    assert answer.content == b"".join(EVENTS)
    assert answer.headers["content-type"] == "text/event-stream"


class TestHeaders:
    async def test_a_success_says_what_it_cost(self):
        _, answer = await sent(json.dumps(chat("Hi.", image(SOUND))).encode())
        ours = {name: value for name, value in answer.headers.items() if name.startswith("x-gateway-")}
        assert ours.pop("x-gateway-visual-tokens") == "8"  # enlarged to 84 x 56 by the model, markers around it
        assert int(ours.pop("x-gateway-prompt-tokens")) > 4
        assert ours == {"x-gateway-queue-ms": "0"}

    async def test_the_clients_id_is_echoed_and_ours_goes_upstream(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(headers={"x-request-id": "order/66:a"})
            (line,) = await gateway.log(1)
            (visit,) = posts(upstream)
        assert answer.headers["x-request-id"] == line["client_request_id"] == "order/66:a"
        assert visit.header("x-request-id") == [line["request_id"]]
        assert line["request_id"].startswith("gw-")

    @pytest.mark.parametrize("unsafe", ['a"b', "a b", "x" * 129, "é".encode()])
    async def test_an_unsafe_id_is_replaced_by_ours(self, unsafe):
        _, answer = await sent(json.dumps(chat()).encode(), **{"x-request-id": unsafe})
        assert answer.headers["x-request-id"].startswith("gw-")

    async def test_nothing_of_the_gateways_own_comes_from_outside(self):
        async def chatty(visit):
            headers = ("content-type: application/json", "x-gateway-queue-ms: 99", "x-request-id: theirs", "x-other: 1")
            await visit.answer("200 OK", ANSWER, *headers)

        async with model_server(chatty) as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(headers={"x-gateway-resize": "off", "x-own": "2"})
            (visit,) = posts(upstream)
        assert answer.headers["x-gateway-queue-ms"] == "0"
        assert (answer.headers["x-other"], visit.header("x-own"), visit.header("x-gateway-resize")) == ("1", ["2"], [])

    async def test_a_wrong_word_for_the_size_is_told(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(image(SOUND), headers={"x-gateway-resize": "tiny"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-gateway-resize")

    async def test_a_picture_made_smaller_is_declared_with_its_scale(self):
        photo = image(data_url(encoded(picture(1120, 840))))
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.chat(photo, headers={"x-gateway-resize": "thumbnail"})
        what = answer.headers["x-gateway-images"]
        assert what.startswith("0;resized;1120x840;")
        assert ";scale=" in what
