"""What the upstream sees of what is handed on, and that it sees none of it unless that is set."""

from tests.support.live_gateway import chat, image, live_gateway
from tests.support.model_server import model_server, posts
from tests.support.pictures import data_url, encoded, picture

LLM_D = {
    "x-llm-d-inference-fairness-id": "tenant",
    "x-llm-d-inference-objective": "objective",
    "x-llm-d-slo-ttft-ms": "first_token_ms",
    "x-prompt-tokens": "prompt_tokens",
    "x-session-id": "first_image",
}
OLD_NAMES = {"x-gateway-inference-fairness-id": "tenant", "x-gateway-inference-objective": "objective"}
BUSINESS = {"name": "business", "key_sha256": ["8879f6a4ae35c420a15d35fed3b8dd07577207803d404f6d4cc4fa829dafa910"]}
OF_BUSINESS = {"authorization": "Bearer sk-team-a"}
TWO_PICTURES = [data_url(encoded(picture(56, 28, seed=seed))) for seed in (1, 2)]
FORGED = dict.fromkeys([*LLM_D, *OLD_NAMES], "the client's own")


async def seen(*bodies, headers=None, **sections):
    """The headers of each request as the upstream got it."""
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        for body in bodies:
            answer = await gateway.http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
        return [{name: visit.header(name) for name in FORGED} for visit in posts(upstream)]


async def test_unless_it_is_set_nothing_is_handed_on():
    (headers,) = await seen(chat("Hello", image(TWO_PICTURES[0])))
    assert not any(headers.values())


async def test_the_upstream_is_told_whose_it_is_how_urgent_and_how_large():
    hand_on = {"headers": LLM_D, "objectives": {"interactive": "vlm-interactive"}}
    asked = OF_BUSINESS | {"x-gateway-priority": "interactive"}
    slo = {"first_token_seconds": 4}
    (headers,) = await seen(
        chat("Hello", image(TWO_PICTURES[0])), headers=asked, hand_on=hand_on, tenants=[BUSINESS], slo=slo
    )
    assert headers["x-llm-d-inference-fairness-id"] == ["business"]
    assert headers["x-llm-d-inference-objective"] == ["vlm-interactive"]
    assert 3000 < int(headers["x-llm-d-slo-ttft-ms"][0]) < 4000, "what is left of four seconds"
    assert int(headers["x-prompt-tokens"][0]) > 2


async def test_what_a_client_writes_there_never_gets_through():
    (headers,) = await seen(chat(), headers=FORGED, hand_on={"headers": LLM_D | OLD_NAMES})
    assert headers["x-llm-d-inference-fairness-id"] == headers["x-gateway-inference-fairness-id"] == ["default"]
    assert headers["x-llm-d-slo-ttft-ms"] == headers["x-session-id"] == [], "not known, so not said by anybody"
    assert not any("the client's own" in values for values in headers.values())


async def test_turns_of_a_conversation_name_the_same_picture():
    first, other = TWO_PICTURES
    turns = [chat("What?", image(first)), chat("What?", image(first), "And this?", image(other)), chat(image(other))]
    once, again, elsewhere = await seen(*turns, hand_on={"headers": LLM_D})
    assert once["x-session-id"] == again["x-session-id"] != elsewhere["x-session-id"]


async def test_in_shadow_mode_nothing_is_handed_on_or_left_out():
    (headers,) = await seen(chat(), headers={"x-session-id": "mine"}, mode="shadow", hand_on={"headers": LLM_D})
    assert {name: values for name, values in headers.items() if values} == {"x-session-id": ["mine"]}
