"""ResNet-18 on one image of 224×224, batch norms in evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import onnx_runner, ready_function, torch_module
from benchmarks.workload import (
    COMPILED,
    DEFERRED,
    ORT,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    Workload,
    generator,
    once,
)

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def network(nn: Any) -> Any:
    """The model in torch's or ridgeline's modules."""

    def unit(before: int, after: int, size: int, stride: int) -> Any:
        conv = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after))

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = unit(before, after, 3, stride), unit(after, after, 3, 1)
            changes = stride != 1 or before != after
            self.shortcut = unit(before, after, 1, stride) if changes else nn.Identity()

        def forward(self, x: Any) -> Any:
            inner = self.second(nn.functional.relu(self.first(x)))
            return nn.functional.relu(inner + self.shortcut(x))

    layers, width = [unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for channels, stride in STAGES:
        layers += [Block(width, channels, stride), Block(channels, channels, 1)]
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def inputs() -> Arrays:
    """One image, and weights and statistics that keep the signal alive."""
    source = generator()
    arrays: Arrays = {"image": source.standard_normal((1, 3, 224, 224), np.float32)}
    torch = torch_module()
    for name, value in network(torch.nn).state_dict().items():
        shape = tuple(value.shape)
        if name.endswith("num_batches_tracked"):
            arrays[name] = np.zeros(shape, np.int64)
        elif len(shape) > 1:
            spread = np.sqrt(2 / np.prod(shape[1:]))
            arrays[name] = (source.standard_normal(shape) * spread).astype(np.float32)
        elif name.endswith(("running_var", "weight")):
            arrays[name] = source.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            arrays[name] = (source.standard_normal(shape) * 0.1).astype(np.float32)
    return arrays


def _weights(arrays: Arrays) -> Arrays:
    return {name: value for name, value in arrays.items() if name != "image"}


def torch_model(compiled: bool = False, dtype: str = "float32") -> Builder:
    """torch, eager or compiled."""

    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        model = network(torch.nn)
        model.load_state_dict({n: torch.from_numpy(v) for n, v in _weights(arrays).items()})
        model = model.to(getattr(torch, dtype)).eval()
        run = torch.compile(model) if compiled else model
        image = torch.from_numpy(arrays["image"]).to(getattr(torch, dtype))

        def call() -> Any:
            with torch.inference_mode():
                return run(image)

        return once(call, lambda result: {"out0": result.numpy()})

    return build


def ridgeline_model(jit: bool) -> Builder:
    """ridgeline, with or without the decorator."""

    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        model = network(rl.nn)
        model.load_state_dict({n: rl.tensor(v) for n, v in _weights(arrays).items()})
        model.eval()
        run = rl.jit(lambda x: model(x)) if jit else model
        image = rl.tensor(arrays["image"])
        ready = ready_function()

        def call() -> Any:
            with rl.no_grad():
                return ready(run(image))

        return once(call, lambda result: {"out0": result.detach().numpy()})

    return build


class OnnxGraph:
    """ONNX nodes of the network, written layer by layer."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def add(self, kind: str, *inputs: str, **settings: Any) -> str:
        """One more node, and the name of its result."""
        from onnx import helper

        made = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made], **settings))
        return made

    def unit(self, x: str, name: str, size: int, stride: int) -> str:
        """A convolution and its batch norm."""
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        y = self.add("Conv", x, f"{name}.0.weight", **window)
        parts = ("weight", "bias", "running_mean", "running_var")
        return self.add("BatchNormalization", y, *(f"{name}.1.{part}" for part in parts))

    def block(self, x: str, name: str, stride: int) -> str:
        """Two units and the way around them."""
        inner = self.add("Relu", self.unit(x, f"{name}.first", 3, stride))
        inner = self.unit(inner, f"{name}.second", 3, 1)
        around = x if stride == 1 else self.unit(x, f"{name}.shortcut", 1, stride)
        return self.add("Relu", self.add("Add", inner, around))


def ort_model(arrays: Arrays) -> Runner:
    """ONNX Runtime on the same network."""
    graph = OnnxGraph()
    x = graph.add("Relu", graph.unit("image", "0", 7, 2))
    x = graph.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    number = 3
    for _, stride in STAGES:
        x = graph.block(graph.block(x, str(number), stride), str(number + 1), 1)
        number += 2
    x = graph.add("Flatten", graph.add("GlobalAveragePool", x))
    last = f"{number + 2}"
    x = graph.add("Gemm", x, f"{last}.weight", f"{last}.bias", transB=1)
    return onnx_runner(graph.nodes, arrays, "image", x)


def reference(arrays: Arrays) -> Arrays:
    """The same in float64 by torch."""
    runner = torch_model(dtype="float64")(arrays)
    runner.call()
    return runner.read()


WORKLOAD = Workload(
    name="resnet18_inference",
    title="ResNet-18 inference B1",
    inputs=inputs,
    reference=reference,
    builders={
        OURS: ridgeline_model(jit=True),
        DEFERRED: ridgeline_model(jit=False),
        TORCH: torch_model(),
        COMPILED: torch_model(compiled=True),
        ORT: ort_model,
    },
    tolerance=1e-5,
    flops=2.0 * 1.8e9,
)
