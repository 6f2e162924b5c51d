"""What a name that the upstream lists is priced by."""

from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.learning import LearnedLimit
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.registry import family_for
from gateway.domain.vision.sources import Number
from gateway.models.configure import configured_model
from gateway.models.served import Engine, FamilySource, ModelTable

PATCH = Number("patch_size", 16, "published")


def listed(*names):
    table = ModelTable([], Engine(LearnedLimit(), LearnedLimit()))
    table.listed(dict.fromkeys(names, 4096))
    return [table.served(name) for name in names]


def test_a_published_checkpoints_name_says_its_family_and_its_numbers():
    small, large = listed("moonshotai/Kimi-VL-A3B-Instruct", "moonshotai/Kimi-VL-A3B-Thinking-2506")
    assert (small.family.name, small.family_source) == ("kimi_vl", FamilySource.NAME)
    assert (small.family.most_patches, large.family.most_patches) == (4096, 16384)
    assert {number.source for number in large.numbers} == {"published Kimi-VL 2506 (verified)", "class default"}


def test_another_name_is_assumed():
    [model] = listed("my-own")
    assert (model.family.name, model.is_assumed) == ("qwen2_5_vl", True)


class TestCalibration:
    def test_a_family_that_was_found_prices_from_then_on(self):
        [model] = listed("my-own")
        assert model.image_cap.most == 1536
        found = family_for("qwen3_vl", None)
        model.calibrated(Calibration(CalibrationState.FOUND, family=found, numbers=(PATCH,)))
        assert (model.family, model.family_source, model.numbers) == (found, FamilySource.CALIBRATION, (PATCH,))
        assert (model.is_assumed, model.image_cap.most) == (False, None)

    def test_bounds_of_several_price_a_model_that_stays_unknown(self):
        [model] = listed("my-own")
        bounds = OneOf("a or b", (family_for("qwen3_vl", None),), ())
        model.calibrated(Calibration(CalibrationState.SEVERAL, family=bounds))
        assert (model.family, model.is_assumed, model.image_cap.most) == (bounds, True, None)

    def test_a_family_that_was_named_stays_named_and_its_prices_become_bounds(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        named, numbers = model.family, model.numbers
        bounds = OneOf("qwen3_vl", (named, family_for("qwen2_5_vl", None)), ())
        model.calibrated(Calibration(CalibrationState.DISAGREES, family=bounds))
        assert (model.family, model.family_source, model.numbers) == (bounds, FamilySource.NAME, numbers)
        assert model.uncalibrated == (named, FamilySource.NAME, numbers)

    def test_what_was_known_before_is_back_when_the_server_is_another(self):
        [named, unknown] = listed("Qwen/Qwen3-VL-8B-Instruct", "my-own")
        before = named.uncalibrated, unknown.uncalibrated
        other = family_for("llava_1_5", None)
        for model in (named, unknown):
            model.calibrated(Calibration(CalibrationState.FOUND, family=other))
            model.calibrated(Calibration(CalibrationState.UNANSWERED, trouble="gone"))
            assert model.calibration.state is CalibrationState.UNANSWERED
        assert (named.uncalibrated, unknown.uncalibrated) == before
        assert (named.family, unknown.family) == (before[0].family, before[1].family)
        assert (unknown.is_assumed, unknown.image_cap.most) == (True, 1536)

    def test_a_smaller_maximum_of_the_server_caps_what_its_images_cost_until_that_is_gone(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        named = model.family
        model.calibrated(Calibration(CalibrationState.DISAGREES, most_tokens=1026))
        assert (model.family, model.image_cap.within(1500), model.image_cap.within(900)) == (named, 1026, 900)
        model.calibrated(Calibration(CalibrationState.AGREES))
        assert model.image_cap.most is None

    def test_what_traffic_taught_stays(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        model.image_cap.most = 1026
        model.calibrated(Calibration(CalibrationState.AGREES))
        assert model.image_cap.most == 1026

    def test_copies_at_several_servers_are_calibrated_each_by_itself(self):
        one = configured_model("m", family=None, folder=None, processor=None)
        here, there = one.at_one_upstream(), one.at_one_upstream()
        here.calibrated(Calibration(CalibrationState.FOUND, family=family_for("qwen3_vl", None)))
        assert (here.is_assumed, there.is_assumed) == (False, True)
        assert (here.image_cap.most, there.image_cap.most) == (None, 1536)
