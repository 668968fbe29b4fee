"""Functions that have nothing to do return their argument, and what only shows it is a view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl

CALLS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "plus": ([1.0, 2.0], lambda lib, x: +x),
    "positive": ([1.0, 2.0], lambda lib, x: lib.positive(x)),
    "positive of a view": ([[1.0, 2.0]], lambda lib, x: x[0, 1:].positive()),
    "dropout of nothing": ([1.0, 2.0], lambda lib, x: lib.nn.functional.dropout(x, 0.0, True)),
    "dropout at inference": ([1.0, 2.0], lambda lib, x: lib.dropout(x, 0.5, False)),
    "alpha_dropout": ([1.0, 2.0], lambda lib, x: lib.nn.functional.alpha_dropout(x)),
    "dropout2d": ([[[[1.0]]]], lambda lib, x: lib.nn.functional.dropout2d(x, 0.0)),
    "expand of nothing": ([[1.0], [2.0]], lambda lib, x: x.expand(1, 2, 1)),
    "a layer of dropout": ([1.0, 2.0], lambda lib, x: lib.nn.Dropout().eval()(x)),
    "flatten": ([1.0, 2.0], lambda lib, x: x.flatten()),
    "flatten one of two": ([[1.0], [2.0]], lambda lib, x: x.flatten(1)),
    "flatten two": ([[1.0], [2.0]], lambda lib, x: x.flatten()),
    "real": ([1.0, 2.0], lambda lib, x: lib.real(x)),
    "x.real": ([1.0, 2.0], lambda lib, x: x.real),
    "conj": ([1.0, 2.0], lambda lib, x: x.conj()),
    "resolve_neg": ([1.0, 2.0], lambda lib, x: x.resolve_neg()),
    "adjoint": ([[1.0], [2.0]], lambda lib, x: x.adjoint()),
    "atleast_1d": ([1.0, 2.0], lambda lib, x: lib.atleast_1d(x)),
    "atleast_2d": ([1.0, 2.0], lambda lib, x: lib.atleast_2d(x)),
    "atleast_3d of some": ([1.0, 2.0], lambda lib, x: lib.atleast_3d(lib.ones(1, 1, 1), x)[1]),
    "sum_to_size": ([1.0, 2.0], lambda lib, x: x.sum_to_size(2)),
    "sum_to_size of rows": ([[1.0], [2.0]], lambda lib, x: x.sum_to_size(1, 1)),
    "broadcast_tensors": ([1.0, 2.0], lambda lib, x: lib.broadcast_tensors(lib.ones(1), x)[1]),
    "meshgrid": ([1.0], lambda lib, x: lib.meshgrid(x, lib.ones(1), indexing="ij")[0]),
    "einsum": ([[1.0], [2.0]], lambda lib, x: lib.einsum("ij->ji", x)),
    "einsum of products": ([1.0, 2.0], lambda lib, x: lib.einsum("i,i->i", x, x)),
}
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deferred": nullcontext,
    "eager": rl.eager,
    "matched": lambda: rl.config.override(tape=True),
    "of NumPy's memory": nullcontext,
}


def found(lib: Any, name: str, make: Callable[[Any], Any]) -> list[Any]:
    """What a call leaves behind whose result is written to, three times from one line."""
    left: list[Any] = []
    for _ in range(3):
        data, call = CALLS[name]
        x = make(data)
        y = call(lib, x)
        y.mul_(3)
        left += [y is x, x.tolist(), y.tolist()]
    return left


def array(data: Any) -> Any:
    return np.array(data, np.float32)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_as_in_torch(name: str, way: str) -> None:
    if way == "of NumPy's memory":
        wanted = found(torch, name, lambda data: torch.from_numpy(array(data)))
        assert found(rl, name, lambda data: rl.from_numpy(array(data))) == wanted
        return
    with WAYS[way]():
        assert found(rl, name, rl.tensor) == found(torch, name, torch.tensor)


@pytest.mark.parametrize("name", CALLS)
def test_written_to_inside_jit(name: str) -> None:
    data, call = CALLS[name]

    def program(lib: Any, x: Any) -> Any:
        y = call(lib, x)
        y.mul_(3)
        return y + 1

    theirs, ours = torch.tensor(data), rl.tensor(data)
    wanted, got = program(torch, theirs), rl.jit(lambda x: program(rl, x))(ours)
    assert got.tolist() == wanted.tolist() and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", CALLS)
def test_gradients_flow_through(name: str) -> None:
    data, call = CALLS[name]
    got = []
    for lib in (torch, rl):
        w: Any = lib.tensor(data, requires_grad=True)
        cut = (w * 2).detach()
        (call(lib, w * 3) * call(lib, cut)).sum().backward()
        got.append([w.grad.tolist(), call(lib, cut).requires_grad, call(lib, w).requires_grad])
    assert got[0] == got[1]
