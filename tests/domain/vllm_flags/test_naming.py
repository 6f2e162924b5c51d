"""Names of flags, right and nearly right."""

import pytest

from gateway.domain.vllm_flags.naming import in_full, is_real, meant


def test_a_real_name_and_its_negation():
    assert is_real("enable-lora")
    assert is_real("no-enable-lora")
    assert not is_real("enable-lor")


def test_the_beginning_of_one_flag_alone_is_an_abbreviation():
    assert in_full("enable-lor") == "enable-lora"
    assert in_full("enable") is None


def test_a_whole_name_is_itself_though_others_begin_with_it():
    assert in_full("quantization") == "quantization"


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("tp", "-tp"),
        ("gpu-mem-util", "--gpu-memory-utilization"),
        ("max-num-sequences", "--max-num-seqs"),
        ("max-modle-len", "--max-model-len"),
        ("enf-eager", "--enforce-eager"),
        ("e-e", None),
        ("m-n", None),
        ("zzzz", None),
    ],
)
def test_what_a_name_was_meant_for(name, real):
    assert meant(name) == real
