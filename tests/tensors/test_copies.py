"""Pickle, copy and deepcopy of tensors; the buffer and array protocols."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle_keeps_type_shape_and_values(dtype, shape, protocol) -> None:
    x = (rl.arange(int(np.prod(shape))).reshape(shape)).to(getattr(rl, dtype))
    y = pickle.loads(pickle.dumps(x, protocol))
    assert type(y) is rl.Tensor and y.dtype is x.dtype and y.shape == x.shape
    assert y.tolist() == x.tolist() and not y.requires_grad


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
class TestCopies:
    """What holds of every way to get a second tensor with its own memory."""

    def test_gradients_are_wanted_again(self, again) -> None:
        x = rl.ones(3, requires_grad=True)
        y = again(x)
        assert y.requires_grad and y.is_leaf
        (y * 2).sum().backward()
        assert x.grad is None and y.grad.tolist() == [2, 2, 2]

    def test_memory_is_not_shared(self, again) -> None:
        x = rl.zeros(3)
        y = again(x)
        y[0] = 5
        x[1] = 7
        assert x.tolist() == [0, 7, 0] and y.tolist() == [5, 0, 0]

    def test_a_view_becomes_a_tensor_of_its_own(self, again) -> None:
        x = rl.arange(6.0).reshape(2, 3)
        y = again(x.T[1:])
        assert y.tolist() == [[1, 4], [2, 5]]
        y.zero_()
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_parameters_and_modules(self, again) -> None:
        p = again(nn.Parameter(rl.ones(2), requires_grad=False))
        assert type(p) is nn.Parameter and not p.requires_grad
        layer = nn.Linear(3, 2)
        twin = again(layer)
        assert type(twin.weight) is nn.Parameter and twin.weight.requires_grad
        assert twin.weight.tolist() == layer.weight.tolist()
        assert [n for n, _ in twin.named_parameters()] == ["weight", "bias"]
        x = rl.ones(1, 3)
        assert twin(x).tolist() == layer(x).tolist()

    def test_a_tensor_inside_a_graph_is_refused(self, again) -> None:
        with pytest.raises(rl.RidgelineError, match="only leaf tensors"):
            again(rl.ones(2, requires_grad=True) * 2)


def test_deepcopy_keeps_the_gradient_and_what_is_shared() -> None:
    x = rl.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1] and pair[0] is not x
    assert pair[0].grad.tolist() == [3, 3] and pair[0].grad is not x.grad


def test_copy_shares_memory() -> None:
    x = rl.zeros(3)
    y = copy.copy(x)
    y[0] = 1
    assert x.tolist() == [1, 0, 0]
    p = copy.copy(nn.Parameter(rl.ones(2)))
    assert type(p) is nn.Parameter and p.requires_grad


def test_a_truncated_pickle_raises_pythons_error() -> None:
    text = pickle.dumps(rl.ones(1000))
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        pickle.loads(text[:200])


def test_generators_can_be_pickled() -> None:
    source = rl.Generator().manual_seed(4)
    rl.rand(5, generator=source)
    twin = pickle.loads(pickle.dumps(source))
    assert rl.rand(3, generator=twin).tolist() == rl.rand(3, generator=source).tolist()


def test_array_protocol() -> None:
    x = rl.arange(6.0).reshape(2, 3)
    array = np.asarray(x)
    array[0, 0] = 9
    assert x[0, 0].item() == 9  # the same memory
    assert np.asarray(x, dtype=np.int64).dtype == np.int64
    fresh = np.array(x, copy=True)
    fresh[:] = 0
    assert x[0, 0].item() == 9
    assert np.asarray(rl.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert np.add(np.ones(3), rl.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(ValueError):
        np.array(x, dtype=np.int64, copy=False)


def test_more_than_one_integer_is_no_index() -> None:
    for wrong in (rl.tensor([1, 2]), rl.tensor([], dtype=rl.int64), rl.tensor(1.5)):
        with pytest.raises(TypeError, match="an index is"):
            [1, 2, 3][wrong]
    assert [1, 2, 3][rl.tensor([1])] == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ is Python 3.12's")
def test_buffer_protocol() -> None:
    x = rl.arange(6, dtype=rl.int32).reshape(2, 3)
    view = memoryview(x)
    assert view.shape == (2, 3) and view.format == "i" and view.tolist() == x.tolist()
    view[1, 2] = 50
    assert x[1, 2].item() == 50
    assert bytes(rl.tensor([1, 2], dtype=rl.uint8)) == b"\x01\x02"


def test_a_copied_module_has_no_gradients() -> None:
    """As torch's parameters; tensors that are no parameters keep theirs."""
    layer = rl.nn.Linear(2, 2)
    layer(rl.ones(1, 2)).sum().backward()
    copied = copy.deepcopy(layer)
    assert copied.weight.grad is None
    assert copied.weight.requires_grad
    assert layer.weight.grad is not None
