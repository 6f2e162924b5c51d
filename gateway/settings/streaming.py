"""What a client sees of its stream before the upstream's begins."""

from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from gateway.settings.section import Section, switched


class StreamingSettings(Section):
    """While it is off, nothing is sent before the upstream answers, and a refusal has its status."""

    keep_alive_after_seconds: Annotated[
        PositiveFloat | None,
        BeforeValidator(switched),
        Field(
            description="a stream that has waited so long begins with comments; errors then come inside of it; off or "
            "left out: none does"
        ),
    ] = None
    keep_alive_every_seconds: Annotated[float, Field(ge=1, description="from one comment to the next")] = 10.0

    @model_validator(mode="after")
    def _has_a_beginning(self) -> "StreamingSettings":
        if "keep_alive_every_seconds" in self.model_fields_set and self.keep_alive_after_seconds is None:
            raise ValueError("keep_alive_every_seconds does nothing without keep_alive_after_seconds")
        return self
