"""Who answers what only asks for a number of tokens."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.settings.section import Section


class TokenSettings(Section):
    """`upstream`: a plain prompt for /tokenize is sent on, and whatever may carry media is refused."""

    answer: Annotated[
        Literal["upstream", "estimate"],
        Field(description="estimate: /tokenize and /v1/messages/count_tokens are answered by the gateway itself"),
    ] = "upstream"
