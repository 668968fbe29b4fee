"""Files between torch and ridgeline: the same content, bit for bit, and tied as it was."""

from __future__ import annotations

import collections
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from tests.record.test_interrupted_blocks import interrupted

NAMES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


def values(lib: Any, dtype: str) -> Any:
    return lib.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]).to(getattr(lib, dtype))


def contents(lib: Any) -> dict[str, Any]:
    """What programs save, in either library."""
    base = lib.arange(24.0).reshape(4, 6)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4))
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.ones(parameter.shape) * 0.5)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.25)
    model(lib.arange(12.0).reshape(4, 3)).square().sum().backward()
    optimizer.step()
    return {
        "rows": base[1:3],
        "columns": base[:, 1::2],
        "turned": base.t(),
        "tied": base,
        "element": base[2, 3],
        "nothing": lib.zeros(0, 3),
        "number": lib.tensor(2.5),
        "spread": lib.ones(1, 3).expand(4, 3),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter": lib.nn.Parameter(lib.ones(2)),
        "frozen": lib.nn.Parameter(lib.ones(2), requires_grad=False),
        "leaf": lib.ones(3, requires_grad=True),
        "plain": {"epoch": 3, "loss": 0.125, "name": "große Ä", "done": False, "none": None},
        "numbers": [2**70, -(2**40), -1, 0, 255, 256, 65536, 1e300, 2j],
        "nested": ({"a": [(1, 2), {3, 4}]}, frozenset("ab"), b"\x00\xff", bytearray(b"q")),
        "sizes": (lib.ones(2, 3).shape, lib.float16, lib.device("cpu")),
        "ordered": collections.OrderedDict(b=1, a=2),
        "counts": collections.Counter("abca"),
        **{f"as {name}": values(lib, name) for name in NAMES},
    }  # fmt: skip


def bits(value: Any) -> Any:
    """Everything comparable: tensors as type, shape and bytes."""
    if isinstance(value, rl.Tensor | torch.Tensor):
        kind = str(value.dtype).rpartition(".")[2]
        dense = value.detach().contiguous()
        wide = dense.view(torch.uint8) if isinstance(dense, torch.Tensor) and dense.dim() else dense
        if isinstance(dense, rl.Tensor):
            data = dense.numpy().tobytes()
        elif dense.dim():
            data = wide.numpy().tobytes()
        else:
            data = dense.reshape(1).view(torch.uint8).numpy().tobytes()
        return kind, tuple(value.shape), data, value.requires_grad
    if isinstance(value, dict):
        return [(k, bits(v)) for k, v in value.items()]
    if isinstance(value, tuple | list) and not hasattr(value, "numel"):
        return [bits(v) for v in value]
    if isinstance(value, rl.DType | torch.dtype):
        return str(value).rpartition(".")[2]
    return str(value) if isinstance(value, rl.device | torch.device) else value


KINDS = list(contents(torch))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older"])
def test_what_torch_writes_is_read_bit_for_bit(kind: str, zipped: bool, tmp_path: Path) -> None:
    theirs = contents(torch)[kind]
    torch.save(theirs, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert bits(rl.load(tmp_path / "x.pt")) == bits(theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_write_torch_reads_bit_for_bit(kind: str, tmp_path: Path) -> None:
    ours = contents(rl)[kind]
    rl.save(ours, tmp_path / "x.pt")
    assert bits(torch.load(tmp_path / "x.pt", weights_only=kind != "nested")) == bits(ours)
    assert bits(rl.load(tmp_path / "x.pt")) == bits(ours)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_pickle_is_read(protocol: int) -> None:
    theirs, file = contents(torch), io.BytesIO()
    torch.save(theirs, file, pickle_protocol=protocol)
    file.seek(0)
    assert bits(rl.load(file)) == bits(theirs)


@pytest.mark.parametrize("mapped", [False, True])
def test_views_of_one_memory_stay_views_of_one_memory(mapped: bool, tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    saved = {"whole": whole, "row": whole[1], "turned": whole.t(), "every": whole[:, ::2]}
    torch.save(saved, tmp_path / "x.pt")
    found = rl.load(tmp_path / "x.pt", mmap=mapped)
    found["row"][0] = 50.0
    assert found["whole"][1, 0].item() == 50.0
    assert found["turned"][0, 1].item() == found["every"][1, 0].item() == 50.0
    assert {k: v.stride() for k, v in found.items()} == {k: v.stride() for k, v in saved.items()}
    again = tmp_path / "y.pt"
    rl.save(found, again)
    theirs = torch.load(again)
    theirs["turned"][3, 2] = -1.0
    assert theirs["whole"][2, 3] == -1.0
    assert again.stat().st_size < 4096, "one memory is written once"
    assert rl.load(tmp_path / "x.pt")["whole"][1, 0].item() == 4.0, "the file is as it was"


def test_tied_parameters_stay_tied(tmp_path: Path) -> None:
    class Tied(rl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = rl.nn.Linear(3, 3), rl.nn.Linear(3, 3)
            self.b.weight = self.a.weight

    rl.save(Tied().state_dict(), tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt")
    assert theirs["a.weight"].data_ptr() == theirs["b.weight"].data_ptr()


def test_an_optimizer_goes_on_where_torchs_stopped(tmp_path: Path) -> None:
    def run(lib: Any, state: Any, steps: int) -> tuple[Any, Any]:
        weight = lib.nn.Parameter(lib.tensor([1.0, -2.0, 3.0]))
        optimizer = lib.optim.AdamW([weight], lr=0.1)
        if state is not None:
            with lib.no_grad():
                weight.copy_(state["weight"])
            optimizer.load_state_dict(state["optimizer"])
        for _ in range(steps):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
        return weight, {"weight": weight.detach(), "optimizer": optimizer.state_dict()}

    torch.save(run(torch, None, 3)[1], tmp_path / "x.pt")
    ours, _ = run(rl, rl.load(tmp_path / "x.pt"), 2)
    theirs, _ = run(torch, None, 5)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    rl.save(run(rl, None, 3)[1], tmp_path / "y.pt")
    back, _ = run(torch, torch.load(tmp_path / "y.pt"), 2)
    np.testing.assert_allclose(back.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


def test_numpy_values_are_kept(tmp_path: Path) -> None:
    saved = {"number": np.float64(0.1), "array": np.arange(6, dtype=">i2").reshape(2, 3)}
    torch.save(saved, tmp_path / "x.pt")
    for found in (rl.load(tmp_path / "x.pt"), _again(saved, tmp_path)):
        assert found["number"] == np.float64(0.1)
        np.testing.assert_array_equal(found["array"], saved["array"])


def _again(saved: Any, folder: Path) -> Any:
    rl.save(saved, folder / "y.pt")
    return torch.load(folder / "y.pt", weights_only=False)


@pytest.mark.parametrize(
    "where",
    ["cpu", rl.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage,
     lambda storage, place: storage.cpu()],
)  # fmt: skip
def test_tensors_of_a_gpu_are_brought_to_the_host(where: Any, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "x.pt")
    text = (tmp_path / "x.pt").read_bytes()
    moved = _rewritten(text, b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    assert rl.load(io.BytesIO(moved), map_location=where)["a"].tolist() == [1.0, 1.0]


def _rewritten(text: bytes, old: bytes, new: bytes) -> bytes:
    import zipfile

    source, target = zipfile.ZipFile(io.BytesIO(text)), io.BytesIO()
    with zipfile.ZipFile(target, "w") as out:
        for name in source.namelist():
            out.writestr(name, source.read(name).replace(old, new))
    return target.getvalue()


def test_modules_of_torch_are_refused_with_the_remedy(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "y.pt")
    with pytest.raises(rl.RidgelineError, match=r"torch.nn.modules.linear.Linear(.|\n)*state_dict"):
        rl.load(tmp_path / "y.pt", weights_only=False)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(rl.RidgelineError, match="cannot read"):
        rl.load(tmp_path / "missing.pt")
    for text in (b"", b"PK\x03\x04", b"hello", b"\x80\x02.", b"\x80\x02K\x01."):
        (tmp_path / "x.pt").write_bytes(text)
        with pytest.raises(rl.RidgelineError):
            rl.load(tmp_path / "x.pt")
    with pytest.raises(rl.RidgelineError, match="path or an open file"):
        rl.load(3)


def test_an_interrupt_of_a_save_is_what_is_raised(tmp_path: Path) -> None:
    """At every place where one can come; the file is the one before, or the new one."""
    file = tmp_path / "model.pt"
    rl.save({"k": 0}, file)
    moment, came = 0, True
    while came:
        came = interrupted(lambda: rl.save({"k": 1, "w": rl.ones(3)}, file), moment)
        assert rl.load(file)["k"] in (0, 1)
        moment += 5
    assert rl.load(file)["k"] == 1 and moment > 100
