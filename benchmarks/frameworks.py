"""How each framework turns arrays into its own, runs a function to the end, and gives arrays.

A workload that is one function of tensors is written once per framework as `f(*tensors)`; these
helpers make builders from such functions. Frameworks are imported only where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import (
    COMPILED,
    DEFERRED,
    JAX,
    NUMPY,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    once,
)

Function = Callable[..., Any]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def torch_module() -> Any:
    """torch, using every usable core."""
    import torch

    torch.set_num_threads(cores())
    return torch


def _named(result: Any) -> Arrays:
    parts = result if isinstance(result, tuple) else (result,)
    return {f"out{number}": np.asarray(part) for number, part in enumerate(parts)}


def numpy_builder(function: Function) -> Builder:
    """A builder that runs `function(*arrays)`."""

    def build(inputs: Arrays) -> Runner:
        arrays = list(inputs.values())
        return once(lambda: function(*arrays), _named)

    return build


def torch_builder(make: Callable[[Any], Function], compiled: bool = False) -> Builder:
    """A builder for torch; `make(torch)` gives the function of tensors."""

    def build(inputs: Arrays) -> Runner:
        torch = torch_module()
        function = make(torch)
        run = torch.compile(function) if compiled else function
        tensors = [torch.from_numpy(array) for array in inputs.values()]

        def call() -> Any:
            with torch.no_grad():
                return run(*tensors)

        return once(call, lambda result: _named(_numpy_of(result)))

    return build


def jax_builder(make: Callable[[Any], Function]) -> Builder:
    """A builder for jax.jit; `make(jax)` gives the function of arrays."""

    def build(inputs: Arrays) -> Runner:
        import jax

        run = jax.jit(make(jax))
        arrays = [jax.numpy.asarray(array) for array in inputs.values()]
        return once(lambda: jax.block_until_ready(run(*arrays)), _named)

    return build


def ridgeline_builder(make: Callable[[Any], Function], jit: bool) -> Builder:
    """A builder for ridgeline; `make(ridgeline)` gives the function of tensors.

    Without jit the work is deferred, so the call ends with waiting for the result.
    """

    def build(inputs: Arrays) -> Runner:
        import ridgeline as rl

        function = make(rl)
        run = rl.jit(function) if jit else function
        tensors = [rl.tensor(array) for array in inputs.values()]
        ready = ready_function()

        def call() -> Any:
            with rl.no_grad():
                return ready(run(*tensors))

        return once(call, lambda result: _named(_numpy_of(result)))

    return build


def onnx_runner(nodes: list[Any], arrays: Arrays, given: str, result: str) -> Runner:
    """ONNX Runtime on a graph of nodes; all arrays but `given` are constants of the graph."""
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    used = {name for node in nodes for name in node.input}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "model", [value(given, onnx.TensorProto.FLOAT, arrays[given].shape)],
        [value(result, onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in arrays.items() if n in used and n != given],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feed = {given: arrays[given]}
    return once(lambda: session.run(None, feed)[0], lambda out: {"out0": out})


def ready_function() -> Function:
    """Waits until a ridgeline result is computed, without copying it, and gives it back."""
    try:
        from ridgeline.record.values import read_array
    except ModuleNotFoundError:  # an older checkout, which `benchmarks.checkouts` measures beside
        from ridgeline.tensors.execute import read_array

    def ready(result: Any) -> Any:
        for part in result if isinstance(result, tuple) else (result,):
            read_array(part, "benchmark")
        return result

    return ready


def _numpy_of(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(part.detach().numpy() for part in result)
    return result.detach().numpy()


def everywhere(
    torch_like: Callable[[Any], Function],
    jax_make: Callable[[Any], Function] | None,
    numpy_function: Function | None = None,
) -> dict[str, Builder]:
    """All candidates of a workload whose torch form runs unchanged on ridgeline."""
    builders: dict[str, Builder] = {
        OURS: ridgeline_builder(torch_like, jit=True),
        DEFERRED: ridgeline_builder(torch_like, jit=False),
        TORCH: torch_builder(torch_like),
        COMPILED: torch_builder(torch_like, compiled=True),
    }
    if jax_make is not None:
        builders[JAX] = jax_builder(jax_make)
    if numpy_function is not None:
        builders[NUMPY] = numpy_builder(numpy_function)
    return builders
