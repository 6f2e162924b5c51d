"""How a quota stands, as headers."""

import pytest

from gateway.domain.quota import Level, Quantity
from gateway.wire.quota import quota_headers, spelled


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.0004, "0s"),
        (0.017, "17ms"),
        (0.9996, "1s"),
        (8.64, "8.64s"),
        (59.9996, "1m0s"),
        (90.5, "1m30.5s"),
        (360.0, "6m0s"),
        (3600.0, "1h0m0s"),
        (7325.25, "2h2m5.25s"),
    ],
)
def test_times_are_spelled_as_openai_has_them(seconds, text):
    assert spelled(seconds) == text


def test_requests_and_tokens_have_openais_names_and_the_others_their_own():
    levels = [Level(Quantity.TOKENS, 600, 598, 0.2), Level(Quantity.IMAGES, 10, 0, 60.0)]
    assert quota_headers(levels) == [
        (b"x-ratelimit-limit-tokens", b"600"),
        (b"x-ratelimit-remaining-tokens", b"598"),
        (b"x-ratelimit-reset-tokens", b"200ms"),
        (b"x-gateway-limit-images", b"10"),
        (b"x-gateway-remaining-images", b"0"),
        (b"x-gateway-reset-images", b"1m0s"),
    ]
