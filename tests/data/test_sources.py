"""Files of other people's making: written here by their own definitions, read, and damaged."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgeline.data import (
    ByteTokenizer,
    CharTokenizer,
    DataLoader,
    ImageFolder,
    NumpyDataset,
    TableDataset,
    TextDataset,
    cifar10,
    karate_club,
    mnist,
    read_idx,
    read_text,
)
from ridgeline.data.dataset import as_array
from ridgeline.data.transforms import Compose, RandomResizedCrop
from ridgeline.errors import InputFileError, RidgelineError

RANDOM = np.random.default_rng(0)


def idx_bytes(array: np.ndarray[Any, Any], code: int) -> bytes:
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


# ---- MNIST ---------------------------------------------------------------------------------------


def write_mnist(folder: Path, compressed: bool) -> np.ndarray[Any, Any]:
    images = RANDOM.integers(0, 256, (5, 28, 28), np.uint8)
    for stem in ("train", "t10k"):
        labels = np.arange(5, dtype=np.uint8)
        for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            data = idx_bytes(array, 8)
            path = folder / (f"{stem}-{name}" + ".gz" * compressed)
            path.write_bytes(gzip.compress(data) if compressed else data)
    return images


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist(tmp_path: Path, compressed: bool) -> None:
    images = write_mnist(tmp_path, compressed)
    for part in ("train", "test"):
        split = mnist(tmp_path, part)
        assert split.images.shape == (5, 1, 28, 28) and split.labels.tolist() == list(range(5))
        assert np.array_equal(np.rint(split.images[:, 0] * 255), images)
    with pytest.raises(RidgelineError, match="no part"):
        mnist(tmp_path, "valid")


@pytest.mark.parametrize(("code", "kind"), [(9, "i1"), (11, "i2"), (12, "i4"), (13, "f4")])
def test_idx_element_types(tmp_path: Path, code: int, kind: str) -> None:
    array = RANDOM.integers(-100, 100, (3, 4)).astype(kind)
    (tmp_path / "x").write_bytes(idx_bytes(array, code))
    got = read_idx(tmp_path / "x")
    assert np.array_equal(got, array) and got.dtype == array.dtype


def test_damaged_idx(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = idx_bytes(np.zeros((5, 28, 28), np.uint8), 8)
    with pytest.raises(InputFileError, match="no train-images"):
        mnist(tmp_path)
    for data, message in (
        (gzip.compress(whole[:-1]), "cut short: 3935 bytes where its header promises 3936"),
        (gzip.compress(whole[:9]), "cut short"),
        (gzip.compress(whole + b"x"), "1 bytes after its end"),
        (gzip.compress(b"\x89PNG1234"), "not an IDX file"),
        (gzip.compress(whole)[:-9], "cannot read"),
        (whole, "cannot read"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputFileError, match=message):
            read_idx(path)


# ---- CIFAR-10 ------------------------------------------------------------------------------------


def test_cifar_in_both_forms(tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (4, 3072), np.uint8)
    binary, python = tmp_path / "b", tmp_path / "p" / "cifar-10-batches-py"
    binary.mkdir()
    python.mkdir(parents=True)
    for number in (1, 2, 3, 4, 5):
        rows = np.concatenate([np.array([[0], [9], [2], [number]], np.uint8), pixels], 1)
        (binary / f"data_batch_{number}.bin").write_bytes(rows.tobytes())
        stored = {b"data": pixels, b"labels": [0, 9, 2, number], b"batch_label": b"x"}
        (python / f"data_batch_{number}").write_bytes(pickle.dumps(stored, protocol=2))
    one, two = cifar10(binary), cifar10(tmp_path / "p")
    assert np.array_equal(one.images, two.images) and np.array_equal(one.labels, two.labels)
    assert one.images.shape == (20, 3, 32, 32) and one.labels[19] == 5
    assert one.images[1, 2, 31, 31] == np.float32(pixels[1, 3071]) / 255
    (binary / "data_batch_3.bin").write_bytes(b"123")
    with pytest.raises(InputFileError, match=r"data_batch_3.bin is cut short"):
        cifar10(binary)
    with pytest.raises(InputFileError, match="no test_batch"):
        cifar10(binary, "test")


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("open('/tmp/ridgeline-was-here', 'w')",)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(InputFileError, match=r"refers to builtins.exec"):
        cifar10(tmp_path, "test")
    assert not Path("/tmp/ridgeline-was-here").exists()
    (tmp_path / "test_batch").write_bytes(b"\x80garbage")
    with pytest.raises(InputFileError, match="not a CIFAR-10 file"):
        cifar10(tmp_path, "test")


# ---- image folders -------------------------------------------------------------------------------


def test_image_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    sizes = [(20, 30), (40, 25), (33, 33)]
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number, size in enumerate(sizes):
            pixels = RANDOM.integers(0, 256, (*size, 3), np.uint8)
            image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    plain = ImageFolder(tmp_path)
    assert plain.classes == ["cat", "dog"] and len(plain) == 6
    first, label = plain[5]
    assert label == 1 and np.array_equal(np.rint(first * 255).transpose(1, 2, 0), pixels)
    data = ImageFolder(tmp_path, Compose([RandomResizedCrop(8)]))
    batches = [list(DataLoader(data, 4, True, seed=3, num_workers=n)) for n in (0, 2)]
    for (a, x), (b, y) in zip(*batches):
        assert np.array_equal(as_array(a), as_array(b)) and np.array_equal(as_array(x), as_array(y))
    bad = tmp_path / "cat" / "1.png"
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(InputFileError, match=r"cannot read the image .*cat/1.png"):
        list(DataLoader(data, 3))
    with pytest.raises(InputFileError, match=r"cannot read the image .*cat/1.png"):
        list(DataLoader(data, 3, num_workers=1))
    (tmp_path / "none").mkdir()
    with pytest.raises(RidgelineError, match="no images"):
        ImageFolder(tmp_path / "none")
    with pytest.raises(InputFileError, match="not a folder"):
        ImageFolder(bad)


# ---- arrays and tables ---------------------------------------------------------------------------


def test_numpy_files(tmp_path: Path) -> None:
    x, y = RANDOM.random((7, 3)), np.arange(7)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", y=y, x=x)
    mapped = NumpyDataset(tmp_path / "x.npy", tmp_path / "y.npy")
    assert isinstance(mapped.tensors[0], np.memmap)
    packed = NumpyDataset(tmp_path / "both.npz", names=("x", "y"))
    assert len(pickle.dumps(mapped)) < 1000, "another process opens the file itself"
    for data in (mapped, packed):
        got = [as_array(b[0]) for b in DataLoader(data, 3, num_workers=1)]
        assert np.array_equal(np.concatenate(got), x)
    with pytest.raises(InputFileError, match="no array 'z'"):
        NumpyDataset(tmp_path / "both.npz", names=("z",))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:150])
    with pytest.raises(InputFileError, match="cannot read arrays"):
        NumpyDataset(tmp_path / "x.npy")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputFileError, match="cannot read arrays"):
        NumpyDataset(tmp_path / "o.npy")


def test_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    csv = pytest.importorskip("pyarrow.csv")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.csv"
    path.write_text("a,b,kind,price\n1,2.5,red,0.5\n3,4.5,blue,1.5\n5,-1,red,2\n")
    data = TableDataset(path, "kind", ["a", "b"])
    assert data.tensors[0].tolist() == [[1, 2.5], [3, 4.5], [5, -1]]
    assert data.tensors[1].tolist() == [1, 0, 1] and data.classes == ["blue", "red"]
    parquet.write_table(csv.read_csv(path), tmp_path / "t.parquet")
    other = TableDataset(tmp_path / "t.parquet", "price", ["b"])
    assert other.tensors[1].dtype == np.float32 and other[2][1] == 2
    with pytest.raises(InputFileError, match=r"'kind' of .* holds string, not numbers"):
        TableDataset(path, "a")
    with pytest.raises(InputFileError, match="no column 'c'"):
        TableDataset(path, "c")
    path.write_text("a,b\n1,\n")
    with pytest.raises(InputFileError, match="1 missing values"):
        TableDataset(path)
    path.write_text("a,b\n")
    with pytest.raises(InputFileError, match="no rows"):
        TableDataset(path)
    (tmp_path / "t.parquet").write_bytes(b"PAR1xxxx")
    with pytest.raises(InputFileError, match="cannot read the table"):
        TableDataset(tmp_path / "t.parquet")


def test_karate_club() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.karate_club_graph()
    edges, sides = karate_club()
    assert set(map(tuple, edges.T.tolist())) == {
        p for a, b in graph.edges for p in ((a, b), (b, a))
    }
    assert sides.tolist() == [int(graph.nodes[n]["club"] == "Officer") for n in range(34)]
    assert edges.shape == (2, 156)


# ---- text ----------------------------------------------------------------------------------------


def test_tokenizers(tmp_path: Path) -> None:
    text = "Größe, naïve, 終わり 🙂\n"
    for tokenizer in (ByteTokenizer(), CharTokenizer(text)):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text and tokens.max() < tokenizer.vocab_size
    letters = CharTokenizer("cab")
    assert letters.encode("abc").tolist() == [0, 1, 2]
    letters.save(tmp_path / "v.json")
    assert CharTokenizer.load(tmp_path / "v.json").characters == "abc"
    with pytest.raises(RidgelineError, match="character 'd'"):
        letters.encode("cd")
    assert ByteTokenizer().decode([255, 65]) == "�A"


def test_text_windows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdef")
    (tmp_path / "b.txt").write_text("gh")
    assert read_text(tmp_path) == "abcdef\ngh"
    data = TextDataset(read_text(tmp_path / "a.txt"), 2)
    assert [(x.tolist(), y.tolist()) for x, y in (data[0], data[1])] == [
        ([0, 1], [1, 2]), ([2, 3], [3, 4]),
    ]  # fmt: skip
    every = TextDataset("abcdef", 2, stride=1)
    assert len(data) == 2 and len(every) == 4
    x, y = every.batch(np.array([3, 0]))
    assert x.tolist() == [[3, 4], [0, 1]] and y.tolist() == [[4, 5], [1, 2]]
    with pytest.raises(RidgelineError, match="too short"):
        TextDataset("ab", 2)
    (tmp_path / "c.txt").write_bytes(b"ok\xff")
    with pytest.raises(InputFileError, match=r"c.txt is not UTF-8 text: byte 2"):
        read_text(tmp_path / "c.txt")
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(RidgelineError, match="no text"):
        read_text(tmp_path / "c.txt")
