"""What the request models of a pooling server accept."""

from typing import Any, Literal

from pydantic import BaseModel, field_validator

from gateway.emulator.schema import NamedRequest


class PoolingRequest(NamedRequest):
    """Of all routes that pool texts or conversations."""

    input: str | list[str] | list[int] | list[list[int]] | None = None
    messages: list[dict[str, Any]] | list[list[dict[str, Any]]] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    add_generation_prompt: bool = False
    mm_processor_kwargs: dict[str, Any] | None = None


class CohereEmbedContent(BaseModel):
    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: dict[str, str] | None = None


class CohereEmbedInput(BaseModel):
    content: list[dict[str, Any]]

    @field_validator("content")
    @classmethod
    def _checked(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Only what the type of a part says is left of it."""
        parts = [CohereEmbedContent.model_validate(part) for part in value]
        return [{"type": part.type, part.type: getattr(part, part.type)} for part in parts]


class CohereEmbedRequest(NamedRequest):
    input_type: str | None = None
    texts: list[str] | None = None
    images: list[str] | None = None
    inputs: list[CohereEmbedInput] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: int | None = None


class ScoreContent(BaseModel):
    """A query or document of parts."""

    content: list[dict[str, Any]]


ScoreInput = str | ScoreContent


class ScoreRequest(NamedRequest):
    """Four spellings of one pair."""

    queries: ScoreInput | list[ScoreInput] | None = None
    documents: ScoreInput | list[ScoreInput] | None = None
    items: ScoreInput | list[ScoreInput] | None = None
    data_1: ScoreInput | list[ScoreInput] | None = None
    data_2: ScoreInput | list[ScoreInput] | None = None
    text_1: ScoreInput | list[ScoreInput] | None = None
    text_2: ScoreInput | list[ScoreInput] | None = None

    def pair(self) -> tuple[Any, Any] | None:
        """The first that is whole."""
        spellings = (
            (self.queries, self.documents),
            (self.queries, self.items),
            (self.data_1, self.data_2),
            (self.text_1, self.text_2),
        )
        return next((pair for pair in spellings if None not in pair), None)


class RerankRequest(NamedRequest):
    query: ScoreInput
    documents: ScoreInput | list[ScoreInput]
    top_n: int = 0
