"""Files of a run: round trips, damage that is noticed, and old files that survive failures."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ridgeline import dtypes
from ridgeline.data.dataset import as_array
from ridgeline.errors import InputFileError, OutputFileError, RidgelineError
from ridgeline.interop.safetensors import read_tensors, write_tensors
from ridgeline.tensors.tensor import tensor
from ridgeline.train import load_checkpoint, load_weights, save_checkpoint, save_weights

STORABLE = [d for d in dtypes.ALL if d.name != "complex128"]


@pytest.mark.parametrize("dtype", STORABLE, ids=lambda d: d.name)
def test_round_trip_of_every_type(dtype: dtypes.DType, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    write_tensors(tmp_path / "x", {"a": array, "none": array[:0], "one": array[0, 0, None][0]}, {})
    read, metadata = read_tensors(tmp_path / "x")
    assert read["a"].dtype == array.dtype and read["a"].tobytes() == array.tobytes()
    assert read["none"].shape == (0, 3) and read["one"].shape == () and metadata == {}


def test_types_without_a_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="cannot hold complex128"):
        write_tensors(tmp_path / "x", {"a": np.zeros(2, complex)}, {})
    assert not list(tmp_path.iterdir())


def test_weights_are_plain_safetensors(tmp_path: Path) -> None:
    weights = {"w": tensor([[1.0, 2.0]]), "n": tensor(3)}
    save_weights(tmp_path / "m.safetensors", weights)
    theirs = load_file(tmp_path / "m.safetensors")
    assert theirs["w"].tolist() == [[1.0, 2.0]] and theirs["n"] == 3
    save_weights(str(tmp_path / "m.safetensors"), weights)  # a path may be a text
    assert as_array(load_weights(str(tmp_path / "m.safetensors"))["w"]).tolist() == [[1.0, 2.0]]


def test_checkpoints_keep_structure(tmp_path: Path) -> None:
    state = {
        "optimizer": {"state": {0: {"step": tensor(2.0)}, 3: {}}, "groups": [{"lr": 0.1}]},
        "nested": [None, True, "text", [1.5, {"deep": tensor([1, 2])}]],
    }
    save_checkpoint(tmp_path / "c", state)
    back = load_checkpoint(tmp_path / "c")
    assert float(back["optimizer"]["state"][0]["step"]) == 2.0
    assert back["optimizer"]["state"][3] == {} and back["optimizer"]["groups"] == [{"lr": 0.1}]
    assert back["nested"][:3] == [None, True, "text"]
    assert as_array(back["nested"][3][1]["deep"]).tolist() == [1, 2]


def damaged(data: bytes) -> dict[str, bytes]:
    flipped = bytearray(data)
    flipped[-5] ^= 0x10
    header = bytearray(data)
    header[20] ^= 0x10
    return {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "one byte short": data[:-1],
        "one byte flipped": bytes(flipped),
        "header flipped": bytes(header),
        "text": b"this is no checkpoint at all",
    }


@pytest.mark.parametrize("kind", list(damaged(bytes(100))))
def test_damage_is_noticed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"model": {"w": tensor(np.arange(50, dtype=np.float32))}})
    path.write_bytes(damaged(path.read_bytes())[kind])
    with pytest.raises(InputFileError):
        load_checkpoint(path)


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    save_weights(tmp_path / "w", {"w": tensor([1.0])})
    with pytest.raises(InputFileError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "w")
    with pytest.raises(InputFileError, match="cannot read"):
        load_checkpoint(tmp_path / "missing")
    with pytest.raises(InputFileError, match="cannot read"):
        load_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"n": 1})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFileError, match="No space left"):
        save_checkpoint(path, {"n": 2})
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(OutputFileError, match="cannot write"):
        save_checkpoint(tmp_path / "f" / "c", {"n": 1})
