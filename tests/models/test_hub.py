"""What is fetched of the hub, as `huggingface_hub` asks it, and what is said where it gives nothing."""

import builtins
import importlib

import pytest

from gateway.models.hub import Hub
from gateway.models.places import MOST_FILE_BYTES, HubError
from gateway.models.processor_config import read_model_folder
from gateway.models.repository import Repository
from tests.support.hub_server import COMMIT, TOKEN, hub_server
from tests.support.processes import free_port

REPOSITORY = "org/model-VL"
CONFIG = {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}
PROCESSOR = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 802_816}
FILES = {"config.json": CONFIG, "preprocessor_config.json": PROCESSOR, "model.safetensors": b"x" * 100}


@pytest.fixture
def asking():
    """`asking(server, **settings)`: a hub that is closed at the end."""
    made = []

    def make(server, **settings):
        made.append(Hub(endpoint=server.url, **settings))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


@pytest.fixture(autouse=True)
def _hub_of_this_test(monkeypatch):
    """The library reads its own settings once, and waits between tries."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(importlib.import_module("huggingface_hub.utils._http").time, "sleep", lambda _seconds: None)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def refusal(hub, repository=REPOSITORY, revision=None):
    with pytest.raises(HubError) as raised:
        hub.download(Repository(repository, revision))
    return raised.value


def test_the_small_files_are_fetched_and_no_weights(asking):
    with hub_server({REPOSITORY: FILES}) as server:
        hub = asking(server)
        folder = hub.download(Repository(REPOSITORY))
        assert read_model_folder(folder).image_processor == PROCESSOR
        assert folder.name == COMMIT
        assert server.files() == ["config.json", "preprocessor_config.json"]
        hub.download(Repository(REPOSITORY))
        assert len(server.files()) == 2, "what is there is not fetched again"
        hub.close()
        assert not folder.exists()


def test_a_revision_is_asked_for_as_such(asking):
    with hub_server({REPOSITORY: FILES}) as server:
        asking(server).download(Repository(REPOSITORY, COMMIT))
        assert {path.split("/resolve/")[1].split("/")[0] for _, path, _ in server.asked} == {COMMIT}
        error = refusal(asking(server), revision="v9")
    assert "has no such revision" in str(error)


def test_a_private_repository_is_open_to_the_token(asking):
    with hub_server({REPOSITORY: FILES}, private=frozenset({REPOSITORY})) as server:
        error = refusal(asking(server))
        assert "is not there, or not for this token: set hub.token" in str(error)
        assert error.is_final
        assert asking(server, token=TOKEN).download(Repository(REPOSITORY)).is_dir()
        assert server.asked[-1][2] == f"Bearer {TOKEN}"


def test_without_a_setting_the_librarys_own_token_is_used(asking, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_server({REPOSITORY: FILES}, private=frozenset({REPOSITORY})) as server:
        assert asking(server).download(Repository(REPOSITORY)).is_dir()


def test_a_gated_repository_asks_for_consent(asking):
    with hub_server({REPOSITORY: FILES}, gated=frozenset({REPOSITORY})) as server:
        error = refusal(asking(server))
    assert "asks for consent to its terms" in str(error)
    assert error.is_final


def test_what_is_no_model_says_so(asking):
    with hub_server({REPOSITORY: {"README.md": b"hello"}}) as server:
        assert str(refusal(asking(server))).startswith("has no config.json")


def test_a_file_that_is_too_large_is_not_fetched(asking):
    with hub_server({REPOSITORY: FILES | {"preprocessor_config.json": b" " * (MOST_FILE_BYTES + 1)}}) as server:
        error = refusal(asking(server))
        assert server.files() == ["config.json"]
    assert "its preprocessor_config.json has more than" in str(error)


def test_a_hub_that_is_down_is_worth_another_try(asking):
    with hub_server({REPOSITORY: FILES}) as server:
        server.is_down = True
        error = refusal(asking(server))
        assert "Check HF_ENDPOINT and the way out (HTTPS_PROXY)" in str(error)
        assert not error.is_final
        server.is_down = False
        assert asking(server).download(Repository(REPOSITORY)).is_dir()
    assert not refusal(Hub(endpoint=f"http://127.0.0.1:{free_port()}")).is_final, "nobody listens there"


def test_offline_is_offline(asking, monkeypatch):
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)
    with hub_server({REPOSITORY: FILES}) as server:
        error = refusal(asking(server))
        assert server.asked == []
    assert str(error) == "HF_HUB_OFFLINE is set: unset it, or set hub.download to false"


def test_without_the_extra_it_says_what_to_install(asking, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("huggingface_hub"):
            raise ImportError("No module named 'huggingface_hub'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    error = refusal(Hub())
    assert "install the extra `hub`: pip install 'vlm-gateway[hub]'" in str(error)
    assert error.is_final


def test_nothing_to_close_is_no_fault():
    Hub().close()
