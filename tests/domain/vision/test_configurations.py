"""Keys of the models' own files, where families read them with more than a default."""

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError, UnservableImageError
from gateway.domain.vision.constant import Constant
from gateway.domain.vision.registry import family_for

SQUARE = Size(1024, 1024)


def tokens(family, size=SQUARE, **config):
    return family_for(family, config).tokens(size).placeholder


@pytest.mark.parametrize(
    ("vision", "strategy", "count"),
    [
        ({"image_size": 336, "patch_size": 14, "model_type": "clip_vision_model"}, "default", 576),
        ({"image_size": 336, "patch_size": 14, "model_type": "clip_vision_model"}, "full", 577),
        ({"image_size": 384, "patch_size": 14, "model_type": "siglip_vision_model"}, "full", 729),
        ({"image_size": 384, "patch_size": 14}, "full", 729),
        ({"image_size": 224, "patch_size": 14}, "default", 256),
    ],
)
def test_llava_has_a_class_token_where_its_encoder_has_one_and_the_strategy_keeps_it(vision, strategy, count):
    assert tokens("llava_1_5", vision_config=vision, vision_feature_select_strategy=strategy) == count


@pytest.mark.parametrize(
    ("family", "config", "text"),
    [
        ("llava_1_5", {"vision_feature_select_strategy": "some"}, "vision_feature_select_strategy must be default or"),
        ("granite4_vision", {"downsample_rate": "half"}, "downsample_rate must be a fraction such as 4/8, not 'half'"),
        ("granite4_vision", {"downsample_rate": "4/0"}, "downsample_rate must be a fraction"),
        ("minicpmv4_6", {"downsample_mode": "8x"}, "downsample_mode must be 16x or 4x, not '8x'"),
        ("llava_next", {"image_grid_pinpoints": [336]}, "image_grid_pinpoints must hold two numbers, not 336"),
    ],
)
def test_what_cannot_be_priced_is_named(family, config, text):
    with pytest.raises(ProcessorConfigError, match=text):
        family_for(family, config)


def test_internvl_takes_one_tile_unless_its_file_says_that_it_is_dynamic():
    assert tokens("internvl") == 256 + 2
    assert tokens("internvl", dynamic_image_size=True) == 4 * 256 + 2
    assert tokens("internvl", dynamic_image_size=True, use_thumbnail=True) == 5 * 256 + 2


def test_minicpm_4_6_pools_less_or_slices_nothing():
    assert tokens("minicpmv4_6", downsample_mode="4x") == 4 * tokens("minicpmv4_6")
    assert tokens("minicpmv4_6", slice_mode=False) == 64
    assert tokens("minicpmv", slice_mode=False) == 66 + 3


def test_lfm2_without_splitting_is_one_image():
    assert tokens("lfm2_vl", do_image_splitting=False) == 256 + 2
    strip = Size(1, 2_000_000)
    model = family_for("lfm2_vl", {"do_image_splitting": False})
    assert 20_000 < model.tokens(strip).placeholder < model.max_image_tokens


def test_llama_4_may_fill_the_largest_canvas():
    small = Size(300, 300)
    assert tokens("llama4", small) == 147
    assert tokens("llama4", small, resize_to_max_canvas=True) == 3 + 144 * 17 + 16


def test_deepseek_ocr_without_cropping_and_step3_without_windows_have_one_view():
    assert tokens("deepseek_ocr", crop_mode=False) == 273
    assert family_for("deepseek_ocr", {"crop_mode": False}).max_image_tokens == 273
    assert tokens("step3_vl", enable_patch=False) == 171
    assert family_for("step3_vl", {"enable_patch": False}).max_image_tokens == 171


def test_h2ovl_with_room_for_no_second_grid_adds_one_tile():
    shipped = {"dynamic_image_size": True, "use_thumbnail": True, "max_dynamic_patch": 6, "use_msac": True}
    assert tokens("h2ovl", SQUARE, **shipped, images_in_request=1) == 5 * 256 + 2


def test_kimi_k2_5_is_read_from_its_first_files_too():
    published = {"media_proc_cfg": {"patch_size": 14, "in_patch_limit": 1024, "merge_kernel_size": 2}}
    assert tokens("kimi_k2_5", SQUARE, **published) < 324 < tokens("kimi_k2_5")


@pytest.mark.parametrize(
    ("family", "size", "text"),
    [
        ("pixtral_hf", Size(4000, 1), "a side vanishes"),
        ("fuyu", Size(4000, 1), "shrunk into 1920x1080, a side vanishes"),
        ("phi3_5_vision", Size(4000, 1), "brought to the model's width, a side vanishes"),
        ("phi4_multimodal", Size(4000, 9), "fewer than 10 pixels"),
        ("kimi_vl", Size(11_000, 28), "the image has 786 patches along its longer side"),
        ("step3_vl", Size(100_000, 32), "shrunk to 3024 pixels, a side vanishes"),
        ("ernie4_5_vl", Size(2010, 10), "its aspect ratio is 201"),
        ("glm4_1v", Size(20_000, 50), "its aspect ratio is 400"),
    ],
)
def test_what_a_processor_fails_on_is_refused_with_the_reason(family, size, text):
    with pytest.raises(UnservableImageError, match=text):
        family_for(family, None).tokens(size)


@pytest.mark.parametrize("family", ["glm4_1v", "paddleocr_vl", "fuyu", "phi3_5_vision"])
def test_what_is_too_long_for_a_model_becomes_one_that_it_takes(family):
    model = family_for(family, None)
    target = model.shrink(Size(9_000, 30), model.max_image_tokens)
    assert model.tokens(target).placeholder <= model.max_image_tokens


def test_mistral_keeps_a_pixel_where_the_other_processor_fails():
    assert family_for("pixtral_mistral_common", None).tokens(Size(4000, 1)).placeholder == 65


def test_a_strip_of_ovis_2_5_whose_side_vanishes_is_passed_on_as_it_is():
    strip = Size(7_560, 1)
    cost = family_for("ovis2_5", None).tokens(strip)
    assert (cost.placeholder, cost.model_size, cost.is_capped) == (2, strip, False)


def test_a_constant_family_has_nothing_to_save():
    model = Constant("c", side=336, soft=576)
    assert model.shrink(SQUARE, 575) is None
    assert model.shrink(SQUARE, 576) == SQUARE
