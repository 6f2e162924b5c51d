import pytest

from gateway.domain.memory.defaults import (
    AUTO_LENGTH,
    NotPlannableError,
    default_batch,
    default_utilisation,
    settled,
)
from gateway.domain.memory.dtypes import kv_bytes, model_bytes
from gateway.domain.memory.gpus import gpu_of, is_supported, known_total_gib, titles
from gateway.domain.memory.plan import Flags, ModelSpec, TextSpec, Version
from tests.support.memory import QWEN_7B, card, spec

UNTOLD = ModelSpec("m", "files", TextSpec(2, 64, 4, 2, 16, 128, 100))


@pytest.mark.parametrize(
    ("name", "version", "batch"),
    [
        ("L4", Version(0, 32), (256, 2048)),
        ("A100-80GB", Version(0, 32), (256, 2048)),
        ("H100", Version(0, 32), (1024, 8192)),
        ("B200", Version(0, 32), (1024, 16_384)),
        ("MI300X", Version(0, 27), (1024, 8192)),  # the largest tier came with 0.28
        ("MI300X", Version(0, 8, 4), (256, 2048)),  # only H100 and H200 were told from others
        ("H100", Version(0, 8, 4), (1024, 8192)),
        ("L4", Version(0, 8, 0), (1024, 2048)),  # vLLM issue 15105
    ],
)
def test_batches_by_card_and_version(name, version, batch):
    assert default_batch(card(name), version) == batch


def test_the_share_of_the_card():
    assert (default_utilisation(Version(0, 20)), default_utilisation(Version(0, 21))) == (0.9, 0.92)


def test_what_was_said_stands_and_the_rest_is_filled_in():
    found = settled(Flags(max_num_seqs=4, max_model_len=100), spec(QWEN_7B), card("L4"), Version(0, 32))
    assert (found.gpu_memory_utilization, found.max_model_len) == (0.92, 100)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (4, 400)  # never more than all sequences have


def test_a_batch_has_no_more_sequences_than_tokens():
    found = settled(Flags(max_num_batched_tokens=128), spec(QWEN_7B), card("L4"), Version(0, 32))
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (128, 128)


@pytest.mark.parametrize("length", [None, AUTO_LENGTH])
def test_without_a_length_it_is_the_models_own(length):
    assert settled(Flags(max_model_len=length), spec(QWEN_7B), card("L4"), Version(0, 32)).max_model_len == 128_000
    with pytest.raises(NotPlannableError, match="the context of m is not known: give --max-model-len"):
        settled(Flags(max_model_len=length), UNTOLD, card("L4"), Version(0, 32))


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        ({}, (2, 2)),
        ({"dtype": "float32"}, (4, 4)),
        ({"dtype": "half", "kv_cache_dtype": "fp8_e5m2"}, (2, 1)),
        ({"kv_cache_dtype": "int8_per_token_head"}, (2, 1)),
        ({"dtype": "bfloat16", "kv_cache_dtype": "float32"}, (2, 4)),
        ({"dtype": "another", "kv_cache_dtype": "another"}, (2, 2)),
    ],
)
def test_bytes_of_a_number(flags, sizes):
    assert (model_bytes(Flags(**flags)), kv_bytes(Flags(**flags))) == sizes


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("L4", 22.03), ("NVIDIA L4", 22.03), ("L40S", 44.4), ("A100-SXM4-80GB", 79.15), ("A100-PCIE-40GB", 39.38),
        ("NVIDIA H100 80GB HBM3", 79.19), ("H200", 139.8), ("H20 96GB", 95.0), ("h100 NVL", 93.1), ("Tesla T4", 14.56),
        ("RTX A6000 48GB", 47.5), ("RTX 3090", 23.58), ("A10G", 22.0), ("A10 24GB", 22.09), ("MI300X 192GB", 191.7),
        ("NVIDIA GeForce RTX 5070 Ti", 15.47), ("another", None),
    ],
)  # fmt: skip
def test_cards_have_what_torch_sees_and_not_what_is_printed_on_them(name, total):
    assert known_total_gib(name) == total


def test_every_card_is_found_by_its_own_title():
    assert {title: known_total_gib(title) for title in titles()} == titles()


@pytest.mark.parametrize("name", ["Ascend 910B 64GB", "Kunlun XPU", "GB10 (unified memory)", "TPU v6e"])
def test_other_accelerators_account_otherwise(name):
    assert not is_supported(name)


def test_consumer_cards_of_amd_have_no_kernel_for_towers():
    assert [gpu_of(name, 16.0).has_tower_kernel for name in ("RX 7800 XT 16GB (ROCm)", "MI300X", "L4")] == [
        False,
        True,
        True,
    ]
