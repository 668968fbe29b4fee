"""Hostile files: no code runs, nothing hangs, nothing crashes; each is read or refused."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import ridgeline as rl

DANGEROUS = (
    "os system", "posix system", "builtins eval", "builtins exec", "__builtin__ eval",
    "builtins __import__", "builtins getattr", "subprocess Popen", "pickle loads", "io open",
    "builtins open", "torch load", "torch.hub load", "torch.serialization load",
    "torch._utils _import_dotted_name", "torch.storage _load_from_bytes", "functools partial",
    "operator attrgetter", "operator methodcaller", "types FunctionType", "types CodeType",
    "importlib import_module", "runpy run_path", "shutil rmtree", "pathlib Path.unlink",
    "ridgeline.serialization.names Maker", "numpy load", "numpy.testing measure", "code interact",
    "collections namedtuple", "copyreg _reconstructor", "ctypes CDLL", "torch.jit load",
)  # fmt: skip


def zipped(pickled: bytes, storage: bytes = bytes(24)) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("x/data.pkl", pickled)
        out.writestr("x/byteorder", b"little")
        out.writestr("x/data/0", storage)
        out.writestr("x/version", b"3\n")
    return file.getvalue()


def calls(name: str, how: int, argument: bytes) -> bytes:
    """A pickle that calls a name in one of the ways that pickles have."""
    module, _, function = name.partition(" ")
    text = f"{module}\n{function}\n".encode()
    short = lambda s: b"\x8c" + bytes([len(s)]) + s.encode()  # noqa: E731
    given = b"X" + struct.pack("<I", len(argument)) + argument
    named = b"\x80\x04" + short(module) + short(function) + b"\x93"
    return (
        b"\x80\x02c" + text + given + b"\x85R.",
        b"\x80\x02(" + given + b"i" + text + b".",
        b"\x80\x02(c" + text + given + b"o.",
        b"\x80\x02c" + text + given + b"\x85\x81.",
        named + given + b"\x85R.",
        b"\x80\x02}(X\x01\x00\x00\x00ac" + text + given + b"\x85Ru.",
        b"\x80\x02c" + text + b"}X\x01\x00\x00\x00a" + given + b"sb.",
        b"\x80\x02\x82\x01" + given + b"\x85R.",
        named + given + b"\x85}\x92.",
    )[how]  # fmt: skip


@pytest.mark.parametrize("how", range(9))
def test_names_of_functions_are_never_called(how: int, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name in DANGEROUS:
        for argument in (f"touch {marker}", f"open({str(marker)!r}, 'w')"):
            data = calls(name, how, argument.encode())
            for file in (zipped(data), _stream(data)):
                with pytest.raises(rl.RidgelineError):
                    rl.load(io.BytesIO(file))
    assert not marker.exists()


def _stream(pickled: bytes) -> bytes:
    """The older form around a pickle."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    return b"".join(pickle.dumps(h, 2) for h in head) + pickled + pickle.dumps([], 2)


def tensor_pickle(offset: int, size: Any, stride: Any, count: int = 6) -> bytes:
    out = io.BytesIO()
    put = lambda value: out.write(pickle.dumps(value, 2)[2:-1])  # noqa: E731
    out.write(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n")
    out.write(b"FloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu")
    put(count)
    out.write(b"tQ")
    for value in (offset, size, stride, False, {}):
        put(value)
    out.write(b"tR.")
    return out.getvalue()


@pytest.mark.parametrize(
    "given",
    [(0, (7,), (1,)), (0, (2**40, 2**40), (2**40, 1)), (3, (2, 3), (3, 1)), (-1, (2,), (1,)),
     (0, (2,), (-1,)), (0, (2.0,), (1,)), (0, "ab", (1, 1)), (0, (3,), (2**62,)),
     (0, (2,), (1, 1)), (2**64, (1,), (1,)), (0, (2, -1), (1, 1)), (0, (True,), (1,)),
     (0, (3,), (1,), 2**50)],
)  # fmt: skip
def test_tensors_beyond_their_storage_are_refused(given: Any) -> None:
    with pytest.raises(rl.RidgelineError):
        rl.load(io.BytesIO(zipped(tensor_pickle(*given))))


def test_a_tensor_inside_its_storage_is_read() -> None:
    assert rl.load(io.BytesIO(zipped(tensor_pickle(1, (2, 2), (3, 1))))).shape == (2, 2)


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02" + b"(" * 200_000 + b"t" * 200_000 + b".",  # depth
        b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x02}" + b"(" * 100_000 + b"t" * 100_000 + b"K\x01s.",  # a deep key
        b"\x80\x02cbuiltins\nset\n](" + b"(" * 100_000 + b"t" * 100_000 + b"e\x85R.",
        b"\x80\x02K\x01r\xff\xff\xff\xff.",  # a far place in the memo
        b"\x80\x02h\x05.",
        b"\x80\x02X\xff\xff\xff\x7fa.",  # a text that is longer than the file
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fa.",
        b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",  # two gigabytes of zeros
        b"\x80\x02cbuiltins\nrange\n(K\x00\x8a\x10" + b"\x7f" * 16 + b"tR.",
        b"\x80\x02ccollections\nOrderedDict\n](]K\x01K\x02ee\x85R.",
        b"\x80\x02\x81.", b"\x80\x02R.", b"\x80\x02b.", b"\x80\x02u.", b"\x80\x02(.", b"0.",
        b"\x80\x02K\x01K\x02.", b"\x80\x02Q.", b"\x80\x02K\x01Q.", b"\xff.", b"\x80\x02",
    ],
    ids=range(22),
)  # fmt: skip
def test_odd_pickles_are_read_or_refused(pickled: bytes) -> None:
    for file in (zipped(pickled), _stream(pickled)):
        with contextlib.suppress(rl.RidgelineError):
            rl.load(io.BytesIO(file))


def test_packed_entries_are_refused() -> None:
    """They could be a thousand times larger than the file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("x/data.pkl", tensor_pickle(0, (2,), (1,)))
        out.writestr("x/data/0", bytes(24))
    with pytest.raises(rl.RidgelineError, match="compressed"):
        rl.load(io.BytesIO(file.getvalue()))


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    """Bytes changed, cut, doubled: an error or an object, and never anything else."""
    saved = {"a": torch.arange(6.0).reshape(2, 3), "b": [torch.ones(2, dtype=torch.bfloat16), {1}]}
    files = []
    for zipped_form in (True, False):
        file = io.BytesIO()
        torch.save(saved, file, _use_new_zipfile_serialization=zipped_form)
        files.append(file.getvalue())
    source = random.Random(0)
    refused = 0
    for number in range(400):
        data = bytearray(files[number % 2])
        for _ in range(source.choice((1, 1, 3, 20))):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.2:
            del data[source.randrange(len(data)) :]
        try:
            rl.load(io.BytesIO(bytes(data)))
        except rl.RidgelineError:
            refused += 1
    assert refused > 100


def test_a_file_that_is_not_there_is_what_python_calls_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot read"):
        rl.load(tmp_path / "nothing.pt")
