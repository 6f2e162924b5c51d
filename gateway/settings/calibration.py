"""Whether servers are asked what their models' images cost."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.settings.section import word

CalibrationWay = Annotated[
    Literal["off", "tokenize", "completions"],
    BeforeValidator(word),
    Field(
        description="an idle server is asked once what a few small pictures cost. tokenize: by /tokenize alone, which "
        "its engine does not notice; completions: where that does not tell, by answers of one token, for some hundred "
        "prompt tokens in all; off: never"
    ),
]
