"""Convolutional networks on a GPU: what goes to cuDNN and how, and the kernels between the calls.

Without a GPU the step is traced on the CPU and compiled for a stated one; with one, convolutions
and their gradients are compared with torch in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.codegen.cuda import compile_all, generate
from ridgeline.compiler import Layout, Stages, lay_out, lower_graph
from ridgeline.compiler.memory_plan import KernelCall
from ridgeline.compiler.pipeline import compilation, optimize
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.schedule import replay
from ridgeline.models.resnet import Bottleneck
from ridgeline.ops.convolve import CONVOLVE, FILTER, FORWARD, ConvolveAttrs
from ridgeline.ops.movement import PERMUTE
from ridgeline.runtime.cuda import cublaslt, cudnn_api, cudnn_convolution
from ridgeline.runtime.cuda.cudnn_convolution import ConvolutionLaunch
from ridgeline.runtime.cuda.cudnn_plans import EnginePlan
from ridgeline.runtime.cuda.launches import KernelLaunch
from ridgeline.runtime.cuda.product import ProductLaunch
from ridgeline.schedules.gpu.default import steps
from ridgeline.schedules.gpu.machine import H200
from tests.cuda.lowering import SMALL_GPU
from tests.cuda.stated import StatedGpu
from tests.fusion.test_fusion import traced


class WithCudnn(StatedGpu):
    """The backend of a GPU that is not there, with a cuDNN that has every convolution."""

    def convolution_plan(self, attrs: ConvolveAttrs, dtype: str) -> Any:
        return EnginePlan(None, 1 << 20)  # type: ignore[arg-type]


def kernels_of(layout: Layout) -> set[str]:
    """The kernels of our own that are started by themselves."""
    calls = [call for call in layout.calls if isinstance(call, KernelCall)]
    return {call.symbol for call in calls if isinstance(call.launch, KernelLaunch)}


def bottleneck(patch: pytest.MonkeyPatch) -> tuple[Sequence[Node], Sequence[Node]]:
    """A training step of a block that halves its image, under a pooling, in bfloat16."""
    shortcut = nn.Sequential(nn.Conv2d(64, 256, 1, 2, bias=False), nn.BatchNorm2d(256))
    model = nn.Sequential(nn.MaxPool2d(3, 2, 1), Bottleneck(64, 64, 2, shortcut))
    for parameter in model.parameters():
        parameter.detach().numpy()

    def step(x: rl.Tensor) -> Any:
        x = x.detach().requires_grad_()
        with rl.autocast("cpu", dtype=rl.bfloat16):
            y = model(x.bfloat16())
        y.float().square().mean().backward()
        return x.grad

    return traced(step, (rl.zeros(32, 64, 112, 112),), patch)


@pytest.fixture(scope="module")
def step() -> tuple[Stages, Layout]:
    """The step as it is compiled where both libraries are."""
    pytest.importorskip("cuda.bindings.nvrtc")
    with pytest.MonkeyPatch.context() as patch:
        outputs, inputs = bottleneck(patch)
        for module in (cublaslt, cudnn_api):
            patch.setattr(module, "library", object)
        patch.setattr(cudnn_api, "version", lambda: 0)
        patch.setattr(rl.config, "products", "library")  # not those of our own
        target = WithCudnn()
        stages = lower_graph(Graph(outputs, inputs), target=target)
        return stages, lay_out(stages, target)


def test_every_product_goes_to_a_library(step: tuple[Stages, Layout]) -> None:
    _, layout = step
    launches = [call.launch for call in layout.calls if isinstance(call, KernelCall)]
    kinds = Counter(map(type, launches))
    # of four convolutions two are matrix products; all have two gradients
    found = Counter(one.attrs.kind for one in launches if isinstance(one, ConvolutionLaunch))
    assert found == {"forward": 2, "data": 2, "filter": 2}
    assert kinds[ProductLaunch] == 6
    own = kernels_of(layout)
    assert not any(name.startswith("contract") for name in own)


def test_folds_over_a_batch_fill_the_gpu(step: tuple[Stages, Layout]) -> None:
    stages, _ = step
    long = [k for k in stages.kernels if k.group.loops.inner and k.group.name.startswith("sum")]
    sources = [generate(k.kernel) for k in long]
    sizes = [np.prod([int(a.extent) for a in k.group.loops.inner]) for k in long]
    assert sum(size > 4096 for size in sizes) == 7  # four norms forward, two share one backward
    for source, size in zip(sources, sizes):
        blocks = source.launches[0].blocks()
        assert size <= 4096 or blocks >= min(H200.multiprocessors, size // 1000)


def test_every_kernel_compiles(step: tuple[Stages, Layout]) -> None:
    stages, layout = step
    own = kernels_of(layout)
    texts = {k.kernel.name: generate(k.kernel).text for k in stages.kernels if k.kernel.name in own}
    codes = compile_all(list(texts.values()), H200.arch)
    assert all(code.startswith(b"\x7fELF") for code in codes)


def test_a_window_is_folded_by_one_thread_and_read_in_vectors() -> None:
    image = np.random.default_rng(0).integers(-9, 10, (4, 18, 18, 64)).astype(np.float32)

    def pooled(x: rl.Tensor) -> rl.Tensor:
        wide = nn.functional.pad(x, (0, 0, 1, 1, 1, 1), value=-np.inf)
        taps = [wide[:, i : i + 17 : 2, j : j + 17 : 2] for i in range(3) for j in range(3)]
        return rl.stack(taps, -1).max(-1).values

    loops = rl.loops(pooled, rl.tensor(image))
    kernel = replay(loops.lowered.kernel, steps(loops.lowered, SMALL_GPU))
    text = generate(kernel).text
    assert "__shared__" not in text.split('extern "C"')[1]  # no thread waits for another
    assert text.count("if ((") >= 5 and "Pack<float, 4> in" in text  # a vector behind a margin
    result = np.zeros((4, 9, 9, 64), np.float32)
    interpret(kernel, {0: image.reshape(-1), 1: result.reshape(-1)})
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    np.testing.assert_array_equal(result, windows.max((-1, -2)))


def test_a_last_axis_of_one_is_no_vector() -> None:
    image = np.random.default_rng(0).integers(-9, 10, (8, 7, 7, 256)).astype(np.float32)
    loops = rl.loops(lambda x: x.sum(1).reshape(8, 7, 256, 1), rl.tensor(image))
    kernel = replay(loops.lowered.kernel, steps(loops.lowered, SMALL_GPU))
    assert "Pack<float, 4> in" in generate(kernel).text
    result = np.zeros(8 * 7 * 256, np.float32)
    interpret(kernel, {0: image.reshape(-1), 1: result})
    np.testing.assert_array_equal(result.reshape(8, 7, 256), image.sum(1))


class Recorder:
    """A cuDNN that takes everything and writes down what it is told."""

    def __init__(self) -> None:
        self.told: dict[tuple[int, int], list[int]] = {}
        self._last = 0
        self._kinds: dict[int, int] = {}

    def cudnnBackendCreateDescriptor(self, kind: Any, made: Any) -> int:
        self._last += 1
        self._kinds[self._last] = kind.value
        made._obj.value = self._last
        return 0

    def cudnnBackendSetAttribute(
        self, raw: Any, name: Any, kind: Any, count: Any, values: Any
    ) -> int:
        if isinstance(values[0], int):
            self.told[raw.value, name.value] = list(values)
        return 0

    def cudnnBackendFinalize(self, raw: Any) -> int:
        return 0

    def cudnnBackendDestroyDescriptor(self, raw: Any) -> int:
        return 0

    def of(self, attribute: cudnn_api.Attribute) -> list[list[int]]:
        return [values for (_, name), values in self.told.items() if name == attribute]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What a cuDNN that takes everything is told."""
    recorder = Recorder()
    monkeypatch.setattr(cudnn_api, "library", lambda: recorder)
    return recorder


ALONG = ConvolveAttrs(FORWARD, (8, 6, 50), (10, 3, 5), (8, 10, 25), (2,), (2,), (1,), 2)
Attribute = cudnn_api.Attribute


@pytest.mark.parametrize("kind", [FORWARD, FILTER])
def test_what_the_library_is_told(told: Recorder, kind: str) -> None:
    (operation,) = cudnn_convolution._operations(replace(ALONG, kind=kind), "bfloat16")
    assert told.of(Attribute.TENSOR_SIZES) == [[8, 6, 1, 50], [10, 3, 1, 5], [8, 10, 1, 25]]
    assert told.of(Attribute.TENSOR_STRIDES) == [
        [300, 1, 300, 6], [15, 1, 15, 3], [250, 1, 250, 10],
    ]  # fmt: skip
    assert told.of(Attribute.TENSOR_TYPE) == [[9]] * 3
    assert told.of(Attribute.CONVOLUTION_STRIDES) == [[1, 2]]
    assert told.of(Attribute.CONVOLUTION_BEFORE) == [[0, 2]]
    assert told.of(Attribute.CONVOLUTION_AFTER) == [[0, 2]]
    assert operation.kind is cudnn_api.Descriptors[kind.upper()]


def test_what_the_library_is_told_of_a_bias_and_a_relu(told: Recorder) -> None:
    attrs = replace(ALONG, biased=True, rectified=True)
    operations = cudnn_convolution._operations(attrs, "bfloat16")
    pointwise = cudnn_api.Descriptors.OPERATION_POINTWISE
    assert [o.kind for o in operations] == [cudnn_api.Descriptors.FORWARD, pointwise, pointwise]
    found = zip(told.of(Attribute.TENSOR_SIZES), told.of(Attribute.TENSOR_IS_VIRTUAL),
                told.of(Attribute.TENSOR_TYPE))  # fmt: skip
    assert list(found) == [
        ([8, 6, 1, 50], [False], [9]), ([10, 3, 1, 5], [False], [9]),
        ([8, 10, 1, 25], [True], [0]), ([1, 10, 1, 1], [False], [9]),
        ([8, 10, 1, 25], [True], [0]), ([8, 10, 1, 25], [False], [9]),
    ]  # fmt: skip
    assert told.of(Attribute.POINTWISE_MODE) == [[0], [100]]
    assert told.of(Attribute.POINTWISE_NAN) == [[1]]
    numbers = [tensor for (tensor,) in told.of(Attribute.TENSOR_ID)]
    assert len(set(numbers)) == 6
    memory = cudnn_convolution.memory_of(attrs, [20, 21, 22, 23])  # image, filters, bias, result
    held = [numbers[place] for place in (0, 1, 3, 5)]
    assert [memory[number].slot for number in held] == [20, 21, 22, 23]


def test_what_the_library_is_told_of_channels_that_are_second(told: Recorder) -> None:
    cudnn_convolution._operations(replace(ALONG, second=True), "float32")
    assert told.of(Attribute.TENSOR_SIZES) == [[8, 6, 1, 50], [10, 3, 1, 5], [8, 10, 1, 25]]
    assert told.of(Attribute.TENSOR_STRIDES) == [
        [300, 50, 50, 1], [15, 5, 5, 1], [250, 25, 25, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "dtype", "joined"), [(64, "bfloat16", True), (256, "bfloat16", False),
                                      (64, "float32", False)],
)  # fmt: skip
def test_a_relu_goes_with_a_convolution_where_that_pays(
    channels: int, dtype: str, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = (16, channels, 32, 32), (64, channels, 3, 3)
    x, w = (rl.zeros(*shape, dtype=getattr(rl, dtype)) for shape in shapes)

    def block(x: rl.Tensor, w: rl.Tensor) -> rl.Tensor:
        return nn.functional.relu(nn.functional.conv2d(x, w, padding=1))

    graph = Graph(*traced(block, (x, w), monkeypatch))
    monkeypatch.setattr(cudnn_api, "library", object)
    monkeypatch.setattr(cudnn_api, "version", lambda: 0)
    made = optimize(graph, compilation(graph, WithCudnn()))
    (found,) = [n for n in made.order if n.op is CONVOLVE]
    assert found.attrs.rectified == joined


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("points", [1, 3])
@pytest.mark.parametrize("shortened", [False, True])
def test_float32_is_convolved_as_it_lies_unless_it_is_shortened(
    shortened: bool, points: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes = (2, 8, 5, 6), (12, 8 // groups, points, points), (2, 12, 5, 6)
    x, w, ct = (rl.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes)

    def both(lib: Any, *operands: Any) -> Any:
        x, w = (o.detach().requires_grad_() for o in operands[:2])
        y = lib.nn.functional.conv2d(x, w, padding=points // 2, groups=groups)
        y.backward(operands[2])
        return y.detach(), x.grad, w.grad

    graph = Graph(*traced(lambda *o: both(rl, *o), (x, w, ct), monkeypatch))
    monkeypatch.setattr(cudnn_api, "library", object)
    monkeypatch.setattr(cudnn_api, "version", lambda: 0)
    monkeypatch.setattr(cudnn_convolution, "_LEAST", 1)
    monkeypatch.setattr(cudnn_convolution, "_LEAST_EXACT", 1)
    with rl.config.override(allow_tf32_convolutions=shortened):
        made = optimize(graph, compilation(graph, WithCudnn()))
    found = [n.attrs for n in made.order if n.op is CONVOLVE]
    assert {attrs.second for attrs in found} == {not shortened}
    # of filters of one point, only the gradient by these is no product of matrices as they lie
    products = points == 1 and groups == 1 and not shortened
    assert len(found) == (1 if products else 3)
    if not shortened:
        assert not any(n.op is PERMUTE for n in made.order)
    given = dict(zip(made.inputs, (n.numpy() for n in (x, w, ct))))
    truth = both(torch, *(torch.tensor(v, dtype=torch.float64) for v in given.values()))
    for got, wanted in zip(evaluate(made.outputs, given, order=made.order), truth):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5)


SHAPES = [
    ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    ((8, 128, 28, 28), (128, 128, 3, 3), {"padding": 1, "stride": 2}),
    ((8, 256, 56, 56), (512, 256, 1, 1), {"stride": 2}),
    ((8, 64, 56, 56), (128, 64, 1, 1), {}),
    ((8, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((8, 64, 32, 32), (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
    ((8, 64, 64, 64), (128, 16, 3, 3), {"groups": 4, "padding": 1}),
    ((64, 64, 56, 56), (64, 1, 3, 3), {"groups": 64, "padding": 1}),
    ((16, 256, 512), (256, 256, 5), {"padding": 2}),
    ((4, 32, 16, 32, 32), (64, 32, 3, 3, 3), {"padding": 1}),
    ((8, 64, 57, 55), (64, 64, 4, 4), {"padding": 1, "stride": 2}),
]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "shortened"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions_and_their_gradients(shape: Any, kind: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = "float32" if kind == "shortened" else kind
    image, filters, settings = shape
    rng = np.random.default_rng(0)
    name = f"conv{len(image) - 2}d"
    scale = np.prod(filters[1:]) ** -0.5
    values = [rng.standard_normal(image), rng.standard_normal(filters) * scale]
    exact = [torch.tensor(v).to(getattr(torch, dtype)).double().cuda() for v in values]
    for value in exact:
        value.requires_grad_()
    result = getattr(torch.nn.functional, name)(*exact, **settings)
    outer = torch.randn_like(result).to(getattr(torch, dtype)).double()
    result.backward(outer)
    given = [
        rl.tensor(v.detach().cpu().numpy(), device="cuda").to(getattr(rl, dtype))
        for v in (*exact, outer)
    ]

    @rl.jit
    def run(x: rl.Tensor, w: rl.Tensor, ct: rl.Tensor) -> tuple[Any, ...]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = getattr(nn.functional, name)(x, w, **settings)
        y.backward(ct)
        return y, x.grad, w.grad

    limit = {"bfloat16": 4e-3, "float16": 5e-4, "float32": 1e-5, "shortened": 1e-3}[kind]
    with rl.config.override(allow_tf32_convolutions=kind == "shortened"):
        for _ in range(3):  # step by step, captured, and replayed
            found = run(*given)
    for got, wanted in zip(found, (result.detach(), *(v.grad for v in exact))):
        difference = got.detach().double().cpu().numpy() - wanted.cpu().numpy()
        assert np.linalg.norm(difference) <= limit * float(wanted.norm())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], SHAPES[4], SHAPES[8]], ids=str)
def test_convolutions_with_a_relu(shape: Any, bias: bool, dtype: str) -> None:
    """Their results, and that a NaN goes on to every point that sees it."""
    torch = pytest.importorskip("torch")
    image, filters, settings = shape
    rng = np.random.default_rng(1)
    name = f"conv{len(image) - 2}d"
    scale = np.prod(filters[1:]) ** -0.5
    values = [rng.standard_normal(image), rng.standard_normal(filters) * scale]
    values += [rng.standard_normal(filters[0])] * bias
    values = [torch.tensor(v).to(getattr(torch, dtype)).double().cuda() for v in values]
    wanted = torch.relu(getattr(torch.nn.functional, name)(*values, **settings))
    given = [rl.tensor(v.cpu().numpy(), device="cuda").to(getattr(rl, dtype)) for v in values]

    @rl.jit
    def run(*operands: rl.Tensor) -> rl.Tensor:
        return nn.functional.relu(getattr(nn.functional, name)(*operands, **settings))

    limit = {"bfloat16": 4e-3, "float16": 5e-4, "float32": 1e-5}[dtype]
    with rl.config.override(allow_tf32_convolutions=False):
        for _ in range(3):
            found = run(*given).double().cpu().numpy()
    assert found.min() == 0
    assert np.linalg.norm(found - wanted.cpu().numpy()) <= limit * float(wanted.norm())
    values[0].view(-1)[0] = float("nan")
    broken = torch.relu(getattr(torch.nn.functional, name)(*values, **settings))
    given[0] = rl.tensor(values[0].cpu().numpy(), device="cuda").to(getattr(rl, dtype))
    lost = np.isnan(run(*given).double().cpu().numpy())
    np.testing.assert_array_equal(lost, torch.isnan(broken).cpu().numpy())
