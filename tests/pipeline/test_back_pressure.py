"""What an upstream's 429 or 503 says about the time to come back."""

import pytest

from gateway.pipeline.back_pressure import retry_after_seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"3"}, 3.0),
        ({b"retry-after": b"0.5"}, 0.5),
        ({b"retry-after-ms": b"250", b"retry-after": b"1"}, 0.25),
        ({b"retry-after-ms": b"soon", b"retry-after": b"2"}, 2.0),
        ({b"retry-after": b"0"}, None),
        ({b"retry-after": b"-1"}, None),
        ({b"retry-after": b"nan"}, None),
        ({b"retry-after": b"inf"}, None),
        ({b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({b"retry-after": b"\xff"}, None),
    ],
)
def test_the_time_that_an_answer_names(headers, seconds):
    assert retry_after_seconds([(b"content-type", b"application/json"), *headers.items()]) == seconds
