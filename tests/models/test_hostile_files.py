"""Nobody knows who wrote a model's files: whatever numbers they hold, requests are priced, and at once."""

import json
import os
import signal
import time
from contextlib import suppress

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError, UnservableImageError
from gateway.domain.vision.registry import FAMILIES, family_for
from gateway.domain.vision.video import LOADED_FRAMES
from gateway.models.identity import FamilySource, FoundFiles, Name, Said, identify, identify_anyway, published
from gateway.models.places import Places
from gateway.models.processor_config import ModelFilesError, parse_model

ODD = [
    *(10**9, 10**400, 2**31, 0, -1, True, 1e-300, 1e308, float("nan"), float("inf"), "x", "1e999999999", "4/8"),
    *([], [1], [[1, 10**9]], [[1, 1]] * 100_000, {}, {"height": [1]}, {"height": {}, "width": {}}),
    *({"height": 10**9, "width": 10**9}, {"longest_edge": 10**9}, {"shortest_edge": 10**9, "longest_edge": 10**9}),
]
SIZES = [Size(640, 480), Size(64, 64), Size(1, 60_000), Size(3000, 2000)]
VISION = {"architectures": ["Qwen2VLForConditionalGeneration"]}
TEXT = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


@pytest.fixture
def soon():
    """Ends what would never end."""

    def fail(_signal, _frame):
        raise AssertionError("takes for ever")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def found(config, processor=None):
    return FoundFiles(parse_model(config, processor, None), FamilySource.HUB)


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def price(identity):
    for size in SIZES:
        with suppress(UnservableImageError):
            identity.family.tokens(size)
            identity.family.shrink(size, 10)
    assert identity.family.max_image_tokens >= 0
    if identity.video is not None:
        identity.video.most_prompt_tokens(LOADED_FRAMES)


@pytest.mark.parametrize("family", [name for name, row in FAMILIES.items() if row.architectures])
def test_whatever_number_a_file_has_in_the_place_of_one_that_a_family_reads(family, soon):
    config = {"architectures": [FAMILIES[family].architectures[0]]}
    keys = {number.key for number in identify(Said(), [Name("any")], found(config)).numbers}
    for key in sorted(keys):
        for value in ODD:
            odd = nested(key, value)
            try:
                files = found(config | odd, odd)
            except ModelFilesError:
                continue
            identity, _ = identify_anyway(Said(), published([Name("any")]), files)
            price(identity)


def test_numbers_that_only_together_make_no_sense_are_named():
    with pytest.raises(
        ProcessorConfigError, match=r"min_crops, max_crops cannot be reckoned with .*IndexError.*: 9, 3"
    ):
        family_for("deepseek_ocr", {"min_crops": 9, "max_crops": 3})


@pytest.mark.parametrize(
    ("family", "config", "text"),
    [
        ("internvl", {"max_dynamic_patch": 129}, "max_dynamic_patch must be at most 128, not 129"),
        ("ovis2", {"max_partition": 33}, "max_partition must be at most 32, not 33"),
        ("qwen2_vl", {"patch_size": 2**31 + 1}, "patch_size must be at most 2147483648"),
        ("idefics3", {"size": {"longest_edge": 10**6}}, r"size\.longest_edge must be at most 11648"),
        ("granite4_vision", {"downsample_rate": "1e999999999"}, "downsample_rate must be a fraction"),
        (
            "llava_next",
            {"image_grid_pinpoints": [[1, 1]] * 257},
            "image_grid_pinpoints: its length must be at most 256",
        ),
        ("ovis2", {"covering_threshold": float("nan")}, "covering_threshold must be a number above 0, not nan"),
        ("internvl", {"downsample_ratio": 1e300}, r"downsample_ratio must be at most 2147483648"),
    ],
)
def test_what_no_model_has_is_refused_by_name(family, config, text):
    with pytest.raises(ProcessorConfigError, match=text):
        family_for(family, config)


def folder_of(tmp_path, config, **files):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return str(folder)


class TestFolders:
    @pytest.mark.parametrize(
        ("text", "trouble"),
        [
            ({"num_hidden_layers": 10**7}, "num_hidden_layers must be at most 4096, not 10000000"),
            ({"hidden_size": 2**31 + 1}, "hidden_size must be at most 2147483648"),
            ({"sliding_window": 2**31 + 1, "layer_types": ["sliding_attention"] * 2}, "sliding_window must be at most"),
        ],
    )
    def test_more_than_any_model_has_is_told_at_once(self, tmp_path, text, trouble):
        began = time.monotonic()
        look = Places().look("m", folder_of(tmp_path, VISION | TEXT | text))
        assert look.found is None
        assert trouble in look.troubles[0]
        assert time.monotonic() - began < 5

    def test_layers_of_no_kind_at_all_have_no_layout(self, tmp_path):
        look = Places().look("m", folder_of(tmp_path, VISION | TEXT | {"layer_types": [{}, {}]}))
        assert look.found.files.text.kv_layout is None

    def test_a_pipe_is_no_file(self, tmp_path, soon):
        folder = folder_of(tmp_path, VISION)
        os.mkfifo(f"{folder}/preprocessor_config.json")
        assert Places().look("m", folder).found.files.image_processor is None

    def test_a_long_value_is_quoted_in_short(self, tmp_path):
        (trouble,) = Places().look("m", folder_of(tmp_path, {"architectures": "x" * 1_000_000})).troubles
        assert "config.json: architectures must list at least one name, not 'xxx" in trouble
        assert len(trouble) < 700

    def test_so_is_one_of_the_processor(self):
        with pytest.raises(ProcessorConfigError) as caught:
            family_for("qwen2_vl", {"patch_size": ["x" * 1_000_000] * 10})
        assert len(str(caught.value)) < 700

    def test_what_nobody_foresaw_is_told_and_other_places_are_looked_at(self, tmp_path, monkeypatch):
        def odd(_folder):
            raise KeyError("y" * 1_000_000)

        monkeypatch.setattr("gateway.models.places.read_model_folder", odd)
        root = folder_of(tmp_path, VISION)
        look = Places(None, lambda _repository: tmp_path / "model").look("org/model", root)
        assert [trouble.partition(": ")[0] for trouble in look.troubles] == [root, "hub"]
        assert "cannot be made sense of: KeyError('yyy" in look.troubles[0]
        assert max(map(len, look.troubles)) < 700
        assert not look.is_worth_another
