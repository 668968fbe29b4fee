"""torch.fx here: the same nodes as torch's, programs that can be changed, and gradients."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")
pytest.importorskip("torch.fx")

LIBRARIES = (torch, rl)


def twice_and_more(value: Any) -> Any:
    return value * 2 + (1 if value.shape[0] > 2 else 0)


rl.fx.wrap("twice_and_more")
torch.fx.wrap("twice_and_more")


def network(lib: Any) -> Any:
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
            self.scale = nn.Parameter(lib.ones(4) * 0.5)
            self.register_buffer("shift", lib.arange(4.0))

        def forward(self, x: Any, mask: Any = None, *, power: int = 2) -> Any:
            h = self.layers(x) * self.scale + self.shift
            first, second = h.chunk(2, dim=-1)
            joined = lib.cat([first, second.tanh()], dim=-1)
            out = functional.gelu(joined.view(x.size(0), -1)) ** power
            return {"out": twice_and_more(out)[:, 1:], "mean": -out.mean(dim=(0, 1)), "n": 3}

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = Block(), nn.Linear(3, 2, bias=False)

        def forward(self, x: Any) -> Any:
            found = self.block(x)
            return self.head(found["out"]) + found["mean"], found["n"]

    made = Outer()
    with lib.no_grad():
        for place, parameter in enumerate(made.parameters()):
            values = np.sin(np.arange(parameter.numel(), dtype=np.float32) + place)
            parameter.copy_(lib.tensor(values.reshape(tuple(parameter.shape))))
    return made


DATA = np.cos(np.arange(12, dtype=np.float32)).reshape(3, 4)


def test_nodes_are_those_of_torch() -> None:
    graphs = [lib.fx.symbolic_trace(network(lib)).graph for lib in LIBRARIES]
    for graph in graphs:
        graph.lint()
    kinds = [[(n.op, getattr(n.target, "__name__", n.target)) for n in g.nodes] for g in graphs]
    assert kinds[1] == kinds[0]
    assert [len(n.users) for n in graphs[1].nodes] == [len(n.users) for n in graphs[0].nodes]


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_a_traced_module_computes_what_the_module_does(way: str) -> None:
    plain = network(rl)
    traced = rl.fx.symbolic_trace(plain)
    assert dict(traced.named_parameters()).keys() == dict(plain.named_parameters()).keys()
    results = []
    for net in (plain, traced):
        x = rl.tensor(DATA, requires_grad=True)
        if way == "eager":
            with rl.eager():
                out, three = net(x)
        else:
            out, three = (rl.jit(net) if way == "jit" and net is traced else net)(x)
        assert three == 3
        plain.zero_grad()
        out.square().sum().backward()
        results.append([out.detach().numpy(), x.grad.numpy(),
                        *(p.grad.numpy().copy() for p in plain.parameters())])  # fmt: skip
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def changed(lib: Any) -> Any:
    """Additions become products, and a node comes in before the output."""
    traced = lib.fx.symbolic_trace(lambda x, y: lib.sin(x) + y.relu() + 1)
    for node in traced.graph.nodes:
        if node.target is operator.add:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(lib.mul, node.args)
                node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
        if node.op == "output":
            with traced.graph.inserting_before(node):
                node.args = (traced.graph.call_method("neg", (node.args[0],)),)
    with traced.graph.inserting_before():
        pass
    traced.graph.lint()
    traced.recompile()
    return traced


def test_a_program_is_changed_and_run_again() -> None:
    values = [
        changed(lib)(lib.tensor(DATA), lib.tensor(DATA[::-1].copy())).numpy() for lib in LIBRARIES
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)
    assert "def forward(self, x, y)" in changed(rl).code


def test_interpreters_and_transformers() -> None:
    def seen(lib: Any) -> Any:
        names = []

        class Watching(lib.fx.Interpreter):
            def run_node(self, n: Any) -> Any:
                names.append(n.op)
                return super().run_node(n)

        class Swapped(lib.fx.Transformer):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                return super().call_function(lib.cos if target is lib.sin else target, args, kwargs)

        traced = lib.fx.symbolic_trace(lambda x: lib.sin(x) * 2)
        result = Watching(traced).run(lib.tensor(DATA))
        return names, result.numpy(), Swapped(traced).transform()(lib.tensor(DATA)).numpy()

    ours, theirs = seen(rl), seen(torch)
    assert ours[0] == theirs[0]
    for one, other in zip(ours[1:], theirs[1:]):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_tracers_of_ones_own_and_what_cannot_be_traced() -> None:
    class Through(rl.fx.Tracer):
        def is_leaf_module(self, m: rl.nn.Module, module_qualified_name: str) -> bool:
            return not isinstance(m, rl.nn.ReLU) and super().is_leaf_module(m, "")

    graph = Through().trace(rl.nn.Sequential(rl.nn.Linear(2, 2), rl.nn.ReLU()))
    assert [n.op for n in graph.nodes] == ["placeholder", "call_module", "call_function", "output"]
    with pytest.raises(rl.fx.TraceError, match="neither true nor false"):
        rl.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    dead = rl.fx.symbolic_trace(lambda x: (x + 1, x * 2)[0])
    assert dead.graph.eliminate_dead_code()
    with pytest.raises(rl.RidgelineError, match="is read by"):
        dead.graph.erase_node(next(iter(dead.graph.nodes)))
    assert rl.nn.Linear(2, 2)(rl.ones(1, 2)).shape == (1, 2)  # calls are as they were


class Sums(rl.nn.Module):
    """Two places where a sum is halved, one of them read in between."""

    def forward(self, x: Any, y: Any) -> Any:
        first = (x + y) / 2
        second = (first + x) / 2
        total = x + first
        return second * (total / 2) + total.relu()


def test_patterns_are_replaced() -> None:
    """As in torch: every closed match, chains of them too, and nothing that is read elsewhere."""

    class Theirs(torch.nn.Module):
        forward = Sums.forward

    x, y = np.array([1.0, -2.0]), np.array([0.5, 4.0])

    def ours_of(lib: Any, module: Any) -> tuple[int, list[str], np.ndarray]:
        traced = lib.fx.symbolic_trace(module)
        made = lib.fx.replace_pattern(
            traced, lambda a, b: (a + b) / 2, lambda a, b: lib.add(a, b).mul(0.25)
        )
        traced.graph.lint()
        calls = [str(node.op) for node in traced.graph.nodes]
        return len(made), sorted(calls), traced(lib.tensor(x), lib.tensor(y)).numpy()

    ours, theirs = ours_of(rl, Sums()), ours_of(torch, Theirs())
    assert ours[:2] == theirs[:2] and ours[0] == 2
    np.testing.assert_allclose(ours[2], theirs[2])


def test_patterns_with_literals_modules_and_several_uses() -> None:
    traced = rl.fx.symbolic_trace(lambda x: (x + 1).relu() + (x + 2).relu())
    assert len(rl.fx.replace_pattern(traced, lambda x: (x + 2).relu(), lambda x: x * 3)) == 1
    assert traced(rl.tensor([-5.0, 1.0])).tolist() == [-15.0, 5.0]
    same = rl.fx.symbolic_trace(lambda x, y: x * x + x * y)
    assert len(rl.fx.replace_pattern(same, lambda a: a * a, lambda a: a**2)) == 1
    assert same(rl.tensor(3.0), rl.tensor(2.0)).item() == 15.0
    with pytest.raises(rl.RidgelineError, match="takes 1 arguments and its replacement 2"):
        rl.fx.replace_pattern(
            rl.fx.symbolic_trace(lambda x: x.relu()), lambda x: x.relu(), lambda x, y: x + y
        )


def test_stand_ins_record_where_no_program_is_traced() -> None:
    """Nodes of a graph as arguments of functions and layers: the calls go into that graph."""

    def made(lib: Any) -> tuple[list[Any], list[Any]]:
        graph = lib.fx.Graph()
        tracer = lib.fx.proxy.GraphAppendingTracer(graph)
        x, y = (lib.fx.Proxy(graph.placeholder(name), tracer) for name in ("x", "y"))
        joined = lib.cat([lib.sin(x), y.relu()])
        layer = lib.fx.symbolic_trace(lib.nn.LeakyReLU())
        scaled = lib.nn.functional.softmax(layer(joined), dim=-1) * lib.linalg.norm(x)
        graph.output(scaled.node)
        program = lib.fx.GraphModule({}, graph)
        values = program(lib.tensor(DATA), lib.tensor(DATA[::-1].copy()))
        return [n.op for n in graph.nodes], values.tolist()

    ours, theirs = made(rl), made(torch)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    assert sorted(ours[0]) == sorted(theirs[0])


@pytest.mark.parametrize("name", ["ReLU", "Softmax", "MSELoss", "TripletMarginLoss", "MaxPool2d"])
def test_layers_take_arguments_of_torchs_names(name: str) -> None:
    """Tracers, trainers and people read the signature of `forward`."""
    ours, theirs = (list(inspect.signature(getattr(lib.nn, name).forward).parameters)
                    for lib in (rl, torch))  # fmt: skip
    assert ours == theirs
