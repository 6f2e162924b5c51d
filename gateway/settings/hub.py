"""Where the gateway looks for the models' own files: a Hugging Face cache on a shared volume, and the hub."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.settings.section import Section
from gateway.settings.sections import is_installed
from gateway.settings.upstreams import Key


class HubSettings(Section):
    """A model's config.json and processor configuration, which say what its images cost, are looked for in the folder
    that vLLM loads, in a Hugging Face cache, and with the extra `hub` on the hub. A folder in `models` goes before.
    HF_ENDPOINT is heeded.
    """

    cache_folder: Annotated[
        str | None,
        Field(
            description="a Hugging Face cache, as vLLM's own on a shared volume; left out: HF_HUB_CACHE, else "
            "HF_HOME/hub, else ~/.cache/huggingface/hub, where there is one"
        ),
    ] = None
    download: Annotated[
        bool, Field(description="the hub is asked for what is nowhere else, in the background; never for weights")
    ] = False
    token: Annotated[Key | None, Field(description="for repositories that are not open to all; left out: HF_TOKEN")] = (
        None
    )
    token_file: Annotated[
        str | None, Field(description="a file that has the token, as a mounted secret; left out: token")
    ] = None

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if self.download and not is_installed("huggingface_hub"):
            raise ValueError("`download` needs the extra `hub`: pip install 'vlm-gateway[hub]'")
        return self
