"""Videos and audio through a whole gateway: counted by their bound, limited, or refused; what is let in goes on as it
came.
"""

import json

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, frames_url, picture

FILE = "data:video/mp4;base64,AAAA"
WAV = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def video(url):
    return {"type": "video_url", "video_url": {"url": url}}


@pytest.fixture
async def house(stack):
    """A gateway before a server that takes what it gets."""

    async def house(**sections):
        upstream = await stack.enter_async_context(model_server())
        gateway = await stack.enter_async_context(live_gateway(upstream.base_url, **sections))
        await gateway.until_up()
        return gateway, upstream

    return house


class TestWithoutSettings:
    @pytest.mark.parametrize("part", [video(FILE), WAV, {"type": "audio_url", "audio_url": {"url": "https://a/b.mp3"}}])
    async def test_each_is_refused_with_its_place(self, house, part):
        gateway, upstream = await house()
        refused = await gateway.chat("What is this?", part)
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (400, "media_not_allowed")
        assert refused.headers["x-should-retry"] == "false"
        error = error_of(refused)
        assert (error["code"], error["param"]) == ("media_not_allowed", "messages[0].content[1]")
        assert not posts(upstream)
        line = await gateway.assert_ended("refused", status=400, reason="media_not_allowed")
        assert line.get("videos", 0) + line.get("audios", 0) == 1

    @pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
    async def test_wherever_it_stands(self, house, role):
        gateway, upstream = await house()
        messages = [{"role": "user", "content": "Hm?"}, {"role": role, "content": [video(FILE)]}]
        refused = await gateway.http.post(CHAT, json={"model": MODEL, "messages": messages})
        assert error_of(refused)["param"] == "messages[1].content[0]"
        assert not posts(upstream)


class TestLetIn:
    async def test_it_goes_on_byte_for_byte_with_the_most_that_it_can_cost(self, house):
        gateway, upstream = await house(videos={"per_request": 1})
        body = json.dumps(chat("What happens?", video(FILE), max_tokens=100)).encode()
        answer = await gateway.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200
        assert posts(upstream)[0].body == body
        assert int(answer.headers["x-gateway-media-tokens"]) == 32_768, "of its 6 million no context holds more"
        assert int(answer.headers["x-gateway-prompt-tokens"]) == 32_768 - 100
        assert answer.headers["x-gateway-visual-tokens"] == "0"
        line = await gateway.assert_ended("finished", status=200)
        assert (line["videos"], line["media_tokens"]) == (1, 32_768)
        assert "images" not in line
        assert gateway.metrics("gateway_media_total") == {'{kind="video"}': 1}

    async def test_a_picture_beside_it_is_treated_as_ever(self, house):
        gateway, upstream = await house(videos={"per_request": 1, "tokens": 5000})
        turned = image(data_url(encoded(picture(56, 28), "JPEG", orientation=6), "image/jpeg"))
        answer = await gateway.chat("Hm?", video(FILE), turned)
        assert answer.headers["x-gateway-images"] == "0;normalised;28x56"
        assert answer.headers["x-gateway-media-tokens"] == "5000"
        sent = json.loads(posts(upstream)[0].body)["messages"][0]["content"]
        assert sent[1] == video(FILE)
        assert sent[2]["image_url"]["url"].startswith("data:image/jpeg")

    async def test_what_it_really_took_teaches_nothing(self, house):
        """The answer reports 40 tokens, of which nobody knows how many were text."""
        gateway, _ = await house(videos={"per_request": 1})
        model = gateway.application._running.backends[0].models.served(MODEL)
        before = model.ratio.bounds(1000, 1)
        assert (await gateway.chat("What happens? " * 40, video(FILE))).status_code == 200
        await gateway.log(1)
        assert model.ratio.bounds(1000, 1) == before
        assert gateway.metrics("gateway_estimate_error_ratio") == {}
        assert gateway.metrics("gateway_prompt_tokens_reported_total") == {}

    async def test_addresses_of_allowed_hosts_go_on_and_others_do_not(self, house):
        gateway, upstream = await house(videos={"per_request": 1, "allow_hosts": ["Videos.example.com"]})
        assert (await gateway.chat("Hm?", video("https://videos.example.com/a.mp4"))).status_code == 200
        others = ("http://169.254.169.254/", "https://videos.example.com@evil.org/", "file:///etc/passwd")
        for url in others:
            refused = await gateway.chat("Hm?", video(url))
            assert refused.status_code == 400, url
            assert error_of(refused)["param"].startswith("messages[0].content[1]")
        assert len(posts(upstream)) == 1

    async def test_audio_with_the_operators_bound(self, house):
        gateway, _ = await house(audios={"per_request": 2, "tokens": 750})
        answer = await gateway.chat("What is said?", WAV, WAV)
        assert (answer.status_code, answer.headers["x-gateway-media-tokens"]) == (200, "1500")
        assert gateway.metrics("gateway_media_total") == {'{kind="audio"}': 2}

    async def test_a_family_that_defines_nothing_is_refused_and_named(self, house):
        gateway, _ = await house(videos={"per_request": 1}, models=[{"name": MODEL, "family": "internvl"}])
        refused = await gateway.chat("Hm?", video(FILE))
        assert "models of the family internvl, and videos.tokens" in error_of(refused)["message"]

    async def test_a_model_of_unknown_family_too(self, house):
        gateway, _ = await house(videos={"per_request": 1}, models=[])
        refused = await gateway.chat("Hm?", video(FILE))
        assert "models of the family (unknown)" in error_of(refused)["message"]

    async def test_bodies_are_as_long_as_ever(self, house):
        gateway, _ = await house(videos={"per_request": 1}, server={"max_body_bytes": 1000})
        assert (await gateway.chat("Hm?", video("data:video/mp4;base64," + "A" * 1000))).status_code == 413


class TestBeforeItIsSent:
    async def test_preflight_tells_of_it(self, house):
        gateway, _ = await house(videos={"per_request": 1, "tokens": 5000})
        said = (await gateway.http.post("/gateway/preflight", json=chat("Hm?", video(FILE)))).json()
        assert (said["verdict"], said["tokens"]["media"], said["amounts"]["encoder_tokens"]) == ("admitted", 5000, 5000)
        refused = (await gateway.http.post("/gateway/preflight", json=chat("Hm?", WAV))).json()
        assert (refused["verdict"], refused["error"]["code"]) == ("refused", "media_not_allowed")

    async def test_a_count_of_tokens_has_wide_bounds(self, house):
        gateway, _ = await house(videos={"per_request": 1, "tokens": 5000})
        counted = await gateway.http.post(
            "/tokenize", json=chat("Hm?", video(FILE)), headers={"x-gateway-tokens": "estimate"}
        )
        assert counted.status_code == 200
        assert counted.headers["x-gateway-tokens"].startswith("estimate; lower=1; upper=5")

    async def test_in_shadow_mode_it_goes_on_and_is_told(self, house):
        gateway, upstream = await house(mode="shadow")
        answer = await gateway.chat("Hm?", video(FILE))
        assert (answer.status_code, len(posts(upstream))) == (200, 1)
        assert answer.headers["x-gateway-shadow"] == "refused;reason=media_not_allowed;status=400"


class TestBeforeAnEngine:
    """The emulator counts frames by a reading of its own."""

    @pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
    @pytest.mark.parametrize(("frames", "width", "height"), [(2, 56, 56), (5, 640, 480), (9, 1900, 30), (32, 224, 224)])
    async def test_what_it_reports_is_within_the_bound(self, family, frames, width, height):
        config = EmulatorConfig.fast(family=family, video_limit=1, max_model_len=400_000, num_gpu_blocks=50_000)
        with running_emulator(config) as engine:
            models = [{"name": MODEL, "family": family}]
            async with live_gateway(engine.base_url, models=models, videos={"per_request": 1}) as gateway:
                await gateway.until_up()
                answer = await gateway.chat("What happens?", video(frames_url(frames, width, height)), max_tokens=1)
                assert answer.status_code == 200, answer.text
                await gateway.until_released()
        reported = answer.json()["usage"]["prompt_tokens"]
        most = int(answer.headers["x-gateway-prompt-tokens"])
        assert reported <= most
        patches = -(-frames // 2)
        assert int(answer.headers["x-gateway-media-tokens"]) <= patches * 17_000

    async def test_a_second_one_is_the_gateways_to_refuse(self):
        with running_emulator(EmulatorConfig.fast(video_limit=1)) as engine:
            async with live_gateway(engine.base_url, videos={"per_request": 1}) as gateway:
                url = frames_url(2, 56, 56)
                refused = await gateway.chat("What happens?", video(url), video(url))
                assert error_of(refused)["param"] == "messages[0].content[2]"
