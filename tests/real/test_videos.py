"""A real vLLM reports no more for a video than the gateway keeps for it, and of a list what the emulator does."""

import base64
import json
import os
import random
import subprocess

import httpx
import pytest

from gateway.domain.vision.registry import resolve
from gateway.emulator.vision import FAMILIES, AspectRatioError, Family, TooShortError
from tests.real import tiny_model, vllm_server
from tests.support.pictures import frames_url
from tests.support.processes import running_gateway

pytestmark = pytest.mark.real

MOST_FRAMES = 16
VIDEO_FILE = {
    "video_processor_type": "Qwen2VLVideoProcessor",
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 3136,
    "max_pixels": 50_176,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SMALL_FRAMES = Family("Qwen2VLVideoProcessor", "qwen2_5_vl", 28, 3136, 50_176)
# Motion JPEG, which OpenCV writes by itself. Frames differ, or a codec would make little of them.
WRITE_AVI = """
import sys, cv2, numpy
path, frames, width, height, rate = sys.argv[1], *map(int, sys.argv[2:])
out = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), rate, (width, height))
assert out.isOpened()
for seed in range(frames):
    out.write(numpy.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=numpy.uint8))
out.release()
"""


REAL_SIZES = """
import json, sys
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize
areas = {"factor": 32, "min_pixels": 4096, "max_pixels": 25165824}
def units(frames, width, height):
    try:
        high, wide = smart_resize(frames, height, width, **areas)
    except ValueError:
        return None
    return high * wide // 1024
print(json.dumps([units(*each) for each in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """As an operator starts it who lets videos in: no more frames than the gateway knows of."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model.write(folder)
    (folder / "video_preprocessor_config.json").write_text(json.dumps(VIDEO_FILE))
    more = ["--media-io-kwargs", json.dumps({"video": {"max_frames": MOST_FRAMES}})]
    python = os.environ["VLLM_PYTHON"]
    work = tmp_path_factory.mktemp("vllm")
    with vllm_server.running(python, folder, work, videos=2, max_model_len=16_384, sequences=2, more=more) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server, tmp_path_factory):
    settings = {
        "models": [{"name": server.model, "family": "qwen2_5_vl", "folder": str(server.folder)}],
        "videos": {"per_request": 2, "max_frames": MOST_FRAMES},
    }
    with running_gateway(server.url, tmp_path_factory.mktemp("gateway"), settings) as running:
        yield running


def avi(folder, frames, width, height, rate):
    path = folder / "film.avi"
    written = [str(each) for each in (path, frames, width, height, rate)]
    subprocess.run([os.environ["VLLM_PYTHON"], "-c", WRITE_AVI, *written], check=True, capture_output=True)
    return f"data:video/x-msvideo;base64,{base64.b64encode(path.read_bytes()).decode()}"


def ask(gateway, server, *urls):
    parts = [{"type": "video_url", "video_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": [{"type": "text", "text": "What happens?"}, *parts]}]
    body = {"model": server.model, "messages": messages, "max_tokens": 1}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    counted = usage["prompt_tokens_details"]["multimodal_tokens"]["video"]
    return usage["prompt_tokens"], counted, int(answer.headers["x-gateway-prompt-tokens"]), answer


@pytest.mark.parametrize(
    ("frames", "width", "height"), [(2, 56, 56), (3, 224, 224), (5, 640, 480), (8, 100, 30), (20, 112, 112)]
)
def test_a_list_of_pictures(gateway, server, frames, width, height, report_line):
    reported, counted, kept, _ = ask(gateway, server, frames_url(frames, width, height))
    patches, units = SMALL_FRAMES.video_grid(frames, width, height)
    report_line(f"video of {frames} pictures {width}x{height}: vLLM {reported} tokens ({counted} of it), kept {kept}")
    assert counted == patches * units
    assert reported <= kept


@pytest.mark.parametrize(("frames", "rate"), [(8, 2), (30, 10), (200, 5)])
def test_a_film(gateway, server, tmp_path, frames, rate, report_line):
    """One that is longer than vLLM takes frames of is cut to these."""
    reported, counted, kept, answer = ask(gateway, server, avi(tmp_path, frames, 320, 240, rate))
    report_line(f"film of {frames} frames at {rate} a second: vLLM {reported} tokens ({counted} of it), kept {kept}")
    assert counted <= MOST_FRAMES // 2 * 64
    assert reported <= kept
    assert int(answer.headers["x-gateway-media-tokens"]) < 16_384, "the bound is the rule's and not the context's"


def test_two_of_them(gateway, server, tmp_path):
    reported, _, kept, _ = ask(gateway, server, avi(tmp_path, 8, 320, 240, 2), frames_url(4, 112, 112))
    assert reported <= kept


def test_frames_that_share_an_area_are_shrunk_as_by_the_real_processor(report_line):
    """That of Qwen3-VL, which no server here has: transformers' own function, the emulated one, and the bound."""
    rule, emulated = resolve("qwen3_vl").video, FAMILIES["qwen3_vl"]
    chance = random.Random(1)
    sides = [1, 5, 16, 31, 32, 33, 48, 100, 320, 1080, 1920, 6400, 20_000]
    cases = [(chance.randint(1, 800), chance.choice(sides), chance.randint(1, 4000)) for _ in range(3000)]
    done = subprocess.run(
        [os.environ["VLLM_PYTHON"], "-c", REAL_SIZES],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | vllm_server.ENVIRONMENT,
    )
    taken = 0
    for case, real in zip(cases, json.loads(done.stdout), strict=True):
        try:
            patches, units = emulated.video_grid(*case)
        except (AspectRatioError, TooShortError):
            assert real is None, case
            continue
        taken += 1
        assert units == real, case
        assert patches * units <= rule.most_encoder_tokens(case[0]), case
    assert taken > 2000
    report_line(
        f"sizes of videos compared with transformers: {len(cases)}, {taken} of them taken, all alike and bounded"
    )


def test_a_bound_that_is_too_low_is_seen(server, tmp_path, report_line):
    """The planted fault: frames of a server that takes more of them than the settings say."""
    settings = {
        "models": [{"name": server.model, "family": "qwen2_5_vl", "folder": str(server.folder)}],
        "videos": {"per_request": 1, "tokens": 20},
    }
    with running_gateway(server.url, tmp_path / "gateway", settings) as low:
        reported, _, kept, _ = ask(low, server, avi(tmp_path, 30, 320, 240, 5))
    report_line(f"planted fault, videos.tokens of 20: vLLM {reported} tokens, kept {kept}")
    assert reported > kept
