"""LeNet-5 on one image: mostly the overhead of a framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import onnx_runner
from benchmarks.inference import inference, torch_inference
from benchmarks.workload import JAX, ORT, Arrays, Runner, Workload, once, once_called
from benchmarks.workloads import lenet_step
from benchmarks.workloads.lenet_step import SHAPES, jax_forward, network


def inputs() -> Arrays:
    """One image and the weights."""
    arrays = lenet_step.inputs()
    return {"images": arrays["images"][:1], **{name: arrays[name] for name in SHAPES}}


def jax_model(arrays: Arrays) -> Runner:
    """JAX's jit with the weights as arguments."""
    import jax

    run = jax.jit(jax_forward(jax))
    weights = {name: jax.numpy.asarray(arrays[name]) for name in SHAPES}
    x = jax.numpy.asarray(arrays["images"])
    return once(
        lambda: jax.block_until_ready(run(weights, x)), lambda result: {"out0": np.asarray(result)}
    )


def ort_model(arrays: Arrays) -> Runner:
    """ONNX Runtime on the same graph, written node by node."""
    from onnx import helper

    nodes, last = [], "images"
    layers = [("Conv", "0"), ("Relu", "1"), ("AveragePool", "2"), ("Conv", "3"), ("Relu", "4"),
              ("AveragePool", "5"), ("Flatten", "6"), ("Gemm", "7"), ("Relu", "8"), ("Gemm", "9"),
              ("Relu", "10"), ("Gemm", "11")]  # fmt: skip
    settings: dict[str, dict[str, Any]] = {
        "AveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]}, "Gemm": {"transB": 1},
    }  # fmt: skip
    for kind, name in layers:
        weights = [f"{name}.weight", f"{name}.bias"] if kind in ("Conv", "Gemm") else []
        out = f"y{name}"
        nodes.append(helper.make_node(kind, [last, *weights], [out], **settings.get(kind, {})))
        last = out
    return onnx_runner(nodes, arrays, "images", last)


WORKLOAD = Workload(
    name="lenet_inference",
    title="LeNet-5 inference B1",
    inputs=inputs,
    reference=once_called(torch_inference(network, "images", dtype="float64")),
    builders={
        **inference(network, "images"),
        JAX: jax_model,
        ORT: ort_model,
    },
    tolerance=1e-5,
)
