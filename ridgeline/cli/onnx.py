"""Look at an ONNX model, run it, or time it: `ridgeline onnx check|run|bench MODEL`.

`check` lists inputs, outputs and operators, `run` computes outputs of random inputs and compares
them with ONNX Runtime where that is installed, and `bench` times the jitted model beside it. Axes
without a length are 1, unless `--size NAME=LENGTH` or `--input NAME=SHAPE` says otherwise; integers
are 1, unless `--fill NAME=NUMBER` does. See docs/onnx.md.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.data.optional import MissingPackageError, need
from ridgeline.errors import BadValueError

NAME = "onnx"
HELP = "look at an ONNX model, run it, or time it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ridgeline onnx`."""
    parser.add_argument("what", choices=("check", "run", "bench"))
    parser.add_argument("model", metavar="MODEL", help="a file such as model.onnx")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=LENGTH", help="the length of an axis"
    )
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=SHAPE", help="such as x=1,3,224,224"
    )
    parser.add_argument(
        "--fill", action="append", default=[], metavar="NAME=NUMBER", help="what an input holds"
    )
    parser.add_argument("--threads", default="1,2", help="for bench: numbers of threads (1,2)")
    parser.add_argument("--repeat", type=int, default=15, help="for bench: calls of each (15)")


def run(arguments: argparse.Namespace) -> int:
    """Load the model, then do what is asked."""
    module = rl.onnx.load(arguments.model).eval()
    if arguments.what == "check":
        return _check(arguments.model, module)
    given = Inputs.of(arguments).arrays(module)
    if arguments.what == "run":
        return _run(arguments.model, module, given)
    return _bench(arguments, module, given)


@dataclass(frozen=True)
class Inputs:
    """What the options say of inputs."""

    sizes: dict[str, str]
    shapes: dict[str, str]
    fills: dict[str, str]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Inputs:
        """From the options, each a list of NAME=VALUE."""
        return cls(*(dict(map(_pair, each))
                     for each in (arguments.size, arguments.input, arguments.fill)))  # fmt: skip

    def arrays(self, module: Any) -> dict[str, Any]:
        """An array for each input of a model."""
        draw = np.random.default_rng(0)
        made = {}
        for port in module.model.inputs:
            kind = {"float": "float32", "double": "float64"}.get(port.dtype, port.dtype)
            try:
                dtype = np.dtype(kind)
            except TypeError:
                raise BadValueError(f"inputs of {port.dtype} are not made up") from None
            shape = self._shape(port)
            if port.name in self.fills:
                made[port.name] = np.full(shape, float(self.fills[port.name])).astype(dtype)
            elif dtype.kind == "f":
                made[port.name] = draw.standard_normal(shape).astype(dtype)
            else:
                made[port.name] = np.ones(shape, dtype)
        return made

    def _shape(self, port: Any) -> tuple[int, ...]:
        if port.name in self.shapes:
            return tuple(map(_whole, self.shapes[port.name].split(",")))
        if port.shape is None:
            raise BadValueError(
                f"the shape of {port.name!r} is not known", help=f"--input {port.name}=SHAPE"
            )
        return tuple(
            each if isinstance(each, int) and each >= 0 else _whole(self.sizes.get(str(each), "1"))
            for each in port.shape
        )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise BadValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise BadValueError(f"{text!r} is no length")
    return int(text)


def _check(path: str, module: Any) -> int:
    """Print what is in a file."""
    model = module.model
    count = sum(tensor.numel() for tensor in module.parameters())
    print(f"{path}: opset {model.opset}, {os.path.getsize(path):,} bytes, {count:,} parameters")
    for kind, ports in (("input", model.inputs), ("output", model.outputs)):
        for port in ports:
            shape = "?" if port.shape is None else list(port.shape)
            print(f"  {kind:7} {port.name}: {port.dtype}{shape}")
    used = Counter(step.name for program in model.program.walk() for step in program.steps)
    print(f"  runs    {', '.join(f'{name} {n}' for name, n in sorted(used.items()))}")
    return 0


def _arrays(results: Any) -> list[Any]:
    several = results if isinstance(results, tuple) else (results,)
    return [each.numpy() if isinstance(each, rl.Tensor) else each for each in several]


def _session(path: str, threads: int) -> Any:
    """The model in ONNX Runtime, or None where that is not installed."""
    try:
        runtime = need("onnxruntime", "onnxruntime", "a comparison")
    except MissingPackageError:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _run(path: str, module: Any, given: dict[str, Any]) -> int:
    """Compute the outputs once, and compare."""
    with rl.no_grad():
        found = _arrays(module(**given))
    session = _session(path, 1)
    expected = [None] * len(found) if session is None else session.run(None, given)
    worst = 0.0
    for name, one, other in zip(module.output_names, found, expected):
        line = f"{name}: {getattr(one, 'dtype', type(one).__name__)}{list(np.shape(one))}"
        if other is not None and isinstance(one, np.ndarray) and one.dtype.kind in "fiub":
            apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
            error = float(np.max(apart / (1 + np.abs(other.astype(np.float64))), initial=0.0))
            worst = max(worst, error)
            line += f", within {error:.1e} of ONNX Runtime"
        print(line)
    return 0 if worst <= 1e-3 else 1


def _bench(arguments: argparse.Namespace, module: Any, given: dict[str, Any]) -> int:
    """Time the jitted model, in turns with ONNX Runtime."""
    jitted = rl.jit(module)
    tensors = [rl.tensor(array) for array in given.values()]

    def ours() -> Any:
        with rl.no_grad():
            return _arrays(jitted(*tensors))

    before = rl.get_num_threads()
    try:
        for threads in map(_whole, arguments.threads.split(",")):
            rl.set_num_threads(threads)
            session = _session(arguments.model, threads)
            sides: list[Callable[[], Any]] = [ours]
            if session is not None:
                sides.append(lambda session=session: session.run(None, given))  # type: ignore[misc]
            times = _interleaved(sides, arguments.repeat)
            line = f"{threads} threads: {times[0] * 1e3:.3f} ms"
            if session is not None:
                line += f", ONNX Runtime {times[1] * 1e3:.3f} ms, {times[0] / times[1]:.2f} of it"
            print(line)
    finally:
        rl.set_num_threads(before)
    return 0


def _interleaved(sides: list[Callable[[], Any]], repeat: int) -> list[float]:
    """Medians of calls that take turns, after one of each that is not counted."""
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(repeat + 1):
        for side, held in zip(sides, times):
            start = perf_counter()
            side()
            if turn:
                held.append(perf_counter() - start)
    return [median(held) for held in times]
