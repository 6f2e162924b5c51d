"""What a name that the upstream lists is priced by."""

import pytest

from gateway.domain.kv_layout import Kind, KvCharge, Layer, group_layers
from gateway.domain.learning import LearnedLimit
from gateway.domain.vision.registry import family_for
from gateway.models.served import Engine, FamilySource, ModelTable, ServedModel

GEMMA = group_layers([Layer(Kind.FULL, 0, 4)] * 5 + [Layer(Kind.SLIDING, 1024, 4)] * 29)


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
