"""A network at inference in torch and in ridgeline: one definition, weights from the arrays.

Among a workload's arrays one is the network's input; the others are its state, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.frameworks import ready_function, torch_module
from benchmarks.workload import COMPILED, DEFERRED, OURS, TORCH, Arrays, Builder, Runner, once

Network = Callable[[Any], Any]  # makes the model from a framework's `nn`


def inference(network: Network, given: str) -> dict[str, Builder]:
    """The candidates of a network whose input is the array `given`."""
    return {
        OURS: _ridgeline(network, given, jit=True),
        DEFERRED: _ridgeline(network, given, jit=False),
        TORCH: torch_inference(network, given),
        COMPILED: torch_inference(network, given, compiled=True),
    }


def torch_inference(
    network: Network, given: str, compiled: bool = False, dtype: str = "float32"
) -> Builder:
    """torch, eager or compiled."""

    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        model = network(torch.nn)
        model.load_state_dict({n: torch.from_numpy(v) for n, v in _state(arrays, given).items()})
        model = model.to(getattr(torch, dtype)).eval()
        run = torch.compile(model) if compiled else model
        x = torch.from_numpy(arrays[given]).to(getattr(torch, dtype))

        def call() -> Any:
            with torch.inference_mode():
                return run(x)

        return once(call, lambda result: {"out0": result.numpy()})

    return build


def _ridgeline(network: Network, given: str, jit: bool) -> Builder:
    """ridgeline, with or without the decorator."""

    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        model = network(rl.nn)
        model.load_state_dict({n: rl.tensor(v) for n, v in _state(arrays, given).items()})
        model.eval()
        run = rl.jit(lambda x: model(x)) if jit else model
        x = rl.tensor(arrays[given])
        ready = ready_function()

        def call() -> Any:
            with rl.no_grad():
                return ready(run(x))

        return once(call, lambda result: {"out0": result.detach().numpy()})

    return build


def _state(arrays: Arrays, given: str) -> Arrays:
    return {name: value for name, value in arrays.items() if name != given}
