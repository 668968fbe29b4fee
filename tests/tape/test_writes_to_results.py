"""Results that keep a graph are written by handles that have nothing to do with it.

Known calls write to what a flush left with its graph: later gradients go on through that graph, and
a result without one is not mistaken for one with a graph. All is compared with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from tests.fuzz.deviations import interpreted_programs
from tests.tape.test_tape import is_matched, run_until_matched

torch = pytest.importorskip("torch")

TIERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "compiled": lambda: config.override(tier="compiled"),
    "interpreted": interpreted_programs,
}
# `h` is a result of the variables `w` and `v` and the data `x`; `n` is the number of the step.
# Each asks for values now and then, so that there are several flushes.
ALWAYS_ALIKE = """
h = x + w; h.sum().item(); h.data.add_(1); v.sum().item(); (h * h).sum().backward()
h = x + w; h.sum().item(); h.detach().mul_(3); v.sum().item(); (h * h).sum().backward()
h = x * w; h.sum().item(); h.data.copy_(x * 2); v.sum().item(); (h * h * v).sum().backward()
h = x * w; h.sum().item(); h[1:].detach().zero_(); v.sum().item(); (h * v).exp().sum().backward()
h = x * w; h.sum().item(); h.data[0] = 2.0; v.sum().item(); h.square().sum().backward()
h = x * w; k = h * 2; k.sum().item(); h.data.add_(1); v.sum().item(); (k * h).sum().backward()
h = x + w; h.sum().item(); d = h.data; d.add_(1); v.sum().item(); d.mul_(2); v.sum().item(); \
(h * h).sum().backward()
h = x + w; h.sum().item(); (h * x).sum().backward(retain_graph=True); h.data.add_(1); \
v.sum().item(); (h * h).sum().backward()
"""
# Here values with a graph are written, which is recorded every time.
WITH_A_GRAPH = """
h = x + w; h.sum().item(); d = h.data; d.mul_(v); v.sum().item(); (h * h + d).sum().backward()
h = x + w; h.detach().copy_(w * 2); (h * x).mean().backward(retain_graph=True); v.sum().item(); \
h.detach().mul_(3); v.sum().item(); (h * v).sum().backward(retain_graph=True); h.data.add_(1); \
v.sum().item(); (h * h).sum().backward()
"""
# Here the memory that is written stands to gradients in another way in some of the steps.
OF_MANY_KINDS = """
h = (x + w if n % 3 else x + 1); h.sum().item(); h.data.add_(1)
h = (x + 1 if n % 3 else x + w); h.sum().item(); h.data.add_(1)
h = (x + w if n % 3 else (x + 1).requires_grad_()); h.sum().item(); h.data.mul_(2)
h = ((x + 1).requires_grad_() if n % 3 else x + 1); h.sum().item(); h.data.mul_(2)
h = (x + w if n % 3 else x + 1); h.sum().item(); d = h.detach(); d.mul_(v if n % 2 else x)
"""


@pytest.fixture(autouse=True, params=TIERS)
def tier(request: pytest.FixtureRequest, nothing_recorded: None) -> Iterator[None]:
    with TIERS[request.param](), config.override(tape=True):
        yield


def _steps(lib: Any, program: str) -> Callable[[int], list[float]]:
    """What makes a step of a program, and gives the gradients that it leaves."""
    lines = ["w.grad = v.grad = None", *program.split("; "), "return locals()"]
    text = "def step(n, x):\n" + "\n".join(f"    {line}" for line in lines)
    variables = [
        lib.tensor(values, dtype=lib.float64).requires_grad_()
        for values in ([0.5, -0.25, 0.75], [-0.5, 0.125, 0.25])
    ]
    names: dict[str, Any] = {"lib": lib, "w": variables[0], "v": variables[1]}
    exec(compile(text, program, "exec"), names)

    def step(number: int) -> list[float]:
        x = lib.tensor([0.5, -0.25, 1.0], dtype=lib.float64) * (number % 3 + 1)
        made = names["step"](number, x)
        h = made["h"]
        leaves = [*variables, *([h] if h.requires_grad and h.is_leaf else [])]
        found = [h.requires_grad, *h.detach().tolist()]
        for leaf in leaves:
            found += [0.0] * 3 if leaf.grad is None else leaf.grad.tolist()
        return found

    return step


@pytest.mark.parametrize("program", ALWAYS_ALIKE.strip().split("\n"))
def test_a_graph_goes_on_behind_what_known_calls_write(program: str) -> None:
    found, programs = run_until_matched(_steps(rl, program), 8, last=2)
    theirs = _steps(torch, program)
    for number, ours in enumerate(found):
        np.testing.assert_allclose(ours, theirs(number), rtol=1e-12, err_msg=f"step {number}")
    assert is_matched(programs, 2), programs


@pytest.mark.parametrize("program", WITH_A_GRAPH.strip().split("\n"))
def test_what_handles_write_with_a_graph_is_recorded_beside_known_calls(program: str) -> None:
    ours, theirs = _steps(rl, program), _steps(torch, program)
    for number in range(12):
        np.testing.assert_allclose(
            ours(number), theirs(number), rtol=1e-12, err_msg=f"step {number}"
        )


@pytest.mark.parametrize("program", OF_MANY_KINDS.strip().split("\n"))
def test_memory_of_one_kind_is_not_taken_for_another(program: str) -> None:
    program += "; v.sum().item(); (h * h * v).sum().backward()"
    ours, theirs = _steps(rl, program), _steps(torch, program)
    for number in range(18):
        np.testing.assert_allclose(
            ours(number), theirs(number), rtol=1e-12, err_msg=f"step {number}"
        )
