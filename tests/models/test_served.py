"""What a name that the upstream lists is priced by."""

from gateway.domain.learning import LearnedLimit
from gateway.models.served import Engine, FamilySource, ModelTable


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
