"""Checkpointed functions: gradients of a plain call to the bit, and what they keep in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler import program
from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import topological
from ridgeline.ops.contract import PRODUCTS
from ridgeline.record.cells import unfolded
from ridgeline.record.values import read
from ridgeline.utils.checkpoint import checkpoint as with_options, checkpoint_sequential

nn = rl.nn
WAYS = ("deferred", "read", "eager", "jit")
Call = Callable[..., Any]


def plain(function: Call, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def selective(function: Call, *args: Any, **kwargs: Any) -> Any:
    return rl.checkpoint(function, *args, policy="selective", **kwargs)


def block(width: int, p: float = 0.1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(p), nn.Linear(4 * width, width)
    )


def residual(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    for layer in layers:
        x = x + call(layer, x)
    return x


def nested(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    first, second = list(layers)[:2], list(layers)[2:]
    x = call(lambda h: residual(first, h, call), x)
    return call(lambda h: residual(second, h, call), x)


def several(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    """Two arguments, one by its name, in a structure; two results; a value from around it."""
    outside = x.sin()

    def inner(pair: dict[str, rl.Tensor], scale: rl.Tensor) -> tuple[rl.Tensor, list[rl.Tensor]]:
        h = layers[0](pair["h"]) * scale + outside
        return h.tanh(), [h.exp(), pair["h"] * 2]

    one, (two, three) = call(inner, {"h": x, "unused": x[:1]}, scale=outside.mean())
    return one * two.sigmoid() + three


def tokens(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    """Whole numbers and views go in, and weights are turned on the way."""
    places = rl.arange(x.shape[0]) % 5
    table = layers[0][0].weight

    def inner(ids: rl.Tensor, h: rl.Tensor) -> rl.Tensor:
        return nn.functional.embedding(ids, table) * h + h @ table.t()[:, :8]

    return call(inner, places, x[:, :8])


class Cube(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: rl.Tensor) -> rl.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: rl.Tensor) -> rl.Tensor:
        return gradient * 3 * ctx.saved_tensors[0] ** 2


def own_rule(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    return call(lambda h: Cube.apply(layers[0](h).tanh()) + h, x)


def running(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    """Statistics are moved once."""
    return call(lambda h: layers[-1](layers[0](h)), x)


def gradients(program: Call, call: Call, way: str) -> list[np.ndarray]:
    rl.manual_seed(3)
    layers = nn.ModuleList([*(block(8) for _ in range(4)), nn.BatchNorm1d(8)])
    x = rl.randn(16, 8, requires_grad=True)

    def step(x: rl.Tensor) -> rl.Tensor:
        out = program(layers, x, call)
        loss = (out * out).mean() + out.sum()
        if way == "read":
            loss.item()
        loss.backward()
        return loss

    with rl.eager() if way == "eager" else nullcontext():
        loss = rl.jit(step)(x) if way == "jit" else step(x)
        found = [loss, x.grad, *(p.grad for p in layers.parameters()), *layers.buffers()]
        return [np.zeros(()) if g is None else g.detach().numpy().copy() for g in found]


def ordinary(layers: Any, x: rl.Tensor, call: Call) -> rl.Tensor:
    return residual(list(layers)[:4], x, call)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "program", [ordinary, nested, several, tokens, own_rule, running], ids=lambda f: f.__name__
)
def test_gradients_are_those_of_a_plain_call(program: Call, way: str) -> None:
    wanted = gradients(program, plain, way)
    for call in (rl.checkpoint, selective):
        for one, other in zip(gradients(program, call, way), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def test_random_numbers_come_again_exactly() -> None:
    """With dropout, a gradient is zero exactly where the value was."""
    for way in WAYS:
        rl.manual_seed(0)
        x = rl.ones(64, 64, requires_grad=True)

        def step(x: rl.Tensor) -> rl.Tensor:
            out = rl.checkpoint(lambda h: nn.functional.dropout(h * 2, 0.5, True).exp(), x)
            out.sum().backward()
            return out

        with rl.eager() if way == "eager" else nullcontext():
            out = (rl.jit(step)(x) if way == "jit" else step(x)).detach().numpy()
            dropped = out == 1
            assert 0.4 < dropped.mean() < 0.6
            np.testing.assert_array_equal(x.grad.numpy() == 0, dropped)


def planned(call: Call, width: int = 32, rows: int = 256) -> int:
    """Bytes of temporaries alive at once in the program of a jitted step."""
    rl.manual_seed(0)
    layers = nn.ModuleList([block(width) for _ in range(8)])
    before = {id(entry[1]) for entry in program._programs._entries.values()}

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = residual(layers, x, call).square().mean()
        loss.backward()
        return loss

    with rl.config.override(tier="compiled"):
        rl.jit(step)(rl.randn(rows, width)).item()
    made = [entry[1] for entry in program._programs._entries.values() if id(entry[1]) not in before]
    return max(one.layout.peak_live for one in made)


def test_the_planned_peak_is_that_of_one_block() -> None:
    whole, checked = planned(plain), planned(rl.checkpoint)
    assert checked < whole / 3
    inner = 4 * 32 * 256 * 4  # bytes of the wide value of a block
    assert checked < 5 * inner + 9 * inner // 4  # one block's, and what goes into every block


def products(call: Call) -> int:
    """How many products a jitted step computes."""
    rl.manual_seed(0)
    layers = nn.ModuleList([block(32) for _ in range(4)])

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = residual(layers, x, call).square().mean()
        loss.backward()
        return loss

    jitted = rl.jit(step)
    jitted(rl.randn(64, 32))
    (trace,) = jitted._traces
    graph = trace.recording.outputs
    return sum(node.op in PRODUCTS for node in topological(graph))


def test_policies() -> None:
    """Selective: no product is computed again, and more is kept than with full."""
    none, some, full = (
        products(lambda f, x, policy=policy: rl.checkpoint(f, x, policy=policy))
        for policy in ("none", "selective", "full")
    )
    assert none == some == products(plain) < full
    assert planned(rl.checkpoint, rows=192) < planned(selective, rows=192)
    with pytest.raises(rl.RidgelineError, match="no policy 'half'"):
        rl.checkpoint(plain, rl.ones(1), policy="half")  # type: ignore[arg-type]


def held(root: rl.Tensor) -> int:
    """Bytes of the values that the graph of a tensor keeps."""
    nodes = [
        n for n in topological([unfolded(read(root))]) if n.buffer is not None and n.owner is None
    ]
    return sum(nbytes(node) for node in nodes)


@pytest.mark.parametrize("way", ["read", "eager"])
def test_between_the_passes_only_arguments_are_kept(way: str) -> None:
    sizes = []
    for call in (plain, rl.checkpoint):
        rl.manual_seed(0)
        layers = nn.ModuleList([block(32) for _ in range(6)])
        for parameter in layers.parameters():
            parameter.numpy(force=True)
        with rl.eager() if way == "eager" else nullcontext():
            loss = residual(layers, rl.randn(128, 32), call).square().mean()
            loss.item()
            sizes.append(held(loss))
            loss.backward()
    whole, checked = sizes
    assert checked < whole / 3


def test_a_selective_checkpoint_keeps_products_alone() -> None:
    """Of a block in eager mode: two products, and what goes in; no activation and no mask."""
    sizes = []
    for call in (plain, selective, rl.checkpoint):
        rl.manual_seed(0)
        layer = block(32)
        with rl.eager():
            x = rl.randn(128, 32, requires_grad=True)
            out = call(layer, x)
            sizes.append(held(out))
    assert sizes[2] < sizes[1] < sizes[0]


def test_second_derivatives_pass_and_forward_ones() -> None:
    x = rl.tensor([0.3, -1.2], requires_grad=True)

    def inner(h: rl.Tensor) -> rl.Tensor:
        return ((h.sin() * h).exp() @ (h * 2)).tanh() * h

    for call in (plain, rl.checkpoint, selective):
        (first,) = rl.autograd.grad(call(inner, x).sum(), x, create_graph=True)
        (second,) = rl.autograd.grad(first.sum(), x)
        value, tangent = rl.jvp(lambda v, call=call: call(inner, v), (x.detach(),), (rl.ones(2),))
        found = [v.detach().numpy() for v in (first, second, value, tangent)]
        if call is plain:
            wanted = found
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_graph_is_gone_through_twice_if_it_is_retained() -> None:
    x = rl.tensor([0.3, -1.2], requires_grad=True)
    out = rl.checkpoint(lambda h: h.exp() * h, x).sum()
    out.backward(retain_graph=True)
    out.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([0.3, -1.2]) * np.array([1.3, -0.2]),
                               rtol=1e-6)  # fmt: skip
    with pytest.raises(rl.RidgelineError, match="let go"):
        out.backward()


def test_nothing_is_tied_where_no_gradient_is_asked_for() -> None:
    x = rl.rand(3)
    assert not rl.checkpoint(lambda h: h * 2, x).requires_grad
    with rl.no_grad():
        assert not rl.checkpoint(lambda h: h * 2, x.requires_grad_()).requires_grad
    assert rl.checkpoint(lambda n, flag: (n, flag), 3, flag="yes") == (3, "yes")
    assert rl.checkpoint(lambda h: h, x) is x
    with pytest.raises(rl.RidgelineError, match="needs a function"):
        rl.checkpoint(3, x)


def test_torchs_options_and_segments() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(*(torch.nn.Linear(5, 5) if n % 2 == 0 else torch.nn.Tanh()
                                   for n in range(7)))  # fmt: skip
    ours = nn.Sequential(*(nn.Linear(5, 5) if n % 2 == 0 else nn.Tanh() for n in range(7)))
    ours.load_state_dict({k: rl.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    data = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    found = []
    for lib, net, sequential, one in (
        (torch, theirs, torch.utils.checkpoint.checkpoint_sequential,
         torch.utils.checkpoint.checkpoint),
        (rl, ours, checkpoint_sequential, with_options),
    ):  # fmt: skip
        x = lib.tensor(data, requires_grad=True)
        out = sequential(net, 3, x, use_reentrant=False)
        out = out + one(net, x, use_reentrant=False, preserve_rng_state=True)
        out.square().sum().backward()
        found.append([x.grad.numpy(), *(p.grad.numpy() for p in net.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(rl.RidgelineError, match="segments"):
        checkpoint_sequential(ours, 8, rl.tensor(data))
