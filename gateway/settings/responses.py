"""What of the Responses API is let in beyond answers that are given at once to a whole conversation."""

from typing import Annotated

from pydantic import Field

from gateway.settings.section import Section


class ResponsesSettings(Section):
    """Both need a vLLM that was started with VLLM_ENABLE_RESPONSES_API_STORE=1, which never forgets an answer."""

    allow_previous: Annotated[
        bool,
        Field(
            description="whether `previous_response_id` may stand for a history that only the model server has; what "
            "it costs is not known here, so the model's whole context is reserved"
        ),
    ] = False
    allow_background: Annotated[
        bool,
        Field(
            description="whether `background` may ask for an answer that nobody waits for; its places are held until "
            "the server says that it is done, or for upstream.total_timeout_seconds"
        ),
    ] = False
