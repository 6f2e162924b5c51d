"""The hub, as the optional extra `hub` asks it: the small JSON files of one repository, never weights.

Waits for the network, so it runs beside all else. What it brings lies in a folder of its own until it is closed.
"""

import tempfile
import threading
from pathlib import Path

from gateway.models.places import FILES, MOST_FILE_BYTES, HubError
from gateway.models.processor_config import CONFIG_FILE
from gateway.models.repository import Repository

_SECONDS = 10.0
"""For the hub to begin an answer."""
_LONGEST_CAUSE = 200
_BY_HAND = "or copy the model's config.json and processor configuration into a folder for models[].folder"


class Hub:
    """`endpoint` None: huggingface.co. `token` None: HF_TOKEN, or the one of `hf auth login`, if there is one."""

    def __init__(self, *, token: str | None = None, endpoint: str | None = None) -> None:
        self._token = token
        self._endpoint = endpoint
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    def download(self, repository: Repository) -> Path:
        """Its folder. Raises HubError."""
        with self._lock:
            try:
                return self._download(repository)
            except HubError:
                raise
            except ImportError as error:
                raise HubError(f"{error}: install the extra `hub`: pip install 'vlm-gateway[hub]'") from error
            except Exception as error:
                # Each version of the library has errors of its own, those of its client for HTTP among them.
                raise _explained(error) from error

    def close(self) -> None:
        """What was brought is gone then."""
        with self._lock:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _download(self, repository: Repository) -> Path:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url  # noqa: PLC0415
        from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415
        from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

        disable_progress_bars()
        revision, folder = repository.revision, None
        for name in FILES:
            url = hf_hub_url(repository.id, name, revision=revision, endpoint=self._endpoint)
            try:
                found = get_hf_file_metadata(url, token=self._token, timeout=_SECONDS, library_name="vlm-gateway")
            except EntryNotFoundError as error:
                if name == CONFIG_FILE:
                    raise HubError(f"has no {CONFIG_FILE}, so it is not a model that can be read") from error
                continue
            if found.size is None or found.size > MOST_FILE_BYTES:
                raise HubError(f"its {name} has more than {MOST_FILE_BYTES} bytes, or does not tell: it is not fetched")
            # All of one commit, whatever is pushed meanwhile.
            revision = found.commit_hash or revision
            path = hf_hub_download(
                repository.id,
                name,
                revision=revision,
                cache_dir=self._cache_dir(),
                endpoint=self._endpoint,
                token=self._token,
                etag_timeout=_SECONDS,
                library_name="vlm-gateway",
            )
            folder = Path(path).parent
        assert folder is not None, "without its config.json there was an error"
        return folder

    def _cache_dir(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="vlm-gateway-hub-")
        return self._folder.name


def _explained(error: Exception) -> HubError:
    from huggingface_hub import errors  # noqa: PLC0415

    if isinstance(error, errors.GatedRepoError):
        return HubError(
            f"asks for consent to its terms: give it on its page, and set hub.token of an account that did, {_BY_HAND}"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError(
            f"is not there, or not for this token: set hub.token of an account that may read it, {_BY_HAND}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError(f"has no such revision, {_BY_HAND}")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE is set: unset it, or set hub.download to false")
    cause = " ".join(str(error).split())[:_LONGEST_CAUSE] or type(error).__name__
    return HubError(
        f"{cause}. Check HF_ENDPOINT and the way out (HTTPS_PROXY), set hub.download to false, {_BY_HAND}",
        is_final=False,
    )
