"""Part of the composition: where the models' own files are looked for, by the settings and as huggingface_hub's own
environment has it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.models.hub import Hub
from gateway.models.places import Places, cache_folder_of
from gateway.settings import Settings


@contextmanager
def places_of(settings: Settings, environment: Mapping[str, str]) -> Iterator[Places]:
    """As long as they are looked at."""
    cache_folder = cache_folder_of(settings.hub.cache_folder, environment)
    if not settings.hub.download:
        yield Places(cache_folder)
        return
    token = settings.hub.token
    hub = Hub(
        token=None if token is None else token.get_secret_value(), endpoint=environment.get("HF_ENDPOINT") or None
    )
    try:
        yield Places(cache_folder, hub.download)
    finally:
        hub.close()
