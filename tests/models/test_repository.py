"""Names of repositories in what a server says that it loads."""

import pytest

from gateway.models.repository import repository_of, shown_name

COMMIT = "abc123"


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", ("Qwen/Qwen2.5-VL-7B-Instruct", None)),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-VL-8B/snapshots/abc123", ("Qwen/Qwen3-VL-8B", COMMIT)),
        ("/cache/models--Qwen--Qwen3-VL-8B/snapshots/abc123/", ("Qwen/Qwen3-VL-8B", COMMIT)),
        ("/cache/models--Qwen--Qwen3-VL-8B", ("Qwen/Qwen3-VL-8B", None)),
        ("models--a-b--c--d/snapshots/abc123", ("a-b/c--d", COMMIT)),
        ("/cache/models--Qwen--Qwen3-VL-8B/snapshots/../../x", ("Qwen/Qwen3-VL-8B", None)),
        *((text, None) for text in ("gpt-4", "/models/qwen", "./models/qwen", "a/b/c", "a/..", "../a", "a/b..c", "")),
    ],
)
def test_a_repository_is_known_by_its_id_or_by_its_place_in_a_cache(text, repository):
    assert repository_of(text) == repository


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"),
        ("/models/Qwen2.5-VL-7B-Instruct/", "Qwen2.5-VL-7B-Instruct"),
        ("/cache/models--Qwen--Qwen3-VL-8B/snapshots/abc123", "Qwen/Qwen3-VL-8B"),
    ],
)
def test_what_a_model_is_called_where_it_lies(root, name):
    assert shown_name(root) == name
