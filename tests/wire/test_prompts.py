import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.prompts import Prompts, count_prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("grüß", Prompts(1, 0, 6)),
        ("", Prompts(1, 0, 0)),
        (["a", "bc"], Prompts(2, 0, 3)),
        ([1, 2, 3], Prompts(1, 3, 0)),
        ([[1, 2], [3], []], Prompts(3, 3, 0)),
    ],
)
def test_counting(prompt, expected):
    assert count_prompts(prompt, "prompt", 3) == expected


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [2]], [["a"], "b"]])
def test_mixed_and_empty_lists_are_refused(prompt):
    with pytest.raises(GatewayError) as refused:
        count_prompts(prompt, "input", 3)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "input")
