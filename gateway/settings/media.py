"""Videos and audio: off unless a number of them is let in, for what one costs is known only by its upper bound."""

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from gateway.settings.section import Section

_Hosts = Annotated[
    tuple[str, ...],
    Field(
        description="the only hosts whose http(s) addresses go on to vLLM, which fetches them itself and follows where "
        "they lead, by their names without a port, for any port of theirs may be asked, and without a final dot, which "
        "makes it another name; empty: none, data in the request alone"
    ),
]


class VideoSettings(Section):
    """Videos. Of families that define it (Qwen2-VL to Qwen3.5) each is reserved the most that it can cost."""

    per_request: Annotated[
        int, Field(ge=0, description="of one request, those of earlier turns included; 0: all are refused")
    ] = 0
    max_frames: Annotated[
        PositiveInt | None,
        Field(
            description="frames that vLLM takes of one video at most, where --media-io-kwargs says so (max_frames, or "
            "num_frames of another loader); left out: 768, as its loaders of these families do"
        ),
    ] = None
    tokens: Annotated[
        PositiveInt | None,
        Field(
            description="the most that one video costs, by the operator's word; left out: what the family defines, and "
            "models of other families take none"
        ),
    ] = None
    allow_hosts: _Hosts = ()


class AudioSettings(Section):
    """Audio. No family here defines what it costs, so its bound is the operator's."""

    per_request: Annotated[
        int, Field(ge=0, description="of one request, those of earlier turns included; 0: all are refused")
    ] = 0
    tokens: Annotated[
        PositiveInt | None, Field(description="the most that one costs; must be set where any are let in")
    ] = None
    allow_hosts: _Hosts = ()

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.per_request and self.tokens is None:
            raise ValueError("per_request lets audio in, but tokens does not say what one costs at most")
        return self
