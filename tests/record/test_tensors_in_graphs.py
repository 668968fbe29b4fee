"""Each tensor has a place of its own in a graph, whatever it was written over or is a view of.

Gradients, hooks and retained gradients are those of torch, in every way to run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deferred": nullcontext,
    "compiled": lambda: rl.config.override(tier="compiled"),
    "eager": rl.eager,
}
# Each writes over `t`, a result that depends on `w`, values that depend on `v` or on nothing.
WRITES = [
    "t.copy_(v)", "t.copy_(x)", "t[:] = v", "t[...] = v", "t.view(3, 1).copy_(v.view(3, 1))",
    "t.zero_()", "t.fill_(2.0)", "t.fill_(v[0])", "t.uniform_()", "t.copy_(v); t.copy_(x)",
    "t.copy_(t.detach() * 3)", "t[:] = t.data.clone()", "t.copy_((t > 0).to(t.dtype))",
    "t.copy_(v * 2)", "t.masked_fill_(x > -9, 1.0)", "t.view(3)[:].zero_()", "t[1:] = v[1:]",
]  # fmt: skip
# Each makes `a` and `b`, two tensors with the same values.
PAIRS = [
    "a, b = w * 2, w * 2", "b = w; a = x * 1; a.copy_(b)", "b = w * 2; a = x * 1; a[:] = b",
    "b = w * 2; a = b.view(3)", "b = w * 2; a = b[:]", "b = w * 2; a = b.clone()",
    "b = w.reshape(3, 1); a = w.reshape(3, 1)", "b = (w * 2)[1:]; a = (w * 2)[1:]",
    "c = w * 2; b = c[1:]; a = c[1:]", "c = w * 2; b = c[1:].flip(0); a = c[1:].flip(0)",
    "c = w * 2; b = c[1:][:1]; a = c[1:][:1]", "c = w * 1; b = c * 2; c.mul_(2); a = c",
    "c = w.t(); b = c.view(3); a = c.view(3)", "c = x * 1; d = x * 1; c[:2] = w[:2]; d[:2] = w[:2];"
    "a = c; b = d",
]  # fmt: skip


def _names(lib: Any) -> dict[str, Any]:
    def leaf(*values: float) -> Any:
        return lib.tensor(values, dtype=lib.float64).requires_grad_()

    return {"lib": lib, "w": leaf(0.5, -0.25, 0.75), "v": leaf(-0.5, 2.0, 0.25),
            "x": lib.tensor([1.0, 2.0, 4.0], dtype=lib.float64)}  # fmt: skip


def _listed(tensor: Any) -> Any:
    return None if tensor is None else tensor.tolist()


def _written_over(lib: Any, write: str) -> list[Any]:
    names = _names(lib)
    exec(f"t = w * 3; {write}; (t * x).sum().backward()", names)
    return [_listed(names["w"].grad), _listed(names["v"].grad)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_over_gets_zeros(write: str, way: str) -> None:
    with WAYS[way]():
        found = _written_over(rl, write)
    assert found == _written_over(torch, write)


def _told_apart(lib: Any, pair: str) -> list[Any]:
    names = _names(lib)
    exec(pair, names)
    a, b, seen = names["a"], names["b"], list[Any]()
    for name, tensor in (("a", a), ("b", b)):
        tensor.register_hook(lambda g, name=name: seen.append((name, g.tolist())))
        tensor.retain_grad()
    (a.reshape(-1) * 1 + 3 * b.reshape(-1)).sum().backward()
    return [sorted(seen), *map(_listed, (a.grad, b.grad, names["w"].grad))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", PAIRS)
def test_equal_tensors_have_hooks_and_gradients_of_their_own(pair: str, way: str) -> None:
    with WAYS[way]():
        found = _told_apart(rl, pair)
    assert found == _told_apart(torch, pair)


def _through_a_detached_handle(lib: Any, before: str, write: str) -> list[Any]:
    names = _names(lib)
    exec(f"{before}; d = h.detach(); {write}; d.tolist(); d.sum().backward()", names)
    return [names["h"].requires_grad, names["d"].tolist(), names["w"].grad.tolist()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", ["d.copy_(w * 2)", "d[1:] = w[1:] ** 2", "d.add_(w)"])
@pytest.mark.parametrize(
    "before", ["h = lib.zeros(3, dtype=lib.float64)", "h = w * w", "h = w * w; h.sum().backward()"]
)
def test_gradients_flow_through_writes_to_detached_memory(
    before: str, write: str, way: str
) -> None:
    with WAYS[way]():
        found = _through_a_detached_handle(rl, before, write)
    assert found == _through_a_detached_handle(torch, before, write)


def _hooked_and_written(lib: Any, write: str) -> list[Any]:
    names, seen = _names(lib), list[Any]()
    t = names["t"] = names["w"] * 3
    t.register_hook(lambda g: seen.append(("before", g.tolist())))
    t.retain_grad()
    exec(write, names)
    t.register_hook(lambda g: seen.append(("after", g.tolist())))
    (t * names["x"]).sum().backward()
    return [sorted(seen), t.grad.tolist(), names["w"].grad.tolist()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", ["t.mul_(2)", "t.add_(v)", "t.copy_(v)", "t[1:] = v[1:]"])
def test_hooks_stay_with_a_value_and_retained_gradients_with_the_tensor(
    write: str, way: str
) -> None:
    with WAYS[way]():
        found = _hooked_and_written(rl, write)
    assert found == _hooked_and_written(torch, write)
