"""Memory shared with NumPy and torch: DLPack both ways, arrays, buffers."""

from __future__ import annotations

import array
import gc
import sys
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.interop.dlpack import ExchangeError, NotAProducerError

torch: Any = pytest.importorskip("torch")

NAMES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def values(name: str) -> Any:
    return (np.arange(6).reshape(2, 3) % (2 if name == "bool" else 100)).astype(name)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_both_ways(name: str) -> None:
    x = rl.asarray(values(name))
    out = np.from_dlpack(x)
    assert out.dtype == name
    np.testing.assert_array_equal(out, values(name))
    back = rl.from_dlpack(values(name))
    assert back.dtype is getattr(rl, name) and back.tolist() == values(name).tolist()


@pytest.mark.parametrize("name", [*NAMES, *SMALL])
def test_torch_both_ways(name: str) -> None:
    t = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    x = rl.from_dlpack(t)
    assert x.dtype is getattr(rl, name) and x.tolist() == t.tolist()
    back = torch.from_dlpack(rl.tensor(t.tolist(), dtype=getattr(rl, name)))
    assert back.dtype is getattr(torch, name) and back.tolist() == t.tolist()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_each_sees_what_the_other_writes(name: str) -> None:
    t = torch.zeros(3, dtype=getattr(torch, name))
    x = rl.from_dlpack(t, copy=False)
    t[1] = 2
    x[0] = 3
    assert x.tolist() == t.tolist() == [3, 2, 0]
    y = rl.zeros(3)
    out = torch.from_dlpack(y)
    out[2] = 5
    y[0] = 1
    assert y.tolist() == out.tolist() == [1, 0, 5]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[1:, ::2],
        lambda a: a[::-1],
        lambda a: a[0, :1],
        lambda a: a[:, :0],
    ],
)
def test_layouts(view: Any) -> None:
    a = values("float32")
    np.testing.assert_array_equal(np.asarray(rl.from_dlpack(view(a))), view(a))
    np.testing.assert_array_equal(np.from_dlpack(view(rl.asarray(a))), view(a))


def test_copies_and_read_only_memory() -> None:
    a = values("float32")
    copied = rl.from_dlpack(a, copy=True)
    a[0, 0] = 50
    assert copied[0, 0].item() == 0
    a.flags.writeable = False
    fixed = rl.from_dlpack(a)
    with pytest.raises(rl.RidgelineError, match="read-only"):
        fixed[0, 0] = 1.0
    x = rl.asarray(values("float32"))
    assert not np.shares_memory(np.from_dlpack(x, copy=True), np.from_dlpack(x))
    assert np.shares_memory(np.from_dlpack(x), np.from_dlpack(x))


def test_memory_outlives_its_producer() -> None:
    x = rl.arange(1000) * 2
    out = np.from_dlpack(x)
    del x
    gc.collect()
    rl.zeros(1000).tolist()
    assert out[999] == 1998


@pytest.mark.parametrize("name", SMALL)
def test_capsules_of_both_kinds_name_small_floats(name: str) -> None:
    x = rl.tensor([1.0, 2.0], dtype=getattr(rl, name))
    for version in (None, (1, 0)):

        class Producer:
            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

            def __dlpack__(self, version: Any = version, **_: Any) -> Any:
                return x.__dlpack__(max_version=version)

        assert rl.from_dlpack(Producer()).dtype is x.dtype


def test_what_cannot_be_handed_over() -> None:
    x = rl.ones(2, requires_grad=True)
    with pytest.raises(BufferError, match="detach"):
        x.__dlpack__()
    with pytest.raises(ExchangeError, match="device"):
        rl.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ExchangeError, match="stream"):
        rl.ones(2).__dlpack__(stream=3)
    with pytest.raises(NotAProducerError):
        rl.from_dlpack(object())


def test_asarray_shares_where_it_can() -> None:
    a = values("int32")
    x = rl.asarray(a)
    a[0, 0] = 9
    assert x[0, 0].item() == 9
    numbers = array.array("d", [1.0, 2.0])
    y = rl.asarray(numbers)
    numbers[0] = 4.0
    assert y.tolist() == [4.0, 2.0] and y.dtype is rl.float64
    assert rl.asarray(torch.ones(2)).tolist() == [1.0, 1.0]
    assert rl.asarray([1, 2], dtype=rl.float32, requires_grad=True).requires_grad
    assert rl.asarray(x) is x and rl.asarray(x, copy=True) is not x


def test_numpy_protocol() -> None:
    x = rl.tensor([[1.0, 2.0]], requires_grad=True)
    np.testing.assert_array_equal(np.asarray(x), [[1.0, 2.0]])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.ones(2) + rl.ones(2).numpy(), [2.0, 2.0])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="buffers from Python classes need 3.12")
def test_buffer_protocol() -> None:
    x = rl.tensor([1.0, 2.0])
    memoryview(x)[0] = 5.0  # type: ignore[arg-type]
    assert x.tolist() == [5.0, 2.0]
