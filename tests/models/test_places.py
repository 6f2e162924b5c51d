"""Where a model's own files are found: the server's folder, a Hugging Face cache, the hub."""

import json
import os
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from gateway.models.identity import FamilySource
from gateway.models.places import MOST_FILE_BYTES, HubError, Places, cache_folder_of, snapshot_folder
from gateway.models.repository import Repository

REPOSITORY = "org/model-VL"
COMMIT, OTHER = "1" * 40, "2" * 40
CONFIG = {"architectures": ["Qwen2_5_VLForConditionalGeneration"]}


def written(folder, processor=None, config=CONFIG):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def cached(cache, commit=COMMIT, *, refs=("main",), repository=REPOSITORY, **content):
    """A snapshot in a cache as the library lays it out, its files links to blobs."""
    base = cache / f"models--{repository.replace('/', '--')}"
    folder = written(base / "snapshots" / commit, **content)
    (base / "blobs").mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        blob = base / "blobs" / f"{commit}-{path.name}"
        path.rename(blob)
        path.symlink_to(os.path.relpath(blob, folder))
    for ref in refs:
        (base / "refs").mkdir(exist_ok=True)
        (base / "refs" / ref).write_text(commit)
    return folder


def max_pixels(look):
    return look.found.files.image_processor["max_pixels"]


class TestSnapshots:
    def test_the_one_that_main_refers_to(self, tmp_path):
        cached(tmp_path, OTHER, refs=("v1",))
        folder = cached(tmp_path)
        assert snapshot_folder(tmp_path, Repository(REPOSITORY)) == folder
        # As the library itself has it.
        assert try_to_load_from_cache(REPOSITORY, "config.json", cache_dir=tmp_path) == str(folder / "config.json")

    def test_the_revision_that_the_server_loads(self, tmp_path):
        cached(tmp_path)
        other = cached(tmp_path, OTHER, refs=())
        assert snapshot_folder(tmp_path, Repository(REPOSITORY, OTHER)) == other
        assert snapshot_folder(tmp_path, Repository(REPOSITORY, "3" * 40)) is None

    def test_without_main_the_only_one_there_is(self, tmp_path):
        folder = cached(tmp_path, refs=())
        assert snapshot_folder(tmp_path, Repository(REPOSITORY)) == folder
        cached(tmp_path, OTHER, refs=())
        assert snapshot_folder(tmp_path, Repository(REPOSITORY)) is None

    def test_a_repository_that_is_not_there(self, tmp_path):
        assert snapshot_folder(tmp_path, Repository(REPOSITORY)) is None

    @pytest.mark.parametrize("reference", ["../../../elsewhere", "", "..", "a/b"])
    def test_a_reference_leads_nowhere_else(self, tmp_path, reference):
        cached(tmp_path)
        written(tmp_path / "elsewhere")
        (tmp_path / "models--org--model-VL" / "refs" / "main").write_text(reference)
        assert snapshot_folder(tmp_path, Repository(REPOSITORY)) is None


class TestCacheFolder:
    @pytest.mark.parametrize(
        ("setting", "environment", "expected"),
        [
            ("{}/set", {"HF_HUB_CACHE": "{}/hub", "HF_HOME": "{}/home"}, "{}/set"),
            (None, {"HF_HUB_CACHE": "{}/hub", "HF_HOME": "{}/home"}, "{}/hub"),
            (None, {"HF_HOME": "{}/home"}, "{}/home/hub"),
            (None, {"XDG_CACHE_HOME": "{}/xdg"}, "{}/xdg/huggingface/hub"),
            (None, {"HF_HUB_CACHE": "{}/nowhere"}, None),
            ("{}/nowhere", {}, None),
        ],
    )
    def test_the_setting_then_the_librarys_own_environment(self, tmp_path, setting, environment, expected):
        for name in ("set", "hub", "home/hub", "xdg/huggingface/hub"):
            (tmp_path / name).mkdir(parents=True)

        def here(text):
            return None if text is None else text.format(tmp_path)

        found = cache_folder_of(here(setting), {name: here(text) for name, text in environment.items()})
        assert found == (None if expected is None else Path(here(expected)))

    def test_a_user_without_a_home_has_none(self, monkeypatch):
        def homeless(_path):
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "expanduser", homeless)
        assert cache_folder_of(None, {}) is None


class TestLooking:
    def test_the_folder_that_the_server_loads_goes_first(self, tmp_path):
        own = written(tmp_path / "own", {"max_pixels": 1})
        cached(tmp_path / "cache", processor={"max_pixels": 2})
        look = Places(tmp_path / "cache").look(REPOSITORY, str(own))
        assert (look.found.place, max_pixels(look), look.troubles) == (FamilySource.SERVER_FOLDER, 1, ())

    def test_then_the_cache(self, tmp_path):
        cached(tmp_path, processor={"max_pixels": 2})
        for name, root in ((REPOSITORY, None), ("alias", REPOSITORY), (REPOSITORY, "/models/elsewhere")):
            look = Places(tmp_path).look(name, root)
            assert (look.found.place, max_pixels(look)) == (FamilySource.CACHE, 2)

    def test_the_cache_of_the_server_may_be_mounted_elsewhere(self, tmp_path):
        cached(tmp_path)
        cached(tmp_path, OTHER, refs=(), processor={"max_pixels": 3})
        root = f"/root/.cache/huggingface/hub/models--org--model-VL/snapshots/{OTHER}"
        assert max_pixels(Places(tmp_path).look("alias", root)) == 3

    def test_what_is_loaded_is_surer_than_what_it_is_called(self, tmp_path):
        cached(tmp_path, repository="Qwen/one", processor={"max_pixels": 1})
        cached(tmp_path, repository="Qwen/two", processor={"max_pixels": 2})
        assert max_pixels(Places(tmp_path).look("Qwen/one", "Qwen/two")) == 2

    def test_then_the_hub(self, tmp_path):
        asked = []

        def download(repository):
            asked.append(repository)
            return written(tmp_path / "hub", {"max_pixels": 4})

        look = Places(tmp_path, download).look("alias", REPOSITORY)
        assert (look.found.place, max_pixels(look)) == (FamilySource.HUB, 4)
        assert asked == [Repository(REPOSITORY)]

    def test_the_hub_is_not_asked_for_what_is_no_repository(self, tmp_path):
        def download(_repository):
            raise AssertionError("nobody asked")

        assert Places(tmp_path, download).look("alias", "/models/mine").found is None
        assert Places().look(REPOSITORY, None) == (None, (), False)

    @pytest.mark.parametrize("is_final", [True, False])
    def test_what_the_hub_says_is_told(self, is_final):
        def download(_repository):
            raise HubError("is down", is_final=is_final)

        look = Places(None, download).look(REPOSITORY, None)
        assert look == (None, ("hub: org/model-VL: is down",), not is_final)

    def test_files_that_cannot_be_read_are_told_and_others_are_looked_for(self, tmp_path):
        own = written(tmp_path / "own", config="{")
        cached(tmp_path / "cache", processor={"max_pixels": 2})
        look = Places(tmp_path / "cache").look(REPOSITORY, str(own))
        assert max_pixels(look) == 2
        (trouble,) = look.troubles
        assert trouble.startswith(f"{own}: config.json: is not JSON")

    def test_so_are_those_of_the_hub(self, tmp_path):
        folder = written(tmp_path / "hub", config="[]")
        look = Places(None, lambda _repository: folder).look(REPOSITORY, None)
        assert look.troubles == ("hub: org/model-VL: config.json: holds list where an object is needed",)

    def test_what_is_too_large_is_not_read(self, tmp_path):
        own = written(tmp_path / "own", config=" " * (MOST_FILE_BYTES + 1))
        (trouble,) = Places().look("m", str(own)).troubles
        assert f"has {MOST_FILE_BYTES + 1} bytes" in trouble

    def test_a_disc_that_fails_is_told_of_nowhere(self, tmp_path, monkeypatch):
        own = written(tmp_path / "own")

        def broken(_path):
            raise OSError("stale handle")

        monkeypatch.setattr(Path, "is_file", broken)
        assert Places(tmp_path).look("m", str(own)) == (None, (), False)

    def test_a_relative_root_is_of_the_servers_machine(self, tmp_path, monkeypatch):
        written(tmp_path / "models")
        monkeypatch.chdir(tmp_path)
        assert Places().look("m", "models").found is None
