"""`kernel[grid, block](*arguments)`: a launch over tensors, as one node of the graph.

Tensors on a GPU are launched there, those of the host run as its machine code; what that does not
know (barriers of the whole grid, tensor cores, loops that wait for other threads) the simulator
runs. A launch is recorded like any function: deferred, eager and under jit, with scalars as
run-time arguments. `out` arrays are made and returned, `inout` ones are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.autograd.function import Function
from ridgeline.devices import CPU
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here
from ridgeline.graph.placement import placed
from ridgeline.graph.sizes import SizeExpr
from ridgeline.interop.dlpack import from_dlpack
from ridgeline.ops.elementwise import cast
from ridgeline.ops.kernel_launch import (
    CudaKernel,
    LaunchAttrs,
    LaunchResult,
    ThreadLaunch,
    UserKernel,
    launch,
)
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Lifted, lift
from ridgeline.scalars import Array
from ridgeline.simt.cuda.text import cuda_kernel, size_names
from ridgeline.simt.host.expressions import NotForHost
from ridgeline.simt.host.run import host_kernel
from ridgeline.simt.ir import ThreadProgram, Variable
from ridgeline.simt.launch import (
    GivenArguments,
    LaunchError,
    argument_types,
    given_arguments,
    scalar_value,
    shared_bytes,
)
from ridgeline.simt.program_key import program_key
from ridgeline.simt.simulator.findings import KernelFault
from ridgeline.simt.simulator.simulate import SimulationOptions, simulate
from ridgeline.tensors.dispatch import Operands, finish
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.simt.kernel import SimtKernel

_UNCHECKED = SimulationOptions(races=False)


class ConfiguredKernel:
    """A kernel with its grid: calling it launches."""

    def __init__(self, kernel: SimtKernel, shape: ThreadLaunch) -> None:
        self.kernel, self.shape = kernel, shape

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__} over {self.shape.grid} blocks of {self.shape.block}>"

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Launch over arguments in the order of the signature, `out` ones left out or given."""
        kernel = self.kernel
        given = given_arguments(kernel.__name__, kernel.signature, arguments, keywords)
        arrays = {name: as_tensor(kernel.__name__, name, v) for name, v in given.arrays.items()}
        _one_device(kernel.__name__, arrays)
        _written_once(kernel, given.arrays, arrays)
        wanted = [t for t in arrays.values() if t.requires_grad] if modes.gradients else []
        if not wanted:
            return self._launched(given, arrays)
        if kernel.rule is None:
            raise GradientError(
                f"{kernel.__name__} has no gradient rule, and an argument requires gradients",
                help=f"give it one with @{kernel.__name__}.backward, or detach the argument",
            )
        return self._differentiable(given, arrays)

    def _launched(self, given: GivenArguments, arrays: Mapping[str, Tensor]) -> Any:
        kernel = self.kernel
        kinds = {n: (t.dtype, tuple(map(int, t.shape))) for n, t in arrays.items()}
        scalar_kinds = {n: getattr(v, "dtype", None) for n, v in given.scalars.items()}
        found = argument_types(kernel.__name__, kernel.signature, given, kinds, scalar_kinds)
        program = kernel.program(found.types, found.constants)
        shared_bytes(program, self.shape)
        if modes.capture is not None:
            same = partial(kernel.is_current, program, found.types, found.constants)
            modes.capture.require(same, f"what {kernel.__name__} reads outside of itself")
        device = next((str(t.device) for t in arrays.values()), CPU)
        written = [p for p in program.arrays if p.access != "in"]
        if not written and device == CPU and modes.capture is None:
            self._run_at_once(program, given, arrays)
            return None
        made = self._recorded(program, found.sizes, given.scalars, arrays, device)
        fresh = []
        for parameter, result in zip(written, made):
            if parameter.name in arrays:
                arrays[parameter.name].copy_(result)
            if parameter.access == "out":
                fresh.append(arrays.get(parameter.name, result))
        return fresh[0] if len(fresh) == 1 else tuple(fresh) if fresh else None

    def _run_at_once(
        self, program: ThreadProgram, given: GivenArguments, arrays: Mapping[str, Tensor]
    ) -> None:
        """A launch that writes no array: what it prints and asserts is all that comes of it."""
        name = self.kernel.__name__
        held = [
            np.array(scalar_value(name, p, given.scalars[p.name]), p.dtype.numpy)
            if isinstance(p, Variable)
            else np.ascontiguousarray(arrays[p.name].detach().numpy())
            for p in program.parameters
        ]
        _host(program, program_key(program))(self.shape, held)

    def _recorded(
        self,
        program: ThreadProgram,
        sizes: Mapping[str, int],
        scalars: Mapping[str, Any],
        arrays: Mapping[str, Tensor],
        device: str,
    ) -> list[Tensor]:
        operands, values, results = Operands(), list[Node](), list[LaunchResult]()
        for place, parameter in enumerate(program.parameters):
            if isinstance(parameter, Variable):
                values.append(self._scalar(parameter, scalars[parameter.name], operands, device))
                continue
            if parameter.access != "out":
                values.append(operands.take(arrays[parameter.name]))
            if parameter.access != "in":
                source = len(values) - 1 if parameter.access == "inout" else None
                shape = tuple(sizes[s] if isinstance(s, str) else s for s in parameter.shape)
                results.append(LaunchResult(place, source, shape, parameter.dtype))
        extents = tuple(sizes[name] for name in size_names(program))
        attrs = LaunchAttrs(
            self.kernel.as_launched(program, device), self.shape, tuple(results), extents, device
        )
        made: list[Tensor] = finish(launch(values, attrs), 0, here(), values, operands.shared)
        return made

    def _scalar(self, parameter: Variable, value: Any, operands: Operands, device: str) -> Node:
        """A number as a run-time argument; a tensor with one element as it is."""
        if isinstance(value, Tensor):
            if value.shape:
                raise LaunchError(f"{parameter.name} is a number, not a tensor of {value.shape}")
            found = cast(operands.take(value), parameter.dtype)
        elif isinstance(value, Lifted) and parameter.dtype.kind == "float":
            found = lift(value, parameter.dtype)
        else:
            plain = int(value) if isinstance(value, SizeExpr) else value
            found = lift(scalar_value(self.kernel.__name__, parameter, plain), parameter.dtype)
        return placed(found, device)

    def _differentiable(self, given: GivenArguments, arrays: Mapping[str, Tensor]) -> Any:
        """The launch tied to its arguments by the kernel's rule, through `autograd.Function`."""
        call, names = self, list(arrays)
        if any(call.kernel.signature.arrays[n].access == "inout" for n in names):
            raise GradientError(
                f"{call.kernel.__name__} writes an argument in place, which has no gradient",
                help="make the array an `out` parameter",
            )
        rule: Callable[..., Any] | None = call.kernel.rule

        class Launched(Function):
            @staticmethod
            def forward(ctx: Any, *tensors: Tensor) -> Any:
                ctx.arguments = tensors
                return call._launched(given, dict(zip(names, tensors)))

            @staticmethod
            def backward(ctx: Any, *gradients: Tensor) -> Any:
                scalars = [given.scalars[n] for n in given.scalars]
                assert rule is not None
                found = rule(*ctx.arguments, *scalars, *gradients)
                return found if isinstance(found, tuple) else (found,)

        return Launched.apply(*arrays.values())


def as_tensor(kernel: str, name: str, value: Any) -> Tensor:
    """An array argument: a tensor, or memory of NumPy's or DLPack's, which is not copied."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        try:
            return from_dlpack(value)
        except (BufferError, TypeError) as error:
            raise LaunchError(
                f"{name} of {kernel} cannot be read: {error}", help="pass a copy of the array"
            ) from None
    raise LaunchError(
        f"{name} of {kernel} is an array, not {value!r:.40}", help="pass a tensor or an array"
    )


def _one_device(kernel: str, arrays: Mapping[str, Tensor]) -> None:
    places = {str(t.device): name for name, t in arrays.items()}
    if len(places) > 1:
        (first, one), (second, other) = list(places.items())[:2]
        raise LaunchError(
            f"{one} of {kernel} lies on {first} and {other} on {second}",
            help=f"move one: {other}.to({first!r})",
        )


def _written_once(
    kernel: SimtKernel, given: Mapping[str, Any], arrays: Mapping[str, Tensor]
) -> None:
    """Refuse memory that is written as two arguments: one's results would replace the other's."""
    written = [name for name in arrays if kernel.signature.arrays[name].access != "in"]
    for one, other in combinations(written, 2):
        first, second = arrays[one], arrays[other]
        same = first._cell is second._cell and first._steps == second._steps
        outside = [given[name] for name in (one, other) if isinstance(given[name], np.ndarray)]
        if same or (len(outside) == 2 and np.shares_memory(*outside)):
            raise LaunchError(
                f"{one} and {other} of {kernel.__name__} are the same memory, and both are written",
                help=f"pass a copy as {other}, or write it by one parameter",
            )


_known: dict[int, tuple[ThreadProgram, UserKernel]] = {}


def user_kernel(program: ThreadProgram) -> UserKernel:
    """A program as the graph knows it."""
    found = _known.get(id(program))
    if found is None:
        key = program_key(program)
        made = UserKernel(program.name, key, _host(program, key), _cuda(program))
        found = _known[id(program)] = program, made
    return found[1]


def _host(program: ThreadProgram, key: str) -> Callable[[ThreadLaunch, Sequence[Array]], None]:
    def run(shape: ThreadLaunch, arrays: Sequence[Array]) -> None:
        try:
            code = host_kernel(program, key, shape)
        except NotForHost:
            _simulated(program, shape, arrays)
        else:
            code.run(shape, arrays)

    return run


def _simulated(program: ThreadProgram, shape: ThreadLaunch, arrays: Sequence[Array]) -> None:
    """A launch in the simulator; what it finds wrong besides races is an error."""
    named = dict(zip((p.name for p in program.parameters), arrays))
    scalars = {
        p.name: named.pop(p.name).item() for p in program.parameters if isinstance(p, Variable)
    }
    sizes = {
        size: named[array.name].shape[axis]
        for array in program.arrays
        for axis, size in enumerate(array.shape)
        if isinstance(size, str)
    }
    found = simulate(program, shape, named, scalars, sizes, _UNCHECKED)
    if found.errors:
        raise KernelFault(program.name, found.errors, program.source)
    for array in program.arrays:
        if array.access != "in":
            named[array.name][...] = found.outputs[array.name]


def _cuda(program: ThreadProgram) -> Callable[[ThreadLaunch], CudaKernel]:
    return lambda shape: cuda_kernel(program, shape)
