from collections import Counter

import pytest

from gateway.domain.kv_layers import KvConfigError, read_layers, read_layout, with_class_numbers
from gateway.domain.kv_layout import Kind, Layer

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
TOKEN_BYTES = 2 * 4 * 64 * 2


def counts(**text) -> dict[tuple[str, int], int]:
    return dict(Counter((layer.kind.name.lower(), layer.span_tokens) for layer in read_layers(HEADS | text)))


class TestKinds:
    @pytest.mark.parametrize(
        ("text", "counted"),
        [
            ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32_768}, {("full", 0): 24}),
            ({"model_type": "llama"}, {("full", 0): 24}),
            ({"model_type": "mistral"}, {("sliding", 4096): 24}),
            ({"model_type": "mistral", "sliding_window": None}, {("full", 0): 24}),
            ({"model_type": "phi3", "sliding_window": 2047}, {("sliding", 2047): 24}),
            ({"model_type": "gemma2"}, {("full", 0): 12, ("sliding", 4096): 12}),
            ({"model_type": "gemma3_text", "sliding_window": 1024}, {("full", 0): 4, ("sliding", 1024): 20}),
            ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, {("full", 0): 12, ("sliding", 4096): 12}),
            ({"model_type": "gemma3n_text"}, {("full", 0): 1, ("sliding", 512): 8}),
            ({"model_type": "cohere2", "sliding_window": 4096}, {("full", 0): 6, ("sliding", 4097): 18}),
            ({"model_type": "gpt_oss"}, {("full", 0): 12, ("sliding", 128): 12}),
            ({"model_type": "llama4_text"}, {("full", 0): 6, ("chunked", 8192): 18}),
            ({"model_type": "llama4_text", "attention_chunk_size": None}, {("full", 0): 24}),
            ({"model_type": "llama4_text", "no_rope_layers": [1, 0] * 12}, {("full", 0): 12, ("chunked", 8192): 12}),
            ({"model_type": "qwen3_5_text"}, {("full", 0): 6, ("state", 0): 18}),
            ({"layer_types": ["conv"] * 18 + ["full_attention"] * 6}, {("full", 0): 6, ("state", 0): 18}),
        ],
    )
    def test_by_the_file_or_its_class(self, text, counted):
        assert counts(**{"num_hidden_layers": 24} | text) == counted

    def test_the_file_wins(self):
        kinds = ["full_attention", "sliding_attention"]
        layers = read_layers(
            HEADS | {"model_type": "gemma3_text", "num_hidden_layers": 2, "layer_types": kinds, "sliding_window": 8}
        )
        assert layers == (Layer(Kind.FULL, 0, TOKEN_BYTES), Layer(Kind.SLIDING, 8, TOKEN_BYTES))

    def test_layers_of_an_unknown_kind_have_no_layout(self):
        assert read_layout({"num_hidden_layers": 2, "layer_types": ["hybrid", "full_attention"]}) is None

    def test_without_a_number_of_layers_neither(self):
        assert read_layout({"model_type": "llama"}) is None


class TestBytes:
    def test_what_a_file_leaves_out_its_class_assumes(self):
        """As google/gemma-3-4b-it has it."""
        text = {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "sliding_window": 1024}
        assert with_class_numbers(text)["num_key_value_heads"] == 4
        assert read_layers(text)[0] == Layer(Kind.SLIDING, 1024, 2 * 4 * 256 * 2)

    def test_without_groups_every_head_has_its_own_cache(self):
        text = {"num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": None, "hidden_size": 512}
        assert read_layers(text) == (Layer(Kind.FULL, 0, 2 * 8 * 64 * 2),)

    def test_without_heads_bytes_are_not_known(self):
        assert read_layers({"num_hidden_layers": 1}) == (Layer(Kind.FULL, 0, 0),)

    def test_layers_of_full_attention_may_be_wider(self):
        text = HEADS | {"model_type": "gemma4_text", "num_hidden_layers": 6, "head_dim": 256}
        assert [layer.token_bytes for layer in read_layers(text)] == [4096] * 5 + [8192]
        shared = text | {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
        assert read_layers(shared)[-1].token_bytes == 2 * 1 * 512 * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ({"num_hidden_layers": "9"}, "num_hidden_layers must be a whole number of at least 0, not '9'"),
        ({"num_hidden_layers": True}, "num_hidden_layers .* not True"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types must have an entry for each of 2"),
        ({"num_hidden_layers": 2, "layer_types": "full_attention"}, "layer_types must have an entry"),
        ({"num_hidden_layers": 2, "num_key_value_heads": -1}, "num_key_value_heads .* not -1"),
    ],
)
def test_mistakes_name_the_key(text, problem):
    with pytest.raises(KvConfigError, match=problem):
        read_layers(text)
