"""What tracing sees of the user's code where the package runs it, and how it leaves the process."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.autograd import Function
from ridgeline.collector import paused

factor = 1.0


class Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: rl.Tensor) -> rl.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: rl.Tensor) -> rl.Tensor:
        return gradient * factor


class Plain(rl.optim.SGD):
    def _update(self, parameter: rl.Tensor, gradient: rl.Tensor, state: Any, group: Any) -> None:
        parameter.sub_(gradient * factor)


def _by_function(x: rl.Tensor) -> rl.Tensor:
    return Scaled.apply(x)


def _by_hook(x: rl.Tensor) -> rl.Tensor:
    made = x * 1
    made.register_hook(lambda gradient: gradient * factor)
    return made


_namespace: dict[str, Any] = {"factor": 1.0}
exec("def by_text(x):\n    return x * factor\n", _namespace)


@pytest.mark.parametrize("scaled", [_by_function, _by_hook])
def test_a_global_that_a_backward_pass_reads_is_guarded(
    scaled: Callable[[rl.Tensor], rl.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    @rl.jit
    def gradient(x: rl.Tensor) -> rl.Tensor:
        leaf = x.detach().requires_grad_()
        made = scaled(leaf)
        made.sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    x = rl.ones(3)
    assert gradient(x).tolist() == [1.0] * 3
    monkeypatch.setitem(globals(), "factor", 4.0)
    assert gradient(x).tolist() == [4.0] * 3


def test_a_global_that_a_users_update_rule_reads_is_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = nn.Linear(2, 1, bias=False)
    optimizer = Plain(layer.parameters(), lr=0.1)

    @rl.jit
    def step(x: rl.Tensor) -> None:
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    before = layer.weight.detach().clone()
    step(rl.ones(1, 2))
    monkeypatch.setitem(globals(), "factor", 8.0)
    step(rl.ones(1, 2))
    assert rl.allclose(before - layer.weight, rl.full((1, 2), 9.0))


def test_code_made_from_text_is_the_users() -> None:
    by_text = _namespace["by_text"]
    double = rl.jit(lambda x: by_text(x) + by_text(x))
    assert double(rl.ones(())).item() == 2.0
    _namespace["factor"] = 3.0
    assert double(rl.ones(())).item() == 6.0


def test_a_profiler_in_python_is_put_back() -> None:
    def seen(frame: Any, event: str, argument: Any) -> None:
        pass

    sys.setprofile(seen)
    try:
        rl.jit(lambda x: x + 1)(rl.ones(2))
        assert sys.getprofile() is seen
    finally:
        sys.setprofile(None)


def test_collection_pauses_while_a_function_is_traced_and_goes_on_after_errors() -> None:
    running, collected, said = [False], list[str](), list[bool]()

    def note(phase: str, _: Any) -> None:
        if running[0]:
            collected.append(phase)

    def function(x: rl.Tensor, fail: bool) -> rl.Tensor:
        running[0] = True
        held = [[] for _ in range(20 * gc.get_threshold()[0])]
        running[0] = False
        said.append(gc.isenabled())
        if fail:
            raise KeyError("stop")
        return x * 2 + len(held[0])

    gc.callbacks.append(note)
    try:
        rl.jit(function)(rl.ones(2), False)
        with pytest.raises(KeyError):
            rl.jit(function)(rl.ones(2), True)
    finally:
        gc.callbacks.remove(note)
    assert not collected and said == [True, True]  # as where nothing is traced
    assert gc.isenabled()


def test_collection_stays_off_where_the_user_turned_it_off() -> None:
    gc.disable()
    try:
        with paused:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collection_goes_on_when_the_last_thread_leaves() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with paused:
        thread.start()
        inside.wait(10)
    assert not gc.isenabled()
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:  # the other thread is not here
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
    leave.set()
    thread.join()
    assert gc.isenabled()


class Table:
    """Finds every attribute in a table of its own, and has no other."""

    table: ClassVar = {"scale": 1.0}

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "table")[name]


def test_an_object_that_finds_its_attributes_itself() -> None:
    held = Table()
    jitted = rl.jit(lambda x: x * held.scale)
    for scale in (1.0, 2.0, 2.0, 3.0):
        Table.table["scale"] = scale
        assert jitted(rl.ones(1)).item() == scale


def test_an_attribute_in_c_that_makes_a_dict_of_what_it_is_now() -> None:
    generator = np.random.default_rng(0)

    def f(x: rl.Tensor) -> rl.Tensor:
        return x * (generator.bit_generator.state["has_uint32"] + 2)

    jitted = rl.jit(f)
    for _ in range(4):
        assert jitted(rl.ones(1)).item() == f(rl.ones(1)).item()
        generator.integers(5, dtype=np.uint32)
