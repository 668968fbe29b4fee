"""Values with a graph that are written through `.data` and `.detach()` of a result.

The memory is that of the result, whose gradients stay those of what was computed, while the handle
that wrote has the gradients of what it wrote. All is compared with torch.
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
    "jit": nullcontext,
}
# Each makes handles on the memory of `w`, a result through which gradients flow to `x`, and writes
# values that depend on `x` or on `g`.
PROGRAMS = """
w.data.copy_(w * 2)
w.data.mul_(w)
w.data.add_(g)
w.detach().copy_(g * 2)
w.data[0] = g[1] * 2
w.data[:] = w * 2
d = w.data; d *= g
d = w.detach(); d.mul_(g); d.add_(x)
d = w.detach(); d.mul_(g); w.mul_(2)
d = w.detach(); d.mul_(g); w.add_(g); d.mul_(g)
d = w.detach(); w.mul_(g); d.add_(x); w.add_(1)
d = w.detach(); e = w.detach(); d.add_(g); e.mul_(x); w.add_(1)
d = w.detach(); e = d.detach(); e.copy_(g); d.add_(x)
d = w[:]; e = w.data; e.add_(g); d.mul_(2)
w.data.view(-1)[0:1].copy_(g[1:2])
w.data.masked_scatter_(w.data > 0, w * 3)
w.data.index_put_((lib.tensor([0]),), g[1:2] * 3)
w.data.addcmul_(w, g)
w.data.lerp_(w * 3, 0.5)
w.data.scatter_(0, lib.tensor([0]), g[1:2] * 5)
w.data.copy_(lib.where(w > 0, w * 2, w))
w.data.fill_(w[0])
w.data[0], w.data[1] = g[1], g[0]
v = w[1:]; v.data.copy_(g[1:]); v.mul_(3)
w = x.clone().data; d = w.detach(); d.add_(g); w.mul_(x); d.mul_(2)
d = w.detach(); d.add_(g); w.sum().backward(retain_graph=True); w.add_(1); d.mul_(2)
"""


def _gradients(lib: Any, program: str) -> Any:
    names = {
        "lib": lib,
        "x": lib.tensor([1.0, 2.0, 3.0]).requires_grad_(),
        "g": lib.tensor([2.0, 3.0, 4.0]).requires_grad_(),
    }
    exec(f"w = x * 1\n{program}", names)
    found: list[Any] = []
    for name in ("w", "d", "e", "v"):
        handle = names.get(name)
        if handle is None:
            continue
        found.append(handle.detach())
        for _ in range(2 if handle.requires_grad else 0):
            handle.sum().backward(retain_graph=True)
        for variable in ("x", "g") if handle.requires_grad else ():
            gradient = names[variable].grad
            found.append(lib.zeros(3) if gradient is None else gradient * 1)
            names[variable].grad = None
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS.strip().split("\n"))
def test_gradients_are_those_of_torch(program: str, way: str) -> None:
    wanted = [value.tolist() for value in _gradients(torch, program)]
    with WAYS[way]():
        run = rl.jit(_gradients) if way == "jit" else _gradients
        for _ in range(2):
            assert [value.tolist() for value in run(rl, program)] == wanted
