"""Pictures that are at home at a certain server, so that a test knows where its request goes."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from gateway.domain.routing import Standing, pick
from gateway.pipeline.routing import first_image
from gateway.wire.chat import parse_chat
from tests.support.live_gateway import chat, image
from tests.support.pictures import data_url, encoded, picture


def picture_at(name: str, names: Sequence[str] = ("a", "b"), side: int = 56) -> dict[str, Any]:
    """A content part, for a gateway with servers of these names."""
    standings = [Standing(each) for each in names]
    parts = (image(data_url(encoded(picture(side, side, seed=seed)))) for seed in itertools.count())
    return next(part for part in parts if names[pick(standings, _key(part), b"")] == name)


def _key(part: dict[str, Any]) -> bytes:
    body = json.dumps(chat("What?", part)).encode()
    return first_image(body, parse_chat(body))
