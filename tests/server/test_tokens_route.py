"""`/tokenize` and `/v1/messages/count_tokens` answered by the gateway itself, with nothing sent to the model."""

import gzip
import json

import pytest

from gateway.cli.demo import model as demo_model
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway, until
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

TOKENIZE = "/tokenize"
COUNT = "/v1/messages/count_tokens"
ASKED = {"x-gateway-tokens": "estimate"}
HERE = {"tokens": {"answer": "estimate"}}
PICTURE = data_url(encoded(picture(560, 420)))
VISUAL = 300 + 2
PAYLOAD = PICTURE.partition(",")[2]
ANTHROPIC_PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}}


def messages(*content, **fields):
    return {"model": MODEL, "messages": [{"role": "user", "content": list(content)}]} | fields


def text(words):
    return {"type": "text", "text": words}


@pytest.fixture
async def house(stack):
    upstream = await stack.enter_async_context(model_server())
    gateway = await stack.enter_async_context(live_gateway(upstream.base_url, **HERE))
    await gateway.until_up()
    yield gateway, upstream
    assert not posts(upstream)
    await gateway.until_released()


@pytest.fixture
def exact_folder(tmp_path):
    demo_model.write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def server():
    with running_emulator(EmulatorConfig.fast()) as emulator:
        yield emulator


@pytest.fixture
async def exact(stack, server, exact_folder):
    """A gateway that has the tokenizer of the model, before an emulator that counts with the same."""
    models = [{"name": MODEL, "folder": str(exact_folder)}]
    gateway = await stack.enter_async_context(live_gateway(server.base_url, models=models))
    await gateway.until_up()
    return gateway


def anthropic_error_of(answer):
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert (set(body), body["type"], set(body["error"])) == ({"type", "error"}, "error", {"type", "message"})
    return body["error"]


class TestWhoAnswers:
    async def test_a_plain_prompt_goes_on_unless_the_gateway_is_asked(self):
        body = {"model": MODEL, "prompt": "Hm?"}
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            assert (await gateway.http.post(TOKENIZE, json=body)).status_code == 200
            assert len(posts(upstream)) == 1
            answer = await gateway.http.post(TOKENIZE, json=body, headers=ASKED)
            assert answer.json()["max_model_len"] == 32_768
            assert len(posts(upstream)) == 1

    @pytest.mark.parametrize("sections", [{}, HERE])
    async def test_pictures_go_on_once_they_are_looked_at(self, sections):
        asked = {"x-gateway-tokens": "upstream"} if sections else {}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(TOKENIZE, json=chat(image(PICTURE)), headers=asked)
            assert (answer.status_code, answer.headers["x-gateway-visual-tokens"]) == (200, str(VISUAL))
            assert len(posts(upstream)) == 1
            damaged = chat(image("data:image/png;base64,aGVsbG8="))
            refusal = await gateway.http.post(TOKENIZE, json=damaged, headers=asked)
            assert (refusal.status_code, error_of(refusal)["param"]) == (400, "messages[0].content[0].image_url.url")
            assert len(posts(upstream)) == 1

    async def test_the_setting_asks_for_all(self, house):
        gateway, _ = house
        for path, body in ((TOKENIZE, chat(image(PICTURE))), (COUNT, messages(ANTHROPIC_PICTURE))):
            assert (await gateway.http.post(path, json=body)).status_code == 200
        assert gateway.ended() == {"finished": 2}
        lines = await gateway.log(2)
        assert [(line["endpoint"], line["status"], line["visual_tokens"]) for line in lines] == [
            (TOKENIZE, 200, VISUAL),
            (COUNT, 200, VISUAL),
        ]

    async def test_a_full_queue_keeps_nobody_from_counting(self):
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url, queue={"requests": 0}, budget={"kv_blocks": 1}, **HERE) as gateway,
        ):
            await gateway.until_up()
            assert (await gateway.http.post(COUNT, json=messages(text("a" * 50_000)))).status_code == 200


class TestAnEstimate:
    async def test_says_so_with_its_bounds(self, house):
        gateway, _ = house
        answer = await gateway.http.post(COUNT, json=messages(text("What is this?"), ANTHROPIC_PICTURE))
        assert set(answer.json()) == {"input_tokens"}
        kind, lower, upper = answer.headers["x-gateway-tokens"].split("; ")
        bounds = [int(bound.partition("=")[2]) for bound in (lower, upper)]
        assert kind == "estimate"
        assert VISUAL <= bounds[0] < answer.json()["input_tokens"] < bounds[1]

    async def test_is_the_one_that_a_chat_would_get(self, house):
        gateway, _ = house
        body = chat("What is this?", image(PICTURE))
        said = (await gateway.http.post("/gateway/preflight", json=body)).json()["tokens"]["prompt"]
        tokenized = await gateway.http.post(TOKENIZE, json=body)
        counted = await gateway.http.post(COUNT, json=messages(text("What is this?"), ANTHROPIC_PICTURE))
        assert tokenized.json()["count"] == counted.json()["input_tokens"] == said["expected"]
        bounds = f"estimate; lower={said['lower']}; upper={said['upper']}"
        assert tokenized.headers["x-gateway-tokens"] == counted.headers["x-gateway-tokens"] == bounds

    async def test_has_no_list_of_tokens(self, house):
        gateway, _ = house
        for body in ({"prompt": "Hm?"}, chat("Hm?")):
            answer = (await gateway.http.post(TOKENIZE, json=body)).json()
            assert (answer["tokens"], answer["token_strs"]) == (None, None)
            refused = await gateway.http.post(TOKENIZE, json=body | {"return_token_strs": True})
            assert (refused.status_code, error_of(refused)["param"]) == (400, "return_token_strs")

    async def test_counts_what_would_be_sent_and_says_what_is_changed(self, house):
        gateway, _ = house
        headers = {"x-gateway-resize": "thumbnail"}
        body = chat(image(data_url(encoded(picture(1400, 1120)))))
        answer = await gateway.http.post(TOKENIZE, json=body, headers=headers)
        assert answer.headers["x-gateway-images"].startswith("0;resized;1400x1120;560x448;scale=")
        assert answer.json()["count"] < (await gateway.http.post(TOKENIZE, json=body)).json()["count"] - 1_000

    async def test_a_length_that_no_context_holds_is_told_all_the_same(self, house):
        gateway, _ = house
        answer = await gateway.http.post(TOKENIZE, json={"prompt": "word " * 100_000})
        assert answer.json()["count"] > answer.json()["max_model_len"]

    async def test_pictures_for_a_model_that_nobody_knows_have_no_upper_bound(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, models=[], **HERE) as gateway:
            await gateway.until_up()
            answer = await gateway.http.post(COUNT, json=messages(text("a" * 1280), ANTHROPIC_PICTURE))
            assert answer.headers["x-gateway-tokens"] == "estimate; lower=11"
            assert answer.json()["input_tokens"] > VISUAL
            plain = await gateway.http.post(COUNT, json=messages(text("a" * 1280)))
            assert "; upper=" in plain.headers["x-gateway-tokens"]


class TestAnExactCount:
    @pytest.mark.parametrize(
        "body",
        [
            chat("What is this? äöü", image(PICTURE), "or", image(data_url(encoded(picture(64, 900))))),
            chat(image(PICTURE), add_generation_prompt=False),
            chat("Hm?", truncate_prompt_tokens=3, max_tokens=7, stream=True, reasoning_effort="low"),
            {"model": MODEL, "prompt": "Größe <|im_end|>"},
            {"prompt": "", "add_special_tokens": False},
            {"prompt": "word " * 3_000},
        ],
    )
    async def test_is_the_servers_own_token_by_token(self, exact, server, body):
        body = body | {"return_token_strs": True}
        counted = await exact.http.post(TOKENIZE, json=body, headers=ASKED)
        own = (await exact.http.post(f"{server.base_url}{TOKENIZE}", json=body)).json()
        said = counted.json()
        assert counted.headers["x-gateway-tokens"] == "exact"
        # The ids of the folder's tokenizer are not the emulator's.
        assert [said[name] for name in said if name != "tokens"] == [own[name] for name in own if name != "tokens"]
        assert len(said["tokens"]) == said["count"]

    async def test_has_no_strings_unless_asked(self, exact):
        answer = await exact.http.post(TOKENIZE, json={"prompt": "ab"}, headers=ASKED)
        assert (len(answer.json()["tokens"]), answer.json()["token_strs"]) == (2, None)

    async def test_a_placeholder_typed_as_text_is_for_the_server_to_judge(self, exact):
        answer = await exact.http.post(TOKENIZE, json=chat("a <|image_pad|>"), headers=ASKED)
        assert answer.headers["x-gateway-tokens"].startswith("estimate; ")
        assert answer.json()["tokens"] is None

    async def test_of_messages_is_that_of_the_chat_that_they_become(self, exact):
        body = messages(text("What is this?"), ANTHROPIC_PICTURE, system=[text("Be "), text("brief.")])
        served = await exact.http.post(
            CHAT,
            json={
                "model": MODEL,
                "max_tokens": 1,
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [text("What is this?"), image(PICTURE)]},
                ],
            },
        )
        counted = await exact.http.post(COUNT, json=body, headers=ASKED)
        assert counted.headers["x-gateway-tokens"] == "exact"
        assert counted.json()["input_tokens"] == served.json()["usage"]["prompt_tokens"]

    async def test_a_list_that_would_be_too_long_is_left_out(self, exact, monkeypatch):
        monkeypatch.setattr("gateway.pipeline.token_counts.MOST_LISTED_TOKENS", 400)
        for body, is_listed in (
            (chat(image(PICTURE)), True),
            (chat(image(PICTURE), image(PICTURE)), False),
            ({"prompt": "a" * 400}, True),
            ({"prompt": "a" * 401}, False),
        ):
            answer = await exact.http.post(TOKENIZE, json=body, headers=ASKED)
            assert answer.headers["x-gateway-tokens"] == "exact"
            assert (answer.json()["tokens"] is not None) is is_listed

    async def test_a_conversation_that_the_template_cannot_take_is_estimated(self, exact):
        body = chat("a") | {"continue_final_message": True, "add_generation_prompt": True}
        answer = await exact.http.post(TOKENIZE, json=body, headers=ASKED)
        assert answer.headers["x-gateway-tokens"].startswith("estimate; ")
        assert answer.json()["tokens"] is None

    async def test_a_prompt_that_is_too_long_to_be_worth_it_is_estimated(self, exact):
        answer = await exact.http.post(TOKENIZE, json={"prompt": "a" * 600_000}, headers=ASKED)
        assert answer.headers["x-gateway-tokens"].startswith("estimate; ")


class TestRefused:
    async def test_with_the_clients_own_path(self, house):
        gateway, _ = house
        broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [text("a"), broken]}
        answer = await gateway.http.post(COUNT, json=messages(result))
        assert answer.status_code == 400
        error = anthropic_error_of(answer)
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("messages[0].content[0].content[1].source.data: ")
        assert (answer.headers["x-gateway-reason"], answer.headers["x-should-retry"]) == ("bad_image", "false")

    async def test_base64_that_is_damaged(self, house):
        gateway, _ = house
        for data in ("", "%%%%", "aGVs\nbG8"):
            broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
            answer = await gateway.http.post(COUNT, json=messages(broken))
            assert (answer.status_code, "messages[0].content[0].source.data" in answer.text) == (400, True)

    @pytest.mark.parametrize("path", [TOKENIZE, COUNT])
    async def test_an_unknown_model_once_the_list_is_known(self, house, path):
        gateway, _ = house
        answer = await gateway.http.post(path, json=messages(text("a"), model="nope"))
        assert (answer.status_code, answer.headers["x-gateway-reason"]) == (404, "not_found")
        assert "there are: tiny" in answer.text

    async def test_a_name_may_be_right_before_that(self):
        async with live_gateway("http://127.0.0.1:1", **HERE) as gateway:
            answer = await gateway.http.post(TOKENIZE, json={"prompt": "a", "model": "later"})
        assert (answer.status_code, answer.json()["max_model_len"]) == (200, None)

    async def test_a_name_of_the_settings_is_known_though_the_server_does_not_list_it(self):
        async with model_server() as upstream:
            settings = HERE | {"models": [{"name": "later", "family": "qwen2_vl"}]}
            async with live_gateway(upstream.base_url, **settings) as gateway:
                await gateway.until_up()
                answer = await gateway.http.post(TOKENIZE, json={"prompt": "a", "model": "later"})
        assert answer.status_code == 200

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages": 5}', b'{"messages": []}', b"\xff"])
    @pytest.mark.parametrize("path", [TOKENIZE, COUNT])
    async def test_what_is_no_request(self, house, path, content):
        gateway, _ = house
        answer = await gateway.http.post(path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert (anthropic_error_of if path == COUNT else error_of)(answer)["message"]

    async def test_whatever_is_wrong_has_anthropics_shape_on_its_routes(self):
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url, server={"max_body_bytes": 100}, **HERE) as gateway,
        ):
            large = await gateway.http.post(COUNT, json=messages(text("x" * 200)))
            assert (large.status_code, anthropic_error_of(large)["type"]) == (413, "request_too_large")
            asked = await gateway.http.get(COUNT)
            assert (asked.status_code, asked.headers["allow"]) == (405, "POST")
            assert anthropic_error_of(asked)["type"] == "invalid_request_error"
            other = await gateway.http.post("/v1/messages/render", json=messages(text("x")))
            assert (other.status_code, anthropic_error_of(other)["type"]) == (403, "permission_error")
            unread = await gateway.http.post(COUNT, json={}, headers={"x-gateway-priority": "soon"})
            assert (unread.status_code, anthropic_error_of(unread)["type"]) == (400, "invalid_request_error")

    async def test_a_fault_of_the_gateway_has_it_too(self, house, monkeypatch):
        async def broken(*_):
            raise RuntimeError

        monkeypatch.setattr("gateway.server.tokens_route.count_messages", broken)
        answer = await house[0].http.post(COUNT, json=messages(text("x")))
        assert (answer.status_code, anthropic_error_of(answer)["type"]) == (500, "api_error")


async def test_a_gzip_body_and_a_large_one(house):
    gateway, _ = house
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    body = messages(*[text("word " * 40)] * 9_000)
    answer = await gateway.http.post(COUNT, content=gzip.compress(json.dumps(body).encode()), headers=headers)
    assert answer.json()["input_tokens"] > 300_000
    await until(lambda: not gateway.held())


async def test_of_several_servers_the_one_that_lists_the_model_is_meant():
    names = ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-VL-8B-Instruct")
    async with model_server(models=names[:1]) as older, model_server(models=names[1:]) as newer:
        addresses = {"older": older.base_url, "newer": newer.base_url}
        async with live_gateway(addresses, models=[], **HERE) as gateway:
            await gateway.until_up()
            for name in names:
                for path, content in ((COUNT, ANTHROPIC_PICTURE), (TOKENIZE, image(PICTURE))):
                    assert (await gateway.http.post(path, json=messages(content, model=name))).status_code == 200
            unknown = await gateway.http.post(COUNT, json=messages(text("a"), model="nope"))
            assert f"there are: {names[0]}, {names[1]}." in unknown.text
            lines = await gateway.log(5)
    # Qwen3-VL has a grid of 32.
    assert [line.get("visual_tokens") for line in lines] == [20 * 15 + 2] * 2 + [18 * 13 + 2] * 2 + [None]
