"""The framework under a program: torch, or ridgeline in torch's place.

`load` runs a program's file with the names below set to one framework. Loading it again for
another gives a module of its own, so both can run side by side in one process.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Step = Callable[[int], Any]

# What programs import; set by `load` before their files run.
torch: Any = None
nn: Any = None
F: Any = None
device = "cpu"


def compiled(function: Callable[..., Any], dynamic: Any = False) -> Callable[..., Any]:
    """The author's function as it is, or under jit; `dynamic` names arguments whose axes vary."""
    return torch.jit(function, dynamic=dynamic) if _jit else function


_jit = False


def checkpoint(function: Callable[..., Any], *arguments: Any) -> Any:
    """A plain call in all frameworks: what is recomputed is not chosen by hand here yet."""
    return function(*arguments)


@dataclass(frozen=True, slots=True)
class Framework:
    """What a program is to run on."""

    name: str  # "torch" or "ridgeline"
    jit: bool = False
    device: str = "cpu"

    def module(self) -> Any:
        """The framework itself."""
        return importlib.import_module(self.name)


def load(program: str, on: Framework) -> Any:
    """A program's module over a framework."""
    global torch, nn, F, device, _jit
    torch, device, _jit = on.module(), on.device, on.jit
    nn, F = torch.nn, importlib.import_module(f"{on.name}.nn.functional")
    if on.name == "ridgeline" and find_spec("einops") is not None:
        importlib.import_module("ridgeline.interop.einops")  # teaches it our tensors
    name = f"benchmarks.programs.{program}_on_{on.name}{'_jit' if on.jit else ''}"
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{program}.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def start(program: str, on: Framework, small: bool) -> Step:
    """The step of a program in one of its two sizes; of a second one in a file, `FILE:NAME`."""
    file, _, second = program.partition(":")
    module = load(file, on)
    make = getattr(module, f"make_{second}" if second else "make")
    step: Step = make(module.SMALL if small else module.DEFAULT)
    return step


def source(*seed: int) -> np.random.Generator:
    """NumPy's generator for what must be alike in all frameworks: weights and batches."""
    return np.random.default_rng(seed)


def tensor(array: NDArray[Any] | Sequence[float]) -> Any:
    """Data as a tensor: numbers of the framework's default type, whole numbers as int64."""
    given = np.asarray(array)
    whole = given.dtype.kind in "iu"
    kind = torch.int64 if whole else torch.bool if given.dtype.kind == "b" else None
    return torch.tensor(given, dtype=kind or torch.get_default_dtype(), device=device)


def initialise(model: Any, spread: float | None = None) -> Any:
    """Give a model on the program's device the same weights in every framework.

    Matrices and filters are drawn by their fan-in, or with the author's `spread`; biases are drawn
    too. What authors set themselves (scales of norms, constants) stays as it is.
    """
    numbers = source(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            bias = "bias" in name.rpartition(".")[2]
            if bias:
                drawn = numbers.uniform(-0.05, 0.05, shape)
            elif len(shape) >= 2:
                wide = 1 / np.sqrt(np.prod(shape[1:])) if spread is None else spread * np.sqrt(3)
                drawn = numbers.uniform(-wide, wide, shape)
            else:
                continue
            parameter.copy_(torch.tensor(drawn, dtype=parameter.dtype))
    return model.to(device)
