"""The ladder before a model server: what each rung does to a request that comes while another one is held there."""

import json

import pytest

from gateway.domain.pressure import Unmet
from tests.support.live_gateway import MODEL, chat, image, live_gateway
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture
from tests.support.pressed_gateway import AT_A_TENTH, pressed_gateway, sent_images

COMPLETIONS = "/v1/completions"
JSON = {"content-type": "application/json"}
ANSWER = {"role": "assistant", "content": "A."}
PHOTO, OTHER = (image(data_url(encoded(picture(1400, 1400, seed=seed)))) for seed in (1, 2))


def user(*parts):
    return {"role": "user", "content": [*parts, {"type": "text", "text": "What?"}]}


SHRINK = {"shrink": AT_A_TENTH | {"preset": "thumbnail"}}
SMALL = "0;resized;1400x1400;504x504;scale=2.777778x2.777778"


async def test_a_new_image_is_shrunk_and_so_it_is_in_all_later_turns_whatever_the_pressure_is_then():
    async with pressed_gateway(SHRINK) as pressed:
        headers, first = await pressed.chat(user(PHOTO))
        assert (headers["x-gateway-pressure"], headers["x-gateway-images"]) == ("shrink", SMALL)
        await pressed.ease()
        headers, second = await pressed.chat(user(PHOTO), ANSWER, user(OTHER))
        assert headers["x-gateway-images"] == SMALL, "the old one as before, the new one as it came"
        assert sent_images(second) == [*sent_images(first), OTHER]
        await pressed.press()
        _, third = await pressed.chat(user(PHOTO), ANSWER, user(OTHER), ANSWER, user())
        assert sent_images(third) == sent_images(second)


async def test_images_of_the_history_are_never_newly_shrunk():
    async with pressed_gateway(SHRINK) as pressed:
        headers, body = await pressed.chat(user(PHOTO), ANSWER, user(OTHER))
        assert headers["x-gateway-images"].startswith("1;resized")
        assert sent_images(body)[0] == PHOTO
        headers, body = await pressed.chat(user(OTHER, PHOTO))
        assert sent_images(body)[1] == PHOTO, "in another conversation too: it is what the first one goes on with"


async def test_an_image_that_is_old_and_new_in_one_request_goes_as_it_is():
    async with pressed_gateway(SHRINK) as pressed:
        headers, body = await pressed.chat(user(PHOTO), ANSWER, user(PHOTO))
        assert sent_images(body) == [PHOTO, PHOTO]
        assert "x-gateway-pressure" not in headers


async def test_results_of_tools_are_new_after_the_call_that_asked_for_them():
    call = ANSWER | {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "1", "content": [OTHER]}
    async with pressed_gateway(SHRINK) as pressed:
        headers, body = await pressed.chat(user(PHOTO), call, result)
        assert headers["x-gateway-images"].startswith("1;resized;1400x1400;504x504")
        assert sent_images(body)[0] == PHOTO


async def test_what_a_request_wants_as_it_is_stays_as_it_is_and_teaches_nothing():
    async with pressed_gateway(SHRINK) as pressed:
        headers, body = await pressed.chat(user(PHOTO), headers={"x-gateway-resize": "off"})
        assert sent_images(body) == [PHOTO]
        assert "x-gateway-pressure" not in headers
        await pressed.ease()
        _, body = await pressed.chat(user(PHOTO))
        assert sent_images(body) == [PHOTO]


@pytest.mark.parametrize(
    ("asked", "sections"), [("thumbnail", {}), (None, {"resize": {"max_tokens_per_image": 100}})], ids=["header", "cap"]
)
async def test_what_is_small_by_another_rule_already_is_not_made_larger(asked, sections):
    async with pressed_gateway({"shrink": AT_A_TENTH | {"preset": "ocr"}}, **sections) as pressed:
        headers, _ = await pressed.chat(user(PHOTO), headers={"x-gateway-resize": asked} if asked else None)
        width = int(headers["x-gateway-images"].split(";")[3].partition("x")[0])
        assert width < 512
        assert "x-gateway-pressure" not in headers


async def test_what_one_tenant_sent_under_pressure_is_another_ones_own_affair():
    async with pressed_gateway(SHRINK) as pressed:
        await pressed.chat(user(PHOTO), headers={"authorization": "Bearer one"})
        await pressed.ease()
        _, body = await pressed.chat(user(PHOTO), headers={"authorization": "Bearer other"})
        assert sent_images(body) == [PHOTO]
        headers, _ = await pressed.chat(user(PHOTO), headers={"authorization": "Bearer one"})
        assert headers["x-gateway-images"] == SMALL


async def test_a_request_that_is_refused_teaches_nothing():
    async with pressed_gateway(SHRINK, queue={"requests": 0}, budget={"sequences": 1}) as pressed:
        refused = await pressed.gateway.http.post("/v1/chat/completions", json=chat("What?", PHOTO))
        assert refused.status_code == 429
        await pressed.ease()
        (backend,) = pressed.gateway.application._running.backends
        backend.gate._admission._unmet = Unmet()  # long ago
        _, body = await pressed.chat(user(PHOTO))
        assert sent_images(body) == [PHOTO]


HISTORY = {"history": AT_A_TENTH | {"keep": 1}}
GRID = {"history": {"grid": 1}}


async def test_a_conversation_that_begins_under_pressure_keeps_fewer_images_to_its_end():
    async with pressed_gateway(HISTORY, **GRID) as pressed:
        headers, _ = await pressed.chat(user(PHOTO))
        assert "x-gateway-pressure" not in headers, "there is nothing to leave out yet"
        await pressed.ease()
        headers, body = await pressed.chat(user(PHOTO), ANSWER, user(OTHER))
        assert (headers["x-gateway-pressure"], headers["x-gateway-images"]) == ("history", "0;trimmed")
        assert sent_images(body) == [OTHER]


async def test_a_conversation_that_was_there_before_keeps_its_rule():
    async with pressed_gateway(HISTORY, is_pressed=False, **GRID) as pressed:
        await pressed.chat(user(PHOTO))
        await pressed.press()
        headers, body = await pressed.chat(user(PHOTO), ANSWER, user(OTHER))
        assert sent_images(body) == [PHOTO, OTHER]
        assert "x-gateway-images" not in headers
        headers, body = await pressed.chat(user(OTHER), ANSWER, user(PHOTO))
        assert headers["x-gateway-images"] == "0;trimmed", "another one, which begins with another picture"


async def test_without_an_image_no_conversation_is_remembered():
    async with pressed_gateway(HISTORY) as pressed:
        await pressed.chat(user())
        assert not pressed.relief.conversations


MAX_TOKENS = {"max_tokens": AT_A_TENTH | {"tokens": 64}}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {"max_tokens": 64}),
        ({"max_tokens": 9000, "n": 2}, {"max_tokens": 64, "n": 2}),
        ({"max_tokens": 1, "max_completion_tokens": 65}, {"max_tokens": 1, "max_completion_tokens": 64}),
        ({"max_tokens": 64}, {"max_tokens": 64}),
        ({"max_completion_tokens": 3}, {"max_completion_tokens": 3}),
        ({"max_tokens": 70, "min_tokens": 70}, {"max_tokens": 70, "min_tokens": 70}),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_answers_get_fewer_tokens(fields, sent, is_streamed):
    async with pressed_gateway(MAX_TOKENS) as pressed:
        headers, body = await pressed.chat(user(PHOTO), **fields, **({"stream": True} if is_streamed else {}))
        names = ("max_tokens", "max_completion_tokens", "min_tokens", "n")
        assert {name: body[name] for name in names if name in body} == sent
        assert headers.get("x-gateway-pressure") == (None if sent == fields else "max_tokens;64")
        assert sent_images(body) == [PHOTO]


async def test_fewer_tokens_are_reserved_too_also_for_completions():
    policy = {"output_reservation": "max", "budget": {"sequences": 10, "kv_blocks": 1000}}
    async with pressed_gateway(MAX_TOKENS, **policy) as pressed:
        answer = await pressed.gateway.http.post(COMPLETIONS, json={"model": MODEL, "prompt": "Hm", "max_tokens": 4000})
        assert answer.headers["x-gateway-pressure"] == "max_tokens;64"
        assert json.loads(posts(pressed.server)[-1].body)["max_tokens"] == 64
        lines = await pressed.gateway.log(1)
        assert (lines[-1]["output_tokens"], lines[-1]["rungs"], lines[-1]["pressure"]) == (64, "max_tokens;64", 0.1)


async def test_embeddings_have_no_answer_to_shorten():
    async with pressed_gateway(MAX_TOKENS) as pressed:
        answer = await pressed.gateway.http.post("/v1/embeddings", json={"model": MODEL, "input": "Hm"})
        assert answer.status_code == 200
        assert "max_tokens" not in json.loads(posts(pressed.server)[-1].body)


SHED = {"shed": AT_A_TENTH | {"priority": "default"}}


async def test_less_urgent_requests_are_refused_at_once_and_told_that_it_is_them():
    async with pressed_gateway(SHED) as pressed:
        for headers in ({"x-gateway-priority": "batch"}, {}):
            refused = await pressed.gateway.chat("Hm?", headers=headers)
            assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "shed_priority")
            assert refused.headers["x-gateway-pressure"] == "shed"
            assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("60", "false")
            assert "0.1 times all that the engine has (sequences)" in error_of(refused)["message"]
        assert (await pressed.gateway.chat("Hm?", headers={"x-gateway-priority": "interactive"})).status_code == 200
        assert (await pressed.gateway.chat("Hm?", priority=-1)).status_code == 200
        await pressed.ease()
        assert (await pressed.gateway.chat("Hm?")).status_code == 200
        assert pressed.gateway.metrics("gateway_pressure_requests_total") == {'{rung="shed"}': 2}


async def test_who_is_refused_once_read_counts_for_the_model_that_was_asked_for():
    async with pressed_gateway(SHED) as pressed:
        assert (await pressed.gateway.chat("Hm?", priority=1)).status_code == 429
        assert pressed.gateway.metrics("gateway_rejections_total") == {
            '{model="tiny",priority="batch",reason="shed_priority",tenant_class="default"}': 1
        }


async def test_new_requests_are_refused_for_what_is_short():
    async with pressed_gateway({"refuse": AT_A_TENTH}) as pressed:
        refused = await pressed.gateway.chat("Hm?", headers={"x-gateway-priority": "interactive"})
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "queue_full")
        assert refused.headers["x-gateway-pressure"] == "refuse"
        assert (await pressed.gateway.http.post("/tokenize", json={"model": MODEL, "prompt": "Hm"})).status_code == 200
        line = (await pressed.gateway.log(1))[0]
        assert (line["short"], line["rungs"], line["pressure"]) == ("sequences", "refuse", 0.1)


async def test_texts_do_not_feel_the_pressure_on_images():
    budget = {"sequences": 10, "encoder_tokens": 4000}
    half = {"enter": 0.5, "leave": 0.25, "priority": "default"}
    async with pressed_gateway({"shed": half}, is_pressed=False, budget=budget) as pressed:
        await pressed.press(PHOTO)
        for _ in range(2):
            assert (await pressed.gateway.chat("Hm?", OTHER)).status_code == 429
            assert (await pressed.gateway.chat("Hm?")).status_code == 200
        assert pressed.gateway.metrics("gateway_pressure_rung_in_force") == {'{lane="image",rung="shed"}': 1}


@pytest.mark.parametrize("rungs", [SHED, {"refuse": AT_A_TENTH}])
async def test_who_comes_back_as_promised_is_let_in(rungs):
    async with pressed_gateway(rungs) as pressed:
        (backend,) = pressed.gateway.application._running.backends
        backend.gate.is_expected = lambda newcomer: newcomer.is_return
        again = await pressed.gateway.chat("Hm?", headers={"x-stainless-retry-count": "1"})
        assert again.status_code == 200
        assert (await pressed.gateway.chat("Hm?")).status_code == 429


NO_JSON = b"It was never read."


async def test_what_is_certain_is_refused_before_the_body_is_read():
    async with pressed_gateway({"refuse": AT_A_TENTH}) as pressed:
        refused = await pressed.gateway.http.post("/v1/chat/completions", content=NO_JSON, headers=JSON)
        assert (refused.status_code, refused.headers["x-gateway-pressure"]) == (429, "refuse")


@pytest.mark.parametrize(
    ("asked", "status"),
    [({"x-gateway-priority": "batch"}, 429), ({}, 400), ({"x-gateway-priority": "interactive"}, 400)],
)
async def test_a_priority_that_the_body_may_still_ask_for_is_not_known_at_the_door(asked, status):
    async with pressed_gateway(SHED) as pressed:
        refused = await pressed.gateway.http.post("/v1/chat/completions", content=NO_JSON, headers=JSON | asked)
        assert refused.status_code == status


async def test_where_one_server_is_not_pressed_nobody_is_refused():
    async with pressed_gateway({"refuse": AT_A_TENTH}, has_two=True) as pressed:
        assert (await pressed.gateway.chat("Hm?")).status_code == 200
        await pressed.press()
        refused = await pressed.gateway.http.post("/v1/chat/completions", content=NO_JSON, headers=JSON)
        assert refused.status_code == 429


async def test_rungs_in_force_and_the_pressure_are_on_the_metrics_page():
    async with pressed_gateway(SHED | {"refuse": {"enter": 0.2, "leave": 0.1}}) as pressed:
        lanes = {f'{{lane="{lane}"}}': 0.1 for lane in ("image", "text")}
        assert pressed.gateway.metrics("gateway_pressure_ratio") == lanes
        in_force = {f'{{lane="{lane}",rung="shed"}}': 1 for lane in ("image", "text")}
        assert pressed.gateway.metrics("gateway_pressure_rung_in_force") == in_force
        await pressed.ease()
        assert pressed.gateway.metrics("gateway_pressure_rung_in_force") == {}


async def test_preflight_says_what_the_ladder_would_do_and_teaches_it_nothing():
    async with pressed_gateway(SHRINK | MAX_TOKENS) as pressed:
        answer = (await pressed.gateway.http.post("/gateway/preflight", json=chat("What?", PHOTO))).json()
        (line,) = answer["images"]
        assert (line["why"], line["sent_size"], answer["tokens"]["output_reserved"]) == ("pressure", "504x504", 64)
        assert answer["pressure"] == {
            "ratio": 0.1,
            "unmet": 0.0,
            "resource": "sequences",
            "in_force": ["shrink", "max_tokens"],
            "changes": "shrink, max_tokens;64",
        }
        assert not pressed.relief.treatments


@pytest.mark.parametrize(("rungs", "reason"), [(SHED, "shed_priority"), ({"refuse": AT_A_TENTH}, "queue_full")])
async def test_preflight_says_that_it_would_be_refused(rungs, reason):
    async with pressed_gateway(rungs) as pressed:
        answer = (await pressed.gateway.http.post("/gateway/preflight", json=chat("What?", PHOTO))).json()
        assert (answer["verdict"], answer["error"]["reason"]) == ("refused", reason)
        assert answer["pressure"]["changes"] == next(iter(rungs))


async def test_a_place_is_promised_to_who_is_refused_but_not_to_who_only_asks():
    async with pressed_gateway({"refuse": AT_A_TENTH}) as pressed:
        (backend,) = pressed.gateway.application._running.backends
        promised = backend.gate.promise_after
        kept = []

        def promise_after(to, share, *, is_kept):
            kept.append((share, is_kept))
            return promised(to, share, is_kept=is_kept)

        backend.gate.promise_after = promise_after
        await pressed.gateway.http.post("/gateway/preflight", json=chat("What?"))
        await pressed.gateway.chat("What?")
        assert kept == [(1.0, False), (1.0, True)]


async def test_without_a_ladder_preflight_knows_no_pressure():
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        await gateway.until_up()
        assert (await gateway.http.post("/gateway/preflight", json=chat("What?"))).json()["pressure"] is None


async def test_the_log_tells_which_rungs_come_and_go(caplog):
    async with pressed_gateway(SHED) as pressed:
        await pressed.gateway.chat("Hm?")
        await pressed.gateway.chat("Hm?")
        await pressed.ease()
        await pressed.gateway.chat("Hm?")
    told = [record.getMessage() for record in caplog.records if record.name == "gateway.pipeline.relief"]
    assert told == [
        "pressure on default is 0.10 (sequences), 0.00 more were refused: in force for text requests: shed",
        "pressure on default is 0.00 (sequences), 0.00 more were refused: in force for text requests: nothing",
    ]
