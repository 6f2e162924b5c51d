"""Who answers what only asks for a number of tokens."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.settings.section import Section


class TokenSettings(Section):
    """`upstream`: both are sent on, with their images looked at and made smaller as for an answer."""

    answer: Annotated[
        Literal["upstream", "estimate"],
        Field(description="estimate: /tokenize and /v1/messages/count_tokens are answered by the gateway itself"),
    ] = "upstream"
