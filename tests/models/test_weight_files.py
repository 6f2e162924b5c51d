"""Sizes of checkpoints from headers of safetensors files alone."""

import json

import pytest

from gateway.models.processor_config import ModelFilesError
from gateway.models.weight_files import loaded_bytes


def write(path, **tensors):
    """A file with a header and no data: only the header is read."""
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, **{n: {"dtype": d, "shape": s} for n, (d, s) in tensors.items()}}
    )
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())


def test_tensors_are_summed_over_all_files(tmp_path):
    write(tmp_path / "model-1.safetensors", a=("BF16", [10, 4]), b=("F32", [10]))
    write(tmp_path / "model-2.safetensors", c=("U8", [7]), d=("I64", []))
    assert loaded_bytes(tmp_path, is_quantised=False) == 80 + 20 + 7 + 8  # 32 bits are loaded in 16
    assert loaded_bytes(tmp_path, is_quantised=True) == 80 + 40 + 7 + 8  # scales stay as they are


def test_a_second_copy_of_the_weights_is_left_out(tmp_path):
    write(tmp_path / "model.safetensors", a=("F16", [4]))
    write(tmp_path / "consolidated.safetensors", a=("F16", [4]))
    assert loaded_bytes(tmp_path, is_quantised=False) == 8


def index(folder, total=None):
    metadata = {} if total is None else {"total_size": total}
    content = {"metadata": metadata, "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def test_the_index_says_which_files_count(tmp_path):
    index(tmp_path, total=99)
    write(tmp_path / "model-1.safetensors", a=("F16", [4]))
    write(tmp_path / "other.safetensors", a=("F16", [4]))
    assert loaded_bytes(tmp_path, is_quantised=False) == 8


@pytest.mark.parametrize("total", [99, None, "99"])
def test_the_index_stands_for_files_that_are_not_there(tmp_path, total):
    index(tmp_path, total)
    assert loaded_bytes(tmp_path, is_quantised=False) == (99 if total == 99 else None)


def test_an_index_that_maps_nothing_says_nothing(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": [], "weight_map": 3}')
    assert loaded_bytes(tmp_path, is_quantised=False) is None


def test_a_folder_without_weights(tmp_path):
    assert loaded_bytes(tmp_path, is_quantised=False) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff" * 8, "is no safetensors file: a header of 18446744073709551615 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS and not the file: run git lfs pull"),
        (b"\x02\0\0\0\0\0\0\0{", "cannot be read"),
        (b"\x02\0\0\0\0\0\0\0[]", "its header is no object"),
        (b'\x08\0\0\0\0\0\0\0{"a": 3}', "its header is no object"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path, content, why):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelFilesError, match=f"model.safetensors: {why}"):
        loaded_bytes(tmp_path, is_quantised=False)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(ModelFilesError, match=r"model\.safetensors: cannot be read"):
        loaded_bytes(tmp_path, is_quantised=False)
