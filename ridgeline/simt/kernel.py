"""`@simt.kernel` and `@simt.device`: functions as kernels, specialised by types and constants."""

from __future__ import annotations

import types as python_types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, BadTypeError
from ridgeline.ops.kernel_launch import UserKernel
from ridgeline.simt import language
from ridgeline.simt.dispatch import ConfiguredKernel, user_kernel
from ridgeline.simt.frontend.build import build
from ridgeline.simt.frontend.outside import OutsideRead
from ridgeline.simt.frontend.problems import KernelLanguageError, NotYetDefined
from ridgeline.simt.frontend.signature import REQUIRED, signature_of
from ridgeline.simt.frontend.source import CapturedFunction, capture, defined_by
from ridgeline.simt.ir import ThreadProgram, Variable
from ridgeline.simt.launch import (
    LaunchError,
    argument_types,
    given_arguments,
    scalar_value,
    thread_launch,
)
from ridgeline.simt.model.explanation import LaunchExplanation, explain_launch
from ridgeline.simt.model.registers import RegisterCount
from ridgeline.simt.simulator.findings import Simulation
from ridgeline.simt.simulator.simulate import DEFAULT, SimulationOptions, simulate
from ridgeline.simt.types import ElementType, TypeParameter

_MOST_PROGRAMS = 16  # of one combination of types and constants, for values of outside names


class DeviceFunctionMark:
    """A function that kernels call; its body is written out at each call."""

    is_device_function = True

    def __init__(self, captured: CapturedFunction) -> None:
        self.captured = captured
        self.__name__ = captured.name
        self.__doc__ = captured.function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        raise BadTypeError(
            f"{self.__name__} is a device function and runs inside kernels",
            help=f"{self.__name__}.captured.function is the function itself",
        )


class SimtKernel:
    """A kernel: threads' work in the CUDA model, for a GPU, a CPU or the simulator.

    `kernel[grid, block](*arguments)` launches it. It is compiled for each combination of element
    types, constants and values of outside names it is used with.
    """

    def __init__(self, captured: CapturedFunction) -> None:
        self.captured = captured
        self.signature = signature_of(captured)
        self.__name__ = captured.name
        self.__doc__ = captured.function.__doc__
        self.__module__ = captured.function.__module__
        self.__qualname__ = captured.function.__qualname__
        self.rule: Callable[..., Any] | None = None
        self._programs: dict[Any, list[tuple[list[OutsideRead], ThreadProgram]]] = {}
        self.follow: Callable[[], object] | None = None  # called before names outside are looked at
        if REQUIRED not in self.signature.constants.values():
            with suppress(NotYetDefined):  # a launch asks again
                self.program()  # what is not in the language is refused here, at the definition

    def program(
        self,
        types: Mapping[str, ElementType] | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> ThreadProgram:
        """The thread program for element types (of template parameters) and constants."""
        known = {**self._default_types(), **(types or {})}
        values = {**self.signature.constants, **(constants or {})}
        missing = [name for name, value in values.items() if value is REQUIRED]
        if missing:
            raise ArgumentError(
                f"{self.__name__} needs the constant {missing[0]}",
                help=f"pass it by name: {self.__name__}[grid, block](…, {missing[0]}=…)",
            )
        key = (tuple(known.items()), tuple(_constant_key(*named) for named in values.items()))
        if self.follow is not None:
            self.follow()
        made = self._programs.setdefault(key, [])
        for reads, program in made:
            if all(read.holds() for read in reads):
                return program
        program, used = build(self.captured, self.signature, known, values)
        made.insert(0, (used, program))
        del made[_MOST_PROGRAMS:]
        return program

    def is_current(self, program: ThreadProgram, types: Mapping[str, Any], constants: Any) -> bool:
        """True while a launch with such arguments would run this program."""
        return self.program(types, constants) is program

    def _default_types(self) -> dict[str, ElementType]:
        found: dict[str, ElementType] = {}
        kinds = {n: a.element for n, a in self.signature.arrays.items()}
        for name, kind in {**kinds, **self.signature.scalars}.items():
            found[name] = kind.choices[0] if isinstance(kind, TypeParameter) else kind
        return found

    def __getitem__(self, shape: Any) -> ConfiguredKernel:
        """`kernel[grid, block]`, with bytes of dynamic shared memory as a third number."""
        parts = shape if isinstance(shape, tuple) else (shape,)
        if not 2 <= len(parts) <= 4:
            raise LaunchError(
                f"{self.__name__}[...] takes a grid and a block, not {len(parts)} numbers",
                help=f"{self.__name__}[simt.cdiv(n, 256), 256](…)",
            )
        return ConfiguredKernel(self, thread_launch(*parts))

    def as_launched(self, program: ThreadProgram, device: str) -> UserKernel:
        """A program of this kernel as the graph knows it."""
        return user_kernel(program)

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the kernel its gradient: `rule(*arguments, *gradients)` of its results.

        It gives one gradient (or None) for each array argument, by ordinary functions or kernels.
        """
        self.rule = rule
        return rule

    def simulate(
        self, grid: Any, block: Any, *arguments: Any, shared: int = 0, cluster: Any = 1,
        options: SimulationOptions = DEFAULT, **keywords: Any,
    ) -> Simulation:  # fmt: skip
        """Run a launch in the simulator with all checks: results and findings, none raised."""
        launch = thread_launch(grid, block, shared, cluster)
        program, arrays, scalars, sizes = self.bound(arguments, keywords)
        return simulate(program, launch, arrays, scalars, sizes, options)

    def explain(
        self, grid: Any, block: Any, *arguments: Any, gpu: str = "h100", shared: int = 0,
        cluster: Any = 1, registers: RegisterCount = None, options: SimulationOptions = DEFAULT,
        **keywords: Any,
    ) -> LaunchExplanation:  # fmt: skip
        """What a GPU would do with a launch: findings, counts per line, time and its bound."""
        launch = thread_launch(grid, block, shared, cluster)
        program, arrays, scalars, sizes = self.bound(arguments, keywords)
        return explain_launch(program, launch, arrays, scalars, sizes, gpu, registers, options)

    def bound(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[ThreadProgram, dict[str, Any], dict[str, Any], Mapping[str, int]]:
        """The program for arguments on the host, with arrays, scalars and sizes by name."""
        given = given_arguments(self.__name__, self.signature, arguments, keywords)
        arrays = {name: host_array(name, value) for name, value in given.arrays.items()}
        kinds = {name: (_dtype(value), value.shape) for name, value in arrays.items()}
        scalar_kinds = {name: _scalar_dtype(value) for name, value in given.scalars.items()}
        found = argument_types(self.__name__, self.signature, given, kinds, scalar_kinds)
        program = self.program(found.types, found.constants)
        scalars = {
            parameter.name: scalar_value(self.__name__, parameter, given.scalars[parameter.name])
            for parameter in program.parameters
            if isinstance(parameter, Variable)
        }
        return program, arrays, scalars, found.sizes

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise BadTypeError(
            f"{self.__name__} is a kernel, and a launch says how many threads run it",
            help=f"{self.__name__}[simt.cdiv(n, 256), 256](…)",
        )

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, as functions are

    def __repr__(self) -> str:
        return (
            f"<kernel {self.__name__} of {self.captured.source.path}:{self.captured.source.first}>"
        )


def host_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """An array argument in the host's memory: NumPy's, a tensor, or anything with DLPack."""
    if isinstance(value, np.ndarray):
        return value
    for method in ("numpy", "__array__"):
        if hasattr(value, method):
            return np.asarray(getattr(value, method)())
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise LaunchError(f"{name} is an array, not {value!r:.40}")


def _dtype(array: np.ndarray[Any, Any]) -> DType:
    row = dtypes.from_numpy(array.dtype)
    if row is None:
        raise LaunchError(f"no kernel holds elements of {array.dtype}")
    return row


def _scalar_dtype(value: Any) -> DType | None:
    return dtypes.from_numpy(value.dtype) if hasattr(value, "dtype") else None


def _constant_key(name: str, value: Any) -> tuple[str, type, Any]:
    """A constant as programs are told apart by it: -0.0 is not 0.0, and NaN is NaN."""
    try:
        hash(value)
    except TypeError:
        raise LaunchError(
            f"the constant {name} is {value!r:.40}, and constants do not change",
            help="pass a number, a text or a tuple of them",
        ) from None
    return name, type(value), repr(value) if isinstance(value, float | tuple) else value


def kernel(function: Callable[..., Any] | str) -> SimtKernel:
    """Make a kernel of a function, or of a text that defines one."""
    try:
        return SimtKernel(capture(with_language(function)))
    except KernelLanguageError as error:
        raise error.with_traceback(None) from None  # the error names the place, ours are no use


def device(function: Callable[..., Any] | str) -> DeviceFunctionMark:
    """Make a function that kernels may call."""
    return DeviceFunctionMark(capture(with_language(function)))


def with_language(
    function: Callable[..., Any] | str, outside: Mapping[str, Any] | None = None
) -> Any:
    """A text sees the language's names without importing them, and what is given besides."""
    if not isinstance(function, str):
        return function
    names = language.NAMES
    simt = python_types.SimpleNamespace(**names)
    return defined_by(function, {**(outside or {}), **names, "simt": simt})
