"""One byte, one token; ids as in the captures."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.tokens import IMAGE_PAD, decode, encode, token_strings

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<|" not in text))
def test_text_without_specials_is_one_token_a_byte_and_comes_back(text: str) -> None:
    assert len(encode(text)) == len(text.encode())
    assert decode(encode(text)) == text


def test_special_spellings_are_one_token_each_wherever_they_stand() -> None:
    assert encode("a<|image_pad|>b<|nope|>").tolist() == [
        *encode("a"),
        IMAGE_PAD,
        *encode("b"),
        *(encode(character)[0] for character in "<|nope|>"),
    ]


def test_ids_and_spellings_are_those_of_the_captured_tokenizer() -> None:
    captured = json.loads((CAPTURES / "tokenize_qwen2_5_vl.json").read_text())
    body = captured["tokenize_chat_with_image_strs"]["body"]

    assert encode("hello").tolist() == captured["tokenize_prompt"]["body"]["tokens"]
    assert token_strings(body["tokens"]) == body["token_strs"]


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    assert decode(encode("é")[:1]) == "\N{REPLACEMENT CHARACTER}"


def test_an_id_outside_the_vocabulary_is_an_error() -> None:
    with pytest.raises(IndexError):
        decode([512])
