"""On a GPU: ops against torch, graphs and models against the interpreter, memory, streams, graphs.

Everything runs compiled. Without a GPU all of it is skipped; what can be tested then is in the
other files of this folder.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.compiler import compile_graph
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.placement import placed
from ridgeline.runtime.buffer import space
from tests.compiler.programs import catalogue, evaluate

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with rl.config.override(tier="compiled"):
        yield


@pytest.mark.parametrize("start", range(16))
def test_torchs_ops(start: int) -> None:
    from tests.functions.test_conformance import differences

    wrong = differences(start, 16, "cuda")
    assert not wrong, "\n".join(wrong)


def moved(graph: Any) -> Any:
    """A graph of the catalogue with its inputs on the GPU."""
    from ridgeline.graph.node import TensorType, leaf

    outputs, inputs = graph
    there = {n: leaf(TensorType(n.shape, n.dtype, "cuda:0")) for n in inputs}
    made = [placed(n, "cuda:0") for n in substitute(outputs, there)]
    return made, list(there.values())


CATALOGUE = catalogue()


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name: str) -> None:
    outputs, inputs = CATALOGUE[name]
    values = {n: _values(n) for n in inputs}
    expected = evaluate(outputs, values)
    made, there = moved((outputs, inputs))
    program = compile_graph(Graph(made, there))
    memory = [space("cuda:0").take_in(values[n]) for n in inputs]
    for _ in range(3):  # launches, then a captured graph, then the graph again
        results = program.run(memory)
    for node, result, wanted in zip(outputs, results, expected):
        got = result.array(node.dtype, node.shape)
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=2e-4, atol=2e-4
        )


def _values(node: Any) -> Any:
    shape = tuple(node.shape)
    if node.dtype.kind == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if node.dtype.is_integer:
        return RNG.integers(0, 2, shape).astype(node.dtype.numpy)
    return RNG.uniform(-2, 2, shape).astype(node.dtype.numpy)


def lenet(place: str) -> tuple[Any, Any]:
    rl.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 3), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(576, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10),
    ).to(place)  # fmt: skip
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_lenet_trains_as_in_the_interpreter() -> None:
    batches = [
        (RNG.normal(size=(16, 1, 32, 32)).astype(np.float32), RNG.integers(0, 10, 16))
        for _ in range(4)
    ]
    losses: dict[str, list[float]] = {}
    weights: dict[str, Any] = {}
    for place, tier in (("cpu", "interpreter"), ("cuda", "compiled")):
        with rl.config.override(tier=tier):
            model, step = lenet(place)
            losses[place] = [
                step(rl.tensor(x, device=place), rl.tensor(y, device=place)).item()
                for _ in range(3)
                for x, y in batches
            ]
            weights[place] = {k: v.cpu().numpy() for k, v in model.state_dict().items()}
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=1e-4)
    for name, value in weights["cpu"].items():
        np.testing.assert_allclose(weights["cuda"][name], value, rtol=1e-3, atol=1e-4)


def test_a_jitted_step_is_one_graph_launch() -> None:
    _, step = lenet("cuda")
    x = rl.tensor(RNG.normal(size=(16, 1, 32, 32)).astype(np.float32), device="cuda")
    y = rl.tensor(RNG.integers(0, 10, 16), device="cuda")
    for _ in range(100):
        step(x, y)
    (graphs,) = step.program.executable.plan.graphs.values()
    before = graphs.captured + graphs.updated
    for _ in range(100):
        step(x, y)
    assert graphs.captured + graphs.updated == before  # addresses come again, so graphs do too


def test_nothing_leaks() -> None:
    _, step = lenet("cuda")
    x = rl.tensor(RNG.normal(size=(16, 1, 32, 32)).astype(np.float32), device="cuda")
    y = rl.tensor(RNG.integers(0, 10, 16), device="cuda")
    for _ in range(20):
        step(x, y).item()
    gc.collect()
    before = rl.cuda.memory_allocated()
    for _ in range(500):
        step(x, y).item()
    gc.collect()
    assert rl.cuda.memory_allocated() <= before


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64, rl.float16, rl.bfloat16])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_in_every_orientation(dtype: Any, left: bool, right: bool) -> None:
    a, b = RNG.normal(size=(96, 130)), RNG.normal(size=(130, 72))
    x = rl.tensor(a.T.copy() if left else a, dtype=dtype, device="cuda")
    y = rl.tensor(b.T.copy() if right else b, dtype=dtype, device="cuda")
    got = ((x.T if left else x) @ (y.T if right else y)).double().cpu().numpy()
    limit = {"float64": 1e-13, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}[dtype.name]
    exact = x.double().cpu().numpy(), y.double().cpu().numpy()
    wanted = (exact[0].T if left else exact[0]) @ (exact[1].T if right else exact[1])
    assert np.linalg.norm(got - wanted) <= limit * np.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16, rl.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("sizes", [(128, 64, 96), (1, 512, 200), (37, 83, 51), (300, 96, 7)])
def test_products_with_a_bias(dtype: Any, sizes: tuple[int, int, int]) -> None:
    """Rounded once, like the sum in float64 to within the sum's own error."""
    m, k, n = sizes
    x, w = (RNG.standard_normal(s).astype(dtype.numpy) for s in ((m, k), (n, k)))
    layer = rl.jit(lambda x, w, b: nn.functional.linear(x, w, b))
    there = [rl.tensor(a).to("cuda") for a in (x, w)]
    for _ in range(3):  # captured at the second call; the bias lies elsewhere each time
        b = RNG.standard_normal(n).astype(dtype.numpy)
        got = layer(*there, rl.tensor(b).to("cuda")).float().cpu().numpy()
        exact = x.astype(np.float64) @ w.astype(np.float64).T + b.astype(np.float64)
        half = 2.0 ** -(ml_dtypes.finfo(dtype.numpy).nmant + 1)  # of the last digit, at most
        bound = half * np.abs(exact) + 1e-6 * k
        assert np.max(np.abs(got - exact) / bound) <= 1


def test_jacobians_and_gradient_checks_where_the_arguments_are() -> None:
    def function(x: rl.Tensor) -> rl.Tensor:
        return rl.cumsum(x, 0) * x

    x = RNG.normal(size=(3, 4))
    for transform in (rl.jacrev, rl.jacfwd, lambda f: rl.hessian(lambda x: f(x).sin().sum())):
        got = transform(function)(rl.tensor(x, device="cuda"))
        wanted = transform(function)(rl.tensor(x))
        assert got.is_cuda
        np.testing.assert_allclose(got.cpu().numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)
    given = rl.tensor(x, device="cuda", requires_grad=True)
    assert rl.autograd.gradcheck(function, (given,))


def test_an_index_out_of_range_names_the_line() -> None:
    table = rl.tensor(RNG.normal(size=(10, 4)).astype(np.float32), device="cuda")
    picked = nn.functional.embedding(rl.tensor([1, 99], device="cuda"), table)
    with pytest.raises(rl.RidgelineError, match="index 99 is outside axis 0 of size 10") as caught:
        picked.cpu().numpy()
    assert "test_gpu.py" in str(caught.value)


def test_work_on_two_streams() -> None:
    x = rl.ones(1 << 20, device="cuda")
    other = rl.cuda.Stream()
    with rl.cuda.stream(other):
        y = x * 3
    rl.cuda.current_stream().wait_stream(other)
    assert (x + y).sum().item() == 4 * (1 << 20)


def test_copies_overlap_kernels_of_another_stream() -> None:
    """Copies there and back are done while the kernels that were enqueued before still run."""
    a = rl.ones(4096, 4096, device="cuda") / 4096
    values = RNG.normal(size=1 << 20)
    side = rl.cuda.Stream()

    def back_and_forth() -> Any:
        with rl.cuda.stream(side):
            return (rl.tensor(values, device="cuda") * 2).cpu().numpy()

    def long() -> rl.Tensor:
        x = a
        for _ in range(100):
            x = x @ a
        return x

    back_and_forth(), long().sum().item()  # what is compiled and taken from the driver is there
    x = long()  # begins when work goes to another stream
    np.testing.assert_array_equal(back_and_forth(), values * 2)
    assert not rl.cuda.current_stream().query()
    np.testing.assert_allclose(x[0, 0].item(), 1 / 4096, rtol=1e-3)


def test_a_step_on_another_stream_than_its_state() -> None:
    state = rl.ones(64, device="cuda")
    state.sum().item()

    @rl.jit
    def step() -> None:
        state.mul_(2)

    other = rl.cuda.Stream()
    for _ in range(3):
        step()
        other.wait_stream(rl.cuda.current_stream())
        with rl.cuda.stream(other):
            step()
        rl.cuda.current_stream().wait_stream(other)
    assert state.tolist() == [64.0] * 64


@pytest.mark.parametrize("donate", [False, True])
def test_one_value_is_the_new_one_of_two_tensors(donate: bool) -> None:
    state, second = rl.zeros(3, device="cuda"), rl.zeros(3, device="cuda")

    @partial(rl.jit, donate=donate)
    def step(x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        state.fill_(2)
        second.fill_(2)
        return state.flip(0), x * 2

    for _ in range(4):  # launched, captured, replayed
        state.zero_()
        second.zero_()
        flipped, doubled = step(rl.ones(3, device="cuda"))
        for found in (state, second, flipped, doubled):
            assert found.tolist() == [2.0, 2.0, 2.0]


def test_autocast_and_scaler_train() -> None:
    layer = nn.Linear(64, 64).to("cuda")
    optimizer = optim.AdamW(layer.parameters(), lr=1e-2)
    scaler = rl.amp.GradScaler()
    x = rl.tensor(RNG.normal(size=(32, 64)).astype(np.float32), device="cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with rl.autocast("cuda", dtype=rl.float16):
            loss = nn.functional.mse_loss(layer(x), x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0] and layer.weight.dtype is rl.float32


def test_a_kernel_scheduled_by_hand() -> None:
    rng = np.random.default_rng(3)
    shapes = ((64, 32), (32, 128), (128,))
    x, w, b = (rl.tensor(rng.standard_normal(s), dtype=rl.float32, device="cuda") for s in shapes)
    k = rl.loops(lambda x, w, b: rl.relu(x @ w + b), x, w, b)
    k = k.split("n", 32).bind("m", "grid").bind("n.0", "grid").bind("n.1", "thread")
    expected = np.maximum(x.cpu().numpy() @ w.cpu().numpy() + b.cpu().numpy(), 0)
    np.testing.assert_allclose(k(x, w, b).cpu().numpy(), expected, rtol=1e-5, atol=1e-4)


def test_subscripts_from_the_host() -> None:
    array = RNG.normal(size=(6, 5)).astype(np.float32)
    x = rl.tensor(array, device="cuda")
    place = rl.tensor([4, 0])
    for index in ([1, 3], (slice(None), [2, 2]), np.array([5]), place, (place, place)):
        np.testing.assert_array_equal(x[index].cpu().numpy(), rl.tensor(array)[index].numpy())
    x[[0, 1]] = [[1.0] * 5] * 2
    x[place, 1] = rl.tensor([7.0, 8.0], device="cuda")
    assert x[0].tolist() == [1, 8, 1, 1, 1] and x[4, 1].item() == 7
