"""Cards by the names that people and tools write."""

import pytest

from gateway.domain.memory.gpus import CARDS, assumed_size, known_total_gib


@pytest.mark.parametrize("title", [row.title for row in CARDS])
def test_a_card_is_known_by_its_own_title(title):
    assert known_total_gib(title) == next(row.total_gib for row in CARDS if row.title == title)
    assert assumed_size(title) is None


@pytest.mark.parametrize(
    ("name", "total_gib"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.15), ("A100 40 GB", 39.38), ("NVIDIA L4 24GB", 22.03), ("B200 192GB", 178.4),
        ("NVIDIA GH200 480GB", 94.5), ("NVIDIA H200 141GB", 139.8), ("Tesla T4 16 GiB", 14.56),
    ],
)  # fmt: skip
def test_a_name_with_its_size(name, total_gib):
    assert known_total_gib(name) == total_gib


@pytest.mark.parametrize(
    "name",
    ["RTX A1000", "MI300A", "RTX 5090 Laptop GPU", "RTX 4060 Ti 8GB", "H20 141GB", "GB200", "A100 96GB", "L5"],
)
def test_another_card_of_a_similar_name_is_not_known(name):
    assert known_total_gib(name) is None
    assert assumed_size(name) is None


@pytest.mark.parametrize(
    ("name", "title"),
    [("A100", "A100-40GB"), ("V100", "V100-16GB"), ("A100 40GB", None), ("A100-80", None), ("L4", None)],
)
def test_of_several_sizes_the_one_that_was_taken_is_named(name, title):
    assert assumed_size(name) == title
