"""ResNet-18 on one image of 224×224, batch norms in evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import onnx_runner, torch_module
from benchmarks.inference import inference, torch_inference
from benchmarks.workload import ORT, Arrays, Runner, Workload, generator, once_called

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


WORKLOAD = Workload(
    name="resnet18_inference",
    title="ResNet-18 inference B1",
    inputs=inputs,
    reference=once_called(torch_inference(network, "image", dtype="float64")),
    builders={
        **inference(network, "image"),
        ORT: ort_model,
    },
    tolerance=1e-5,
    flops=2.0 * 1.8e9,
)
