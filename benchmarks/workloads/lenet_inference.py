"""LeNet-5 on one image: mostly the overhead of a framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import onnx_runner, ready_function, torch_module
from benchmarks.workload import (
    COMPILED,
    DEFERRED,
    JAX,
    ORT,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    Workload,
    once,
)
from benchmarks.workloads import lenet_step
from benchmarks.workloads.lenet_step import SHAPES, jax_forward, network


def inputs() -> Arrays:
    """One image and the weights."""
    arrays = lenet_step.inputs()
    return {"images": arrays["images"][:1], **{name: arrays[name] for name in SHAPES}}


def torch_model(compiled: bool = False, dtype: str = "float32") -> Builder:
    """torch, eager or compiled."""

    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        model = network(torch.nn)
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in SHAPES})
        model = model.to(getattr(torch, dtype)).eval()
        run = torch.compile(model) if compiled else model
        x = torch.from_numpy(arrays["images"]).to(getattr(torch, dtype))

        def call() -> Any:
            with torch.inference_mode():
                return run(x)

        return once(call, lambda result: {"out0": result.numpy()})

    return build


def ridgeline_model(jit: bool) -> Builder:
    """ridgeline, with or without the decorator."""

    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        model = network(rl.nn)
        model.load_state_dict({name: rl.tensor(arrays[name]) for name in SHAPES})
        model.eval()
        run = rl.jit(lambda x: model(x)) if jit else model
        x = rl.tensor(arrays["images"])
        ready = ready_function()

        def call() -> Any:
            with rl.no_grad():
                return ready(run(x))

        return once(call, lambda result: {"out0": result.detach().numpy()})

    return build


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


def reference(arrays: Arrays) -> Arrays:
    """The same in float64 by torch."""
    runner = torch_model(dtype="float64")(arrays)
    runner.call()
    return runner.read()


WORKLOAD = Workload(
    name="lenet_inference",
    title="LeNet-5 inference B1",
    inputs=inputs,
    reference=reference,
    builders={
        OURS: ridgeline_model(jit=True),
        DEFERRED: ridgeline_model(jit=False),
        TORCH: torch_model(),
        COMPILED: torch_model(compiled=True),
        JAX: jax_model,
        ORT: ort_model,
    },
    tolerance=1e-5,
)
