"""Images of which no exact price is known, through a live gateway: a place for the most that they may cost, a refusal
for good only for the least, and both said in the header, in the log and in metrics.
"""

import asyncio

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.unknown import unknown_family
from tests.support.live_gateway import MODEL, image, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server
from tests.support.pictures import data_url, encoded, picture

LARGE = image(data_url(encoded(picture(1920, 1080), "JPEG"), "image/jpeg"))
MOST = unknown_family().tokens(Size(1920, 1080)).prompt
UNKNOWN = "lower=1; upper={}; why=unknown_family"


async def test_an_unknown_family_is_priced_by_its_bounds_and_says_so():
    async with model_server() as upstream, live_gateway(upstream.base_url, models=[]) as gateway:
        await gateway.until_up()
        answer = await gateway.chat("What?", LARGE)
        assert answer.status_code == 200
        assert answer.headers["x-gateway-visual-tokens"] == str(MOST)
        assert answer.headers["x-gateway-visual-bounds"] == UNKNOWN.format(MOST)
        (line,) = await gateway.log(1)
        assert (line["visual_tokens_least"], line["visual_tokens"]) == (1, MOST)
        assert line["visual_why"] == "unknown_family"
        assert gateway.metrics("gateway_bounded_requests_total") == {'{why="unknown_family"}': 1}
        assert gateway.metrics("gateway_models_of_unknown_family") == {"": 1}
        assert gateway.metrics("gateway_estimate_error_ratio_count") == {}, "what is kept is no prediction"


async def test_a_known_family_whose_size_decides_has_no_such_header():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        answer = await gateway.chat("What?", LARGE)
        assert "x-gateway-visual-bounds" not in answer.headers
        (line,) = await gateway.log(1)
        assert not {"visual_tokens_least", "visual_why"} & line.keys()
        assert gateway.metrics("gateway_bounded_requests_total") == {}
        assert gateway.metrics("gateway_models_of_unknown_family") == {}
        assert gateway.metrics("gateway_estimate_error_ratio_count") == {"": 1}


async def test_a_text_says_nothing_of_bounds():
    async with model_server() as upstream, live_gateway(upstream.base_url, models=[]) as gateway:
        await gateway.until_up()
        assert "x-gateway-visual-bounds" not in (await gateway.chat("What?")).headers
        assert gateway.metrics("gateway_estimate_error_ratio_count") == {"": 1}


@pytest.mark.parametrize("limits", [{"context": 256}, {"budget": {"kv_blocks": 8, "encoder_tokens": 16}}])
async def test_its_images_refuse_nothing_for_good(limits):
    context, sections = limits.get("context", 32_768), {key: value for key, value in limits.items() if key == "budget"}
    upstream_, unknown = model_server(context=context), {"models": []} | sections
    async with upstream_ as upstream, live_gateway(upstream.base_url, **unknown) as gateway:
        await gateway.until_up()
        assert (await gateway.chat("What?", LARGE, LARGE, max_tokens=4)).status_code == 200


async def test_its_text_does_and_every_image_is_a_token_at_least():
    async with model_server(context=100) as upstream, live_gateway(upstream.base_url, models=[]) as gateway:
        await gateway.until_up()
        # 99 tokens are sure to come, the answer's first among them; two images more are too many.
        text = "x" * (98 * 128)
        assert (await gateway.chat(text, max_tokens=4)).status_code == 200
        assert (await gateway.chat(text, LARGE, max_tokens=4)).status_code == 200
        refusal = await gateway.chat(text, LARGE, LARGE, max_tokens=4)
        assert refusal.status_code == 400
        error = error_of(refusal)
        assert error["code"] == "context_length_exceeded"
        assert "Shorten the text by at least" in error["message"]
        assert "image" not in error["message"], "nobody knows what leaving them out would save"


async def test_a_place_is_kept_for_the_most_but_for_no_more_than_the_context():
    patient = Patient()
    async with (
        model_server(patient, context=4096) as upstream,
        live_gateway(upstream.base_url, models=[], budget={"kv_blocks": 10_000}) as gateway,
    ):
        await gateway.until_up()
        answers = [gateway.chat("What?", *images, max_tokens=1) for images in ([LARGE], [LARGE] * 3)]
        running = [asyncio.create_task(answer) for answer in answers]
        await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 2)
        held = gateway.metrics("gateway_held")['{resource="kv_blocks"}']
        patient.may_answer.set()
        first, second = [await task for task in running]
        assert MOST > 4096
        assert held == 2 * (4096 // 16 + 1)
        assert second.headers["x-gateway-visual-bounds"] == f"lower=3; upper={3 * MOST}; why=unknown_family"
        assert first.status_code == second.status_code == 200


NEMOTRON = {"min_num_patches": 1024, "max_num_patches": 13_312}
MSAC = {"use_msac": True, "dynamic_image_size": True, "use_thumbnail": True, "max_dynamic_patch": 6}


@pytest.mark.parametrize(
    ("family", "processor", "lower", "upper"),
    [
        ("deepseek_vl2", None, 421, 1807),
        ("h2ovl", MSAC, 3 * 256 + 2, 9 * 256 + 2),
        ("minicpmv", None, 598, 601),
        ("nemotron_nano_v2", NEMOTRON, 1, None),
    ],
)
async def test_where_more_than_the_size_decides_it_is_said_too(family, processor, lower, upper):
    models = [{"name": MODEL, "family": family, "processor": processor}]
    async with model_server() as upstream, live_gateway(upstream.base_url, models=models) as gateway:
        await gateway.until_up()
        answer = await gateway.chat("What?", LARGE)
        said = dict(part.split("=") for part in answer.headers["x-gateway-visual-bounds"].split("; "))
        assert said["why"] == "more_than_size"
        assert answer.headers["x-gateway-visual-tokens"] == said["upper"]
        assert (
            int(said["lower"]) >= lower
            if upper is None
            else (said["lower"], said["upper"])
            == (
                str(lower),
                str(upper),
            )
        )
        (line,) = await gateway.log(1)
        assert (str(line["visual_tokens_least"]), line["visual_why"]) == (said["lower"], "more_than_size")
        assert gateway.metrics("gateway_bounded_requests_total") == {'{why="more_than_size"}': 1}
        assert gateway.metrics("gateway_models_of_unknown_family") == {}


@pytest.mark.parametrize(("encoder_tokens", "status"), [(1000, 200), (400, 400)])
async def test_only_the_least_is_a_reason_to_refuse_for_good(encoder_tokens, status):
    """DeepSeek-VL2 makes 421 or 1,806 embeddings of it, by how many images there are."""
    models = [{"name": MODEL, "family": "deepseek_vl2"}]
    sections = {"models": models, "budget": {"encoder_tokens": encoder_tokens}, "resize": {"fit": "refuse"}}
    async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        answer = await gateway.chat("What?", LARGE, max_tokens=4)
        assert answer.status_code == status
        if status == 400:
            assert answer.headers["x-gateway-reason"] == "never_fits_encoder"
