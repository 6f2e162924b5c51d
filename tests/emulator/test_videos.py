"""Videos as the emulated processors count them; only lists of pictures are read, which vLLM takes for videos."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.emulator.vision import FAMILIES, TooShortError
from tests.support.pictures import frames_url

TEXT_ALONE = [{"role": "user", "content": "What happens?"}]


def asking(url: str, *more: str, **keys: object) -> list[dict[str, Any]]:
    videos = [{"type": "video_url", "video_url": {"url": each}} | keys for each in (url, *more)]
    return [{"role": "user", "content": [{"type": "text", "text": "What happens?"}, *videos]}]


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(family: str) -> Iterator[httpx.Client]:
    config = EmulatorConfig.fast(family=family, video_limit=2, enable_prompt_tokens_details=True)
    with running_emulator(config) as server, httpx.Client(base_url=server.base_url, trust_env=False) as http:
        yield http


def usage(client: httpx.Client, messages: list[dict[str, Any]]) -> dict[str, Any]:
    answer = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert answer.status_code == 200, answer.text
    counted: dict[str, Any] = answer.json()["usage"]
    return counted


def test_frames_are_counted_by_twos(client: httpx.Client, family: str) -> None:
    alone = usage(client, TEXT_ALONE)["prompt_tokens"]
    seen = usage(client, asking(frames_url(5, 280, 140)))
    patches, units = FAMILIES[family].video_grid(5, 280, 140)
    assert patches == 3
    assert seen["prompt_tokens_details"]["multimodal_tokens"] == {"video": 3 * units}
    seconds = ["<0.5 seconds>", "<2.5 seconds>", "<4.0 seconds>"] if family == "qwen3_vl" else []
    around = 2 + sum(len(each) + 2 for each in seconds)
    assert seen["prompt_tokens"] - alone == 3 * units + around


def test_two_of_them_and_a_picture(client: httpx.Client) -> None:
    one = usage(client, asking(frames_url(2, 280, 140)))
    two = usage(client, asking(frames_url(2, 280, 140), frames_url(4, 280, 140)))
    assert two["prompt_tokens"] > one["prompt_tokens"]


def test_more_than_the_server_takes(client: httpx.Client) -> None:
    url = frames_url(2, 28, 28)
    answer = client.post("/v1/chat/completions", json={"messages": asking(url, url, url)})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "video")
    assert answer.json()["error"]["message"].startswith("At most 2 video(s)")


def test_frames_that_no_processor_takes(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json={"messages": asking(frames_url(2, 2010, 10))})
    assert (answer.status_code, answer.json()["error"]["message"][:15]) == (400, "Failed to apply")


def test_tokenize_counts_them_too(client: httpx.Client) -> None:
    assert client.post("/tokenize", json={"messages": asking(frames_url(2, 28, 28))}).json()["count"] > 0


def test_a_single_frame_is_no_video_where_frames_share() -> None:
    with pytest.raises(TooShortError):
        FAMILIES["qwen3_vl"].video_grid(1, 280, 140)
    assert FAMILIES["qwen2_vl"].video_grid(1, 280, 140) == (1, 50)


@pytest.mark.parametrize(
    ("frames", "width", "height", "grid"),
    [
        (4, 320, 320, (2, 100)),
        (5, 320, 320, (3, 100)),
        (768, 3200, 3200, (384, 25)),
        (2, 32, 32, (1, 4)),
        (4, 16, 64, (2, 4)),
    ],
    ids=["as they are", "an odd one", "shrunk", "grown", "a side below a unit"],
)
def test_frames_that_share_an_area(frames: int, width: int, height: int, grid: tuple[int, int]) -> None:
    assert FAMILIES["qwen3_vl"].video_grid(frames, width, height) == grid
