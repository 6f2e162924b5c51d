"""What a name that the upstream lists is priced by."""

from dataclasses import replace

import pytest

from gateway.domain.calibration import Calibration, CalibrationState
from gateway.domain.kv_layout import Kind, KvCharge, Layer, group_layers
from gateway.domain.learning import LearnedLimit
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.registry import family_for
from gateway.domain.vision.sources import Number
from gateway.domain.vision.written import Written
from gateway.models.configure import configured_model
from gateway.models.identity import FoundFiles, identify_anyway, published
from gateway.models.processor_config import parse_model
from gateway.models.served import Engine, FamilySource, ModelTable, Origin, ServedModel, Wanted

GEMMA = group_layers([Layer(Kind.FULL, 0, 4)] * 5 + [Layer(Kind.SLIDING, 1024, 4)] * 29)
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
    assert (model.family.name, model.is_assumed, model.numbers) == ("unknown", True, ())


class TestCalibration:
    def test_a_family_that_was_found_prices_from_then_on(self):
        [model] = listed("my-own")
        found = family_for("qwen3_vl", None)
        model.calibrated(Calibration(CalibrationState.FOUND, family=found, numbers=(PATCH,)))
        assert (model.family, model.family_source, model.numbers) == (found, FamilySource.CALIBRATION, (PATCH,))
        assert not model.is_assumed

    def test_bounds_of_several_price_a_model_that_stays_unknown(self):
        [model] = listed("my-own")
        bounds = OneOf("a or b", (family_for("qwen3_vl", None),), ())
        model.calibrated(Calibration(CalibrationState.SEVERAL, family=bounds))
        assert (model.family, model.is_assumed) == (bounds, True)

    def test_a_family_that_was_named_stays_named_and_its_prices_become_bounds(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        before = named, _, numbers, video = model.uncalibrated
        bounds = OneOf("qwen3_vl", (named, family_for("qwen2_5_vl", None)), ())
        model.calibrated(Calibration(CalibrationState.DISAGREES, family=bounds))
        assert (model.family, model.family_source, model.numbers) == (bounds, FamilySource.NAME, numbers)
        assert (model.uncalibrated, model.video) == (before, None), "what is wrong of images bounds no video"
        model.calibrated(Calibration(CalibrationState.AGREES))
        assert model.video is video is not None

    def test_what_was_known_before_is_back_when_the_server_is_another(self):
        [named, unknown] = listed("Qwen/Qwen3-VL-8B-Instruct", "my-own")
        before = named.uncalibrated, unknown.uncalibrated
        other = family_for("llava_1_5", None)
        for model in (named, unknown):
            model.calibrated(Calibration(CalibrationState.FOUND, family=other))
            model.image_cap.most = 576
            model.calibrated(Calibration(CalibrationState.UNANSWERED, trouble="gone"))
            assert model.calibration.state is CalibrationState.UNANSWERED
        assert (named.uncalibrated, unknown.uncalibrated) == before
        assert (named.family, unknown.family) == (before[0].family, before[1].family)
        assert (unknown.is_assumed, unknown.image_cap.most) == (True, None)

    def test_a_smaller_maximum_of_the_server_caps_what_its_images_cost_until_that_is_gone(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        named = model.family
        model.calibrated(Calibration(CalibrationState.DISAGREES, most_tokens=1026))
        assert (model.family, model.image_cap.within(1500), model.image_cap.within(900)) == (named, 1026, 900)
        model.calibrated(Calibration(CalibrationState.AGREES))
        assert model.image_cap.most is None

    def test_a_family_that_agrees_but_for_its_template_bounds_videos_still(self):
        [model] = listed("Qwen/Qwen3-VL-8B-Instruct")
        video, written = model.video, Written(model.family, 5)
        model.calibrated(Calibration(CalibrationState.AGREES, written=5, family=written))
        assert (model.family, model.video) == (written, video)
        assert video is not None

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


FILES = FoundFiles(
    parse_model(
        {"architectures": ["Qwen2_5_VLForConditionalGeneration"]},
        {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 802_816},
        None,
    ),
    FamilySource.CACHE,
)


def table_of(*configured, **origins):
    table = ModelTable(configured, Engine(LearnedLimit(), LearnedLimit()))
    relist(table, **origins)
    return table


def relist(table, **origins):
    table.listed(dict.fromkeys(origins, 4096), {name: Origin(*origin) for name, origin in origins.items()})


def configured(name, **said):
    return configured_model(name, **{"family": None, "folder": None, "processor": None} | said)


def found_by(table, name):
    model = table.served(name)
    return model.family.name, model.family_source


class TestOrigins:
    def test_an_alias_is_known_by_what_the_server_loads(self):
        table = table_of(vision=("Qwen/Qwen2.5-VL-7B-Instruct",), other=("/models/Qwen3-VL-8B-Instruct",))
        assert found_by(table, "vision") == ("qwen2_5_vl", FamilySource.ROOT)
        assert found_by(table, "other") == ("qwen3_vl", FamilySource.ROOT)

    def test_so_is_a_configured_one_once_it_is_listed(self):
        table = ModelTable([configured("vision")], Engine(LearnedLimit(), LearnedLimit()))
        assert table.served("vision").is_assumed
        relist(table, vision=("Qwen/Qwen2.5-VL-7B-Instruct",))
        assert found_by(table, "vision") == ("qwen2_5_vl", FamilySource.ROOT)
        relist(table)
        assert found_by(table, "vision") == ("qwen2_5_vl", FamilySource.ROOT), "it is remembered while it is away"

    def test_an_adapter_is_as_its_parent(self):
        table = table_of(base=("Qwen/Qwen2.5-VL-7B-Instruct",), adapter=("/loras/mine", "base"))
        assert found_by(table, "adapter") == found_by(table, "base") == ("qwen2_5_vl", FamilySource.ROOT)

    def test_also_where_the_settings_name_the_parent(self):
        options = {"max_pixels": 401_408}
        table = table_of(configured("base", family="qwen2_5_vl", options=options), adapter=("/loras/mine", "base"))
        assert found_by(table, "adapter") == ("qwen2_5_vl", FamilySource.SETTING)
        assert table.served("adapter").family.max_image_tokens == 512

    def test_what_its_parent_has_learned_of_texts_and_speed_is_its_own_and_answers_begin_from_there(self):
        table = table_of(base=("Qwen/Qwen2.5-VL-7B-Instruct",), adapter=("/loras/mine", "base"))
        base, adapter = table.served("base"), table.served("adapter")
        for _ in range(40):
            base.ratio.observe(60_000, 1, 30_000)
            base.output.observe(7, was_cut=False)
            base.speed.observe(1000, 10.0)
        assert adapter.ratio.bytes_per_token == base.ratio.bytes_per_token < 2.1
        assert (adapter.output.typical_tokens, adapter.output.likely_tokens) == (7, 7)
        assert adapter.speed.tokens_per_second == base.speed.tokens_per_second > 90
        assert adapter.image_cap is base.image_cap
        for _ in range(30):
            adapter.output.observe(900, was_cut=False)
        assert (adapter.output.typical_tokens, base.output.typical_tokens) == (900, 7)

    def test_it_keeps_what_it_learned_while_the_list_stays_the_same(self):
        base, adapter = ("Qwen/Qwen2.5-VL-7B-Instruct",), ("/loras/mine", "base")
        table = table_of(base=base, adapter=adapter)
        output = table.served("adapter").output
        relist(table, base=base, adapter=adapter)
        assert table.served("adapter").output is output

    def test_it_has_its_parents_context_for_vllm_tells_none(self):
        table = table_of()
        origins = {"base": Origin("qwen2-vl"), "adapter": Origin("/loras/mine", "base")}
        table.listed({"adapter": None, "base": 4096}, origins)
        assert table.served("adapter").max_model_len == 4096

    def test_texts_are_counted_by_its_parents_tokenizer_unless_it_has_a_folder_of_its_own(self):
        parent, own, named = configured("base"), configured("own"), configured("named")
        parent.exact_text = object()
        own.said = replace(own.said, folder=FILES)
        adapters = {name: (f"/loras/{name}", "base") for name in ("adapter", "own", "named")}
        table = table_of(parent, own, named, base=("qwen2-vl",), **adapters)
        assert table.served("named").exact_text is parent.exact_text
        assert table.served("adapter").exact_text is parent.exact_text
        assert table.served("own").exact_text is None

    def test_one_that_is_priced_otherwise_has_a_cap_of_its_own(self):
        table = table_of(configured("adapter", family="qwen3_vl"), base=("qwen2-vl",), adapter=("/loras/mine", "base"))
        assert table.served("adapter").image_cap is not table.served("base").image_cap

    def test_the_settings_own_word_on_the_adapter_goes_before(self):
        table = table_of(configured("adapter", family="qwen3_vl"), base=("qwen2-vl",), adapter=("/loras/mine", "base"))
        assert found_by(table, "adapter") == ("qwen3_vl", FamilySource.SETTING)

    def test_a_parent_that_nobody_lists_is_none(self):
        assert table_of(adapter=("/loras/mine", "gone")).served("adapter").is_assumed

    def test_another_model_under_the_same_name_is_known_anew(self):
        table = table_of(vision=("Qwen/Qwen2.5-VL-7B-Instruct",))
        before = table.served("vision")
        relist(table, vision=("Qwen/Qwen3-VL-8B-Instruct",))
        assert found_by(table, "vision") == ("qwen3_vl", FamilySource.ROOT)
        assert before.family.name == "qwen2_5_vl", "requests on their way keep what they were priced by"
        assert table.served("vision").ratio is before.ratio

    def test_options_that_do_not_fit_what_the_server_loads_are_told_once(self, caplog):
        table = table_of(configured("vision", options={"num_crops": 4}), vision=("Qwen/Qwen3-VL-8B-Instruct",))
        relist(table, vision=("Qwen/Qwen3-VL-8B",))
        assert found_by(table, "vision") == ("qwen3_vl", FamilySource.ROOT)
        assert caplog.text.count("model 'vision': image processor configuration: num_crops") == 1


ADAPTERS = {f"adapter{number}": (f"/loras/{number}", "base") for number in range(50)}


class TestManyAdapters:
    """Adapters come and go by the thousand while requests are on their way."""

    @pytest.fixture
    def identified(self, monkeypatch):
        calls = []

        def counted(*arguments):
            calls.append(arguments)
            return identify_anyway(*arguments)

        monkeypatch.setattr("gateway.models.served.identify_anyway", counted)
        return calls

    def test_those_that_are_alike_are_identified_together(self, identified):
        table = table_of(base=("Qwen/Qwen2.5-VL-7B-Instruct",), **ADAPTERS)
        assert found_by(table, "adapter49") == ("qwen2_5_vl", FamilySource.ROOT)
        assert len(identified) == 1

    def test_one_more_changes_none_of_the_others(self, identified, monkeypatch):
        table = table_of(base=("Qwen/Qwen2.5-VL-7B-Instruct",), **ADAPTERS)
        named = []
        monkeypatch.setattr(
            "gateway.models.served.published", lambda names: named.append(names[-1].text) or published(names)
        )
        relist(table, base=("Qwen/Qwen2.5-VL-7B-Instruct",), **ADAPTERS, new=("/loras/new", "base"))
        assert found_by(table, "new") == ("qwen2_5_vl", FamilySource.ROOT)
        assert named == ["new"]

    def test_another_parent_changes_its_own(self):
        table = table_of(base=("Qwen/Qwen2.5-VL-7B-Instruct",), **ADAPTERS)
        relist(table, base=("Qwen/Qwen3-VL-8B-Instruct",), **ADAPTERS)
        assert found_by(table, "adapter7") == ("qwen3_vl", FamilySource.ROOT)

    def test_so_does_one_that_comes_or_goes(self):
        table = table_of(**ADAPTERS)
        assert table.served("adapter7").is_assumed
        relist(table, base=("Qwen/Qwen3-VL-8B-Instruct",), **ADAPTERS)
        assert found_by(table, "adapter7") == ("qwen3_vl", FamilySource.ROOT)
        relist(table, **ADAPTERS)
        assert table.served("adapter7").is_assumed


class TestFoundFiles:
    def test_all_are_wanted_but_those_with_a_folder_and_adapters(self, model_folder):
        folder = configured("mine", folder=str(model_folder()))
        table = table_of(folder, vision=("org/model",), adapter=("/loras/mine", "vision"))
        assert table.wanted() == (Wanted("vision", "org/model"),)

    def test_they_say_what_the_model_is_and_its_adapters(self):
        table = table_of(vision=("org/model",), adapter=("/loras/mine", "vision"))
        table.served("vision").image_cap.most = 7
        table.found(*table.wanted(), FILES)
        assert found_by(table, "vision") == found_by(table, "adapter") == ("qwen2_5_vl", FamilySource.CACHE)
        model = table.served("vision")
        assert (model.family.max_pixels, model.max_model_len, model.image_cap.most) == (802_816, 4096, None)

    def test_an_adapter_that_comes_later_has_them_too(self):
        table = table_of(vision=("org/model",))
        table.found(*table.wanted(), FILES)
        relist(table, vision=("org/model",), adapter=("/loras/mine", "vision"))
        assert found_by(table, "adapter") == ("qwen2_5_vl", FamilySource.CACHE)

    def test_files_that_say_nothing_new_change_nothing(self):
        table = table_of(vision=("org/model",))
        table.found(*table.wanted(), FILES)
        before = table.served("vision")
        table.found(*table.wanted(), FILES)
        assert table.served("vision") is before

    def test_they_are_of_no_other_model_that_came_meanwhile(self):
        table = table_of(vision=("org/model",))
        (wanted,) = table.wanted()
        relist(table, vision=("org/other",))
        table.found(wanted, FILES)
        assert table.served("vision").is_assumed
        relist(table)
        table.found(wanted, FILES)
        assert table.names == ()

    def test_and_are_forgotten_with_the_model_that_they_are_of(self):
        table = table_of(vision=("org/model",))
        table.found(*table.wanted(), FILES)
        relist(table, vision=("org/other",))
        assert table.served("vision").is_assumed


class TestCalibrationAndFiles:
    def test_what_files_say_takes_the_place_of_what_was_calibrated(self):
        table = table_of(vision=("org/model",))
        before = table.served("vision")
        before.calibrated(Calibration(CalibrationState.FOUND, family=family_for("qwen3_vl", None), numbers=(PATCH,)))
        table.found(*table.wanted(), FILES)
        model = table.served("vision")
        assert found_by(table, "vision") == ("qwen2_5_vl", FamilySource.CACHE)
        assert (model.calibration.state, model.uncalibrated.family) == (CalibrationState.WAITING, model.family)
        assert found_by(table, "vision") != (before.family.name, before.family_source), "those on their way keep theirs"

    def test_files_that_say_nothing_new_leave_what_was_calibrated(self):
        table = table_of(vision=("org/model",))
        table.found(*table.wanted(), FILES)
        model = table.served("vision")
        bounds = OneOf("qwen2_5_vl", (model.family, family_for("qwen3_vl", None)), ())
        model.calibrated(Calibration(CalibrationState.DISAGREES, family=bounds))
        table.found(*table.wanted(), FILES)
        assert table.served("vision") is model
        assert model.family is bounds

    def test_calibration_then_overlays_what_files_say(self):
        table = table_of(vision=("org/model",))
        table.found(*table.wanted(), FILES)
        model = table.served("vision")
        bounds = OneOf("qwen2_5_vl", (model.family, family_for("qwen3_vl", None)), ())
        model.calibrated(Calibration(CalibrationState.DISAGREES, family=bounds))
        assert (model.family, model.uncalibrated.family.max_pixels) == (bounds, 802_816)
        assert (model.family_source, model.is_assumed) == (FamilySource.CACHE, False)


def limits(longest_request_blocks, **model):
    table = ModelTable([ServedModel("gemma", family_for("gemma3", None), **model)], Engine(*[LearnedLimit()] * 2))
    table.listed({"gemma": 8192})
    table.engine.longest_request_blocks = longest_request_blocks
    return table.limits(table.served("gemma"))


@pytest.mark.parametrize(
    ("told", "model", "groups", "charges"),
    [
        (None, {}, None, ()),
        (512, {}, 1, (KvCharge(1, 16),)),
        (1700, {}, None, ()),
        (None, {"kv_layout": GEMMA}, 7, ()),
        (512, {"kv_layout": GEMMA}, 1, (KvCharge(1, 16),)),
        (512 + 6 * 193, {"kv_layout": GEMMA}, 7, (KvCharge(1, 16), KvCharge(6, 16, 193, 66))),
        (512, {"kv_charges": (KvCharge(2, 16),)}, 2, (KvCharge(2, 16),)),
    ],
)
def test_kv_groups_are_charged_by_the_files_and_by_what_the_server_tells(told, model, groups, charges):
    known = limits(told, **model)
    assert (known.kv_groups, known.kv_charges) == (groups, charges)


def test_what_an_engine_can_hold_is_made_anew_only_when_something_changes():
    model = ServedModel("qwen", family_for("qwen2_5_vl", None))
    table = ModelTable([model], Engine(LearnedLimit(), LearnedLimit(), kv_blocks=1000))
    known = table.limits(model)
    assert table.limits(model) is known
    table.engine.kv_blocks, model.max_model_len = 500, 4096
    assert table.limits(model) == known._replace(kv_blocks=500, max_model_len=4096)
    table.engine.encoder_tokens.learn(2048)
    assert table.limits(model).encoder_budget_tokens == 2048
    model.kv_charges = (KvCharge(2, 16),)
    assert table.limits(model).kv_groups == 2
    assert table.limits(ServedModel("other", model.family)).kv_groups is None
