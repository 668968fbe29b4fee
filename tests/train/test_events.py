"""Event files and pictures, read back by other people's readers."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

from ridgeline.errors import OutputFileError, RidgelineError
from ridgeline.train.events import SummaryWriter, crc32c, masked_crc
from ridgeline.train.pictures import encode_png, grid, save_png, scatter


def test_crc32c_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def records(path: Path) -> list[bytes]:
    """A strict reader of TFRecords."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked_crc(data[:8])
        body = data[12 : 12 + length]
        assert len(body) == length
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc(body)
        found.append(body)
        data = data[16 + length :]
    return found


def write(folder: Path) -> Path:
    with SummaryWriter(folder) as writer:
        writer.add_scalar("loss", 0.1, 1)
        writer.add_scalars({"loss": float("nan"), "Größe": -2.5}, 300)
        writer.add_scalar("loss", 1e-30, 1 << 40)
        writer.add_image("picture", np.linspace(0, 1, 3 * 4 * 5).reshape(3, 4, 5), 7)
    return writer.path


def test_records_are_whole(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert len(records(path)) == 5
    with SummaryWriter(tmp_path) as second:
        assert second.path != path


def test_tensorboard_reads_them(tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    path = write(tmp_path)
    events = list(loader.RawEventFileLoader(str(path)).Load())
    assert len(events) == 5
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["Größe", "loss"]
    assert [e.step for e in read.Scalars("loss")] == [1, 300, 1 << 40]
    values = [e.value for e in read.Scalars("loss")]
    assert values[0] == np.float32(0.1) and np.isnan(values[1]) and values[2] == np.float32(1e-30)
    (picture,) = read.Images("picture")
    assert (picture.step, picture.height, picture.width) == (7, 4, 5)
    assert picture.encoded_image_string.startswith(b"\x89PNG")


def test_pillow_reads_the_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for shape in ((5, 7), (1, 5, 7), (2, 5, 7), (3, 5, 7), (4, 5, 7)):
        pixels = random.integers(0, 256, shape, np.uint8)
        got = np.asarray(image.open(io.BytesIO(encode_png(pixels).data)))
        wanted = pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0)
        assert np.array_equal(got, wanted.squeeze()), shape
    save_png(tmp_path / "f.png", np.array([[0.0, 0.5, 1.0, 7.0, -1.0, float("nan")]]))
    assert np.asarray(image.open(tmp_path / "f.png")).tolist() == [[0, 128, 255, 255, 0, 0]]
    with pytest.raises(RidgelineError, match="a picture is"):
        encode_png(np.zeros((5, 2, 2)))


def test_grids_and_plots() -> None:
    made = grid(np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1) / 4, columns=3)
    assert made.shape == (1, 3, 5)
    assert made[0, 0].tolist() == [0, 0.5, 0.25, 0.5, 0.5] and made[0, 2, 0] == 0.75
    plot = scatter(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1]), 100)
    assert plot.shape == (3, 100, 100)
    assert plot[:, 94, 5].tolist() == [230, 159, 0] and plot[:, 5, 94].tolist() == [86, 180, 233]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputFileError, match="cannot write"):
        SummaryWriter(tmp_path / "file")
