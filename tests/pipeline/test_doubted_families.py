"""What images and videos cost a model of which several families are possible, or whose own was seen to be wrong."""

from types import SimpleNamespace

import pytest

from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, ImagePlan
from gateway.domain.media import MediaKind, MediaPolicy, MediaRef
from gateway.domain.request import VisionRequest
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.registry import family_for
from gateway.models.configure import configured_model
from gateway.pipeline.planning import image_cost
from gateway.pipeline.pricing import media_cost

QWEN = family_for("qwen2_5_vl", None)
STRIP = Size(9000, 30)
VIDEO = VisionRequest("m", media=(MediaRef(MediaKind.VIDEO, "messages[0].content[0]", "p"),))


def planned(size):
    return ImagePlan(0, ImageInfo(ImageFormat.PNG, size, size, 1, 1, 1, is_lossy=False), size, 0, 0)


def test_an_image_that_all_candidates_refuse_costs_anything_up_to_the_most_of_them():
    cost = image_cost(planned(STRIP), OneOf("a or b", (QWEN,), (QWEN,)))
    most = QWEN.max_image_tokens
    assert (cost.placeholder, cost.prompt, cost.encoder) == (most, most + QWEN.markers, most)
    assert (cost.least_prompt, cost.least_encoder) == (1, 1)


def rules(tokens=None):
    policies = {kind: MediaPolicy(per_request=1, tokens=tokens) for kind in MediaKind}
    return SimpleNamespace(policies=SimpleNamespace(media=policies))


def test_a_family_that_its_server_contradicts_bounds_no_video_and_says_so():
    model = configured_model("m", family="qwen2_5_vl", folder=None, processor=None)
    (bound,) = media_cost(rules(), VIDEO, model)
    assert bound.prompt_tokens > 1_000_000
    model.calibrated(Calibration(CalibrationState.DISAGREES, family=OneOf("qwen2_5_vl", (QWEN,), ())))
    with pytest.raises(GatewayError) as refused:
        media_cost(rules(), VIDEO, model)
    assert refused.value.code is Code.MEDIA_NOT_ALLOWED
    assert "the family qwen2_5_vl, otherwise than which its server counts," in refused.value.message
    (stated,) = media_cost(rules(tokens=500), VIDEO, model)
    assert stated.prompt_tokens == 500, "the operator's own word stands"
