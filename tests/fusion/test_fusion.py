"""What shares a kernel: the compositions of deep learning, optimizers, and the memory of a step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import dtypes, nn, optim
from ridgeline.compiler import Stages, lay_out, lower_graph
from ridgeline.compiler.backend import backend
from ridgeline.fusion.groups import Fuser
from ridgeline.fusion.materialize import choose_values
from ridgeline.graph.graph import MOST_NODES, Graph
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.models.gpt2 import GPT2
from ridgeline.models.lenet import lenet5
from ridgeline.ops.elementwise import add, full_like, mul
from ridgeline.ops.reduce import reduce
from ridgeline.runtime.cpu.backend import machine
from ridgeline.tracing import trace
from tests.compiler.passing import fused
from tests.compiler.programs import f32, softmax

F = nn.functional


class _Captured(Exception):
    """Ends a call once its graph is known: nothing is compiled."""


def traced(
    function: Callable[..., Any], args: tuple[Any, ...], patch: pytest.MonkeyPatch
) -> tuple[list[Node], list[Node]]:
    """The graph that jit would compile for a call."""
    found: list[tuple[list[Node], list[Node]]] = []

    def keep(graph: Graph, pairs: object) -> None:
        found.append((list(graph.outputs), list(graph.inputs)))
        raise _Captured

    patch.setattr(trace, "program_for", keep)
    with pytest.raises(_Captured):
        rl.jit(function)(*args)
    patch.undo()
    return found[0]


def kernels(stages: Stages) -> list[str]:
    return [group.name for group in stages.fusion.groups]


def _with_gradient(function: Callable[..., rl.Tensor]) -> Callable[..., Any]:
    def both(x: rl.Tensor, *rest: rl.Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        value = function(leaf, *rest)
        (value * value).sum().backward()
        return value, leaf.grad

    return both


def _rows() -> rl.Tensor:
    return rl.randn(64, 512)


CASES: dict[str, tuple[Callable[..., Any], int, int]] = {
    "softmax": (lambda x, w: rl.softmax(x, -1), 1, 1),
    "log_softmax": (lambda x, w: rl.log_softmax(x, -1), 1, 1),
    "logsumexp": (lambda x, w: rl.logsumexp(x, -1), 1, 1),
    "layer_norm": (lambda x, w: F.layer_norm(x, [512], w, w), 1, 1),
    "rms_norm": (lambda x, w: F.rms_norm(x, [512], w), 1, 1),
    "gelu": (lambda x, w: F.gelu(x) * w, 1, 1),
    # the rows' mean, and the number of rows that count, fold over rows: a second kernel
    "cross_entropy": (lambda x, w: F.cross_entropy(x, rl.arange(64)), 2, 3),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_composition_is_as_few_kernels_as_its_rows_allow(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, forward, both = CASES[name]
    args = (_rows(), rl.randn(512))
    assert len(kernels(lower_graph(Graph(*traced(function, args, monkeypatch))))) <= forward
    graph = traced(_with_gradient(function), args, monkeypatch)
    assert len(kernels(lower_graph(Graph(*graph)))) <= both


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_an_optimizer_passes_over_each_parameter_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(64, 32), (64,), (32, 64), (32,), (10, 32), (10,)]
    parameters = [rl.randn(*shape).requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = rl.ones_like(parameter)
    optimizer = getattr(optim, kind)(parameters, lr=0.1)
    optimizer.step()
    stages = lower_graph(Graph(*traced(optimizer.step, (), monkeypatch)))
    # and one kernel for all the step counts
    assert len(kernels(stages)) <= len(parameters) + 1


def test_a_refusal_has_its_reason() -> None:
    x = f32(8, 16)
    from ridgeline.ops import contract as C

    stages = lower_graph(Graph([C.matmul(softmax(x), f32_b := f32(16, 4))], [x, f32_b]))
    reasons = [refusal.reason for refusal in stages.fusion.refusals]
    assert "a contraction shares a kernel with pointwise work only" in reasons


# ---- memory -------------------------------------------------------------------------------------


def _lenet_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = lenet5()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, (rl.randn(16, 1, 32, 32), rl.randint(0, 10, (16,)))


def _gpt_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = GPT2(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, embd_pdrop=0.0,
                 attn_pdrop=0.0, resid_pdrop=0.0)  # fmt: skip
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, 64), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step, (rl.randint(0, 64, (2, 32)), rl.randint(0, 64, (2, 32)))


def _attention() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    attend = F.scaled_dot_product_attention
    return attend, tuple(rl.randn(2, 4, 64, 16) for _ in range(3))


@pytest.mark.parametrize("made", [_lenet_step, _gpt_step, _attention])
def test_the_arena_is_hardly_larger_than_what_is_alive(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, args = made()
    outputs, inputs = traced(function, args, monkeypatch)
    layout = lay_out(lower_graph(Graph(outputs, inputs)), backend("cpu"))
    assert layout.arena_bytes <= 1.05 * layout.peak_live


_NAMES = """
import pytest
from ridgeline.compiler import lower_graph
from ridgeline.graph.graph import Graph
from tests.fusion.test_fusion import _gpt_step, _lenet_step, traced

for made in (_lenet_step, _gpt_step):
    with pytest.MonkeyPatch.context() as patch:
        outputs, inputs = traced(*made(), patch)
    print([k.kernel.name for k in lower_graph(Graph(outputs, inputs)).kernels])
"""


def test_every_process_makes_the_same_kernels() -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-c", _NAMES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert texts[0] == texts[1] != ""


def test_of_a_gelu_backward_finds_its_input_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    up, down = nn.Linear(32, 128), nn.Linear(128, 32)

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = down(F.gelu(up(x), approximate="tanh")).square().sum()
        loss.backward()
        return loss

    outputs, inputs = traced(step, (rl.randn(64, 32),), monkeypatch)
    stages = lower_graph(Graph(outputs, inputs))
    wide = [
        node
        for group in stages.fusion.groups
        for node in group.loops.slots[group.loops.reads :]
        if node.shape == (64, 128)
    ]
    # the sum before the gelu, the gelu, and the gradient of the sum
    assert len(wide) == 3, [str(node) for node in wide]


def test_a_long_chain_is_cut_into_kernels_of_bounded_size() -> None:
    x = leaf(TensorType((8,), dtypes.float32))
    y = x
    for _ in range(5 * MOST_NODES):
        y = add(mul(y, y), x)
    fusion = fused([y], [x], backend("cpu").roofline(machine()))
    inside = [len(topological(g.values, g.reads.__contains__)) for g in fusion.groups]
    assert 10 <= len(inside) <= 11
    assert max(inside) <= MOST_NODES + 2


def test_many_readers_of_the_same_memory_do_not_cost_a_square() -> None:
    x = leaf(TensorType((8,), dtypes.float32))
    sums = [reduce(mul(x, full_like(x, i)), "sum", (0,)) for i in range(400)]
    values = choose_values(Graph(sums, [x]))
    fuser = Fuser(values, backend("cpu").roofline(machine()), lambda n: False)
    fuser.merge()
    fusion = fuser.fusion()
    assert len(fuser.refused) < 400 * 70
    assert {v for g in fusion.groups for v in g.values} == set(sums)
