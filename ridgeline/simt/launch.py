"""A launch: how many threads run a kernel, and over which arguments, checked before any runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.graph.sizes import SizeExpr
from ridgeline.ops.kernel_launch import ThreadLaunch as ThreadLaunch
from ridgeline.record.numbers import Lifted
from ridgeline.simt.frontend.signature import KernelSignature
from ridgeline.simt.ir import ThreadArray, ThreadProgram, Variable
from ridgeline.simt.types import ArrayType, ElementType, TypeParameter, element_of, short

Triple3 = tuple[int, int, int]
MOST_THREADS = 1024
_MOST_BLOCK = (1024, 1024, 64)
_MOST_GRID = (2**31 - 1, 65535, 65535)
_MOST_SHARED = 232448  # of any GPU so far
_MOST_LOCAL = 512 << 10  # bytes of local memory a thread, on every GPU


class LaunchError(RidgelineError, ValueError, TypeError):
    """A launch that no GPU accepts, or arguments that do not fit the kernel."""

    code = "RL0841"


def thread_launch(grid: Any, block: Any, shared_bytes: int = 0, cluster: Any = 1) -> ThreadLaunch:
    """A launch's numbers, each an int or up to three, checked against what every GPU has."""
    shape = ThreadLaunch(
        _triple(grid, "grid"), _triple(block, "block"), _dynamic(shared_bytes),
        _triple(cluster, "cluster"),
    )  # fmt: skip
    if shape.threads > MOST_THREADS:
        raise LaunchError(
            f"a block has at most {MOST_THREADS} threads, not {shape.threads}",
            help="use more blocks of fewer threads: kernel[simt.cdiv(n, 256), 256]",
        )
    for name, found, most in (
        ("block", shape.block, _MOST_BLOCK),
        ("grid", shape.grid, _MOST_GRID),
    ):
        for axis, (size, limit) in enumerate(zip(found, most)):
            if size > limit:
                raise LaunchError(f"the {name} has {size} along {'xyz'[axis]}, at most {limit}")
    if any(size % part for size, part in zip(shape.grid, shape.cluster)):
        raise LaunchError(f"the grid {shape.grid} is no multiple of the cluster {shape.cluster}")
    if math.prod(shape.cluster) > 16:
        raise LaunchError(f"a cluster has at most 16 blocks, not {math.prod(shape.cluster)}")
    return shape


def _dynamic(shared_bytes: Any) -> int:
    """Bytes of dynamic shared memory, as a launch asks for them."""
    if isinstance(shared_bytes, bool) or not hasattr(shared_bytes, "__index__"):
        raise LaunchError(f"bytes of shared memory are a whole number, not {shared_bytes!r:.40}")
    if not 0 <= int(shared_bytes) <= _MOST_SHARED:
        raise LaunchError(
            f"a block has 0 to {_MOST_SHARED} bytes of shared memory, not {int(shared_bytes)}"
        )
    return int(shared_bytes)


def _triple(value: Any, what: str) -> Triple3:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"the {what} has one to three sizes, not {value!r}")
    for part in parts:
        if isinstance(part, float):
            raise LaunchError(
                f"the {what} has {part} along an axis, and sizes are whole numbers",
                help="simt.cdiv(n, 256) rounds the quotient up",
            )
        if isinstance(part, bool) or not hasattr(part, "__index__"):
            raise LaunchError(f"{part!r:.40} is no size of a {what}")
        if int(part) < 1:
            raise LaunchError(f"the {what} has a size of {part}", help="every axis has 1 or more")
    x, y, z = [*(int(part) for part in parts), 1, 1][:3]
    return x, y, z


@dataclass(frozen=True)
class ArgumentTypes:
    """What the arguments decide: element types by parameter, constants, and named sizes."""

    types: Mapping[str, ElementType]
    constants: Mapping[str, Any]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class GivenArguments:
    """Arguments by parameter: arrays, scalars, constants, and sizes that were named."""

    arrays: Mapping[str, Any]
    scalars: Mapping[str, Any]
    constants: Mapping[str, Any]
    sizes: Mapping[str, int]


def given_arguments(
    name: str, signature: KernelSignature, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> GivenArguments:
    """Arguments matched with parameters. `out` arrays may be left out: the launch makes them."""
    positional = [n for n in signature.names if n not in signature.constants]
    inputs = [n for n in signature.inputs if n not in signature.constants]
    order = positional if len(arguments) == len(positional) else [*inputs, *signature.constants]
    if len(arguments) > len(order):
        raise LaunchError(
            f"{name} takes {len(inputs)} arguments, and {len(arguments)} were given",
            help=f"{name}[grid, block]({', '.join(inputs)})",
        )
    found = dict(zip(order, arguments))
    named_sizes = {
        s for kind in signature.arrays.values() for s in kind.sizes if isinstance(s, str)
    }
    sizes: dict[str, int] = {}
    for key, value in keywords.items():
        if key in found:
            raise LaunchError(f"{name} is given {key} twice")
        if key in signature.names:
            found[key] = value
        elif key in named_sizes and isinstance(value, int):
            sizes[key] = value
        else:
            raise LaunchError(f"{name} has no parameter {key}")
    missing = [n for n in inputs if n not in found]
    if missing:
        raise LaunchError(
            f"{name} needs {missing[0]}", help=f"{name}[grid, block]({', '.join(inputs)})"
        )
    return GivenArguments(
        {n: v for n, v in found.items() if n in signature.arrays},
        {n: v for n, v in found.items() if n in signature.scalars},
        {n: _constant(v) for n, v in found.items() if n in signature.constants},
        sizes,
    )


def _constant(value: Any) -> Any:
    """A constant as Python's own number; of one that jit leaves open, the one of this trace."""
    if isinstance(value, Lifted):
        return value.plain()
    if isinstance(value, SizeExpr):
        return int(value)
    return value.item() if isinstance(value, np.generic) else value


def argument_types(
    name: str,
    signature: KernelSignature,
    given: GivenArguments,
    arrays: Mapping[str, tuple[DType, tuple[int, ...]]],
    scalars: Mapping[str, DType | None],
) -> ArgumentTypes:
    """The types and sizes of a launch, from each array's element type and shape."""
    types: dict[str, ElementType] = {}
    templates: dict[TypeParameter, ElementType] = {}
    sizes = dict(given.sizes)
    for parameter, (dtype, shape) in arrays.items():
        kind = signature.arrays[parameter]
        _check_element(name, parameter, kind.element, dtype, templates)
        _check_shape(name, parameter, kind, shape, sizes)
    for parameter, scalar in signature.scalars.items():
        if isinstance(scalar, TypeParameter) and scalar not in templates:
            found = element_of(scalars.get(parameter))
            templates[scalar] = found or scalar.choices[0]
    for parameter, kind in signature.arrays.items():
        types[parameter] = _resolved(kind.element, templates)
    for parameter, scalar in signature.scalars.items():
        types[parameter] = _resolved(scalar, templates)
    for parameter, kind in signature.arrays.items():
        for size in kind.sizes:
            if isinstance(size, str) and size not in sizes:
                raise LaunchError(
                    f"the size {size} of {parameter} follows from no argument of {name}",
                    help=f"name it: {name}[grid, block](…, {size}=…)",
                )
    return ArgumentTypes(types, given.constants, sizes)


def _resolved(
    kind: ElementType | TypeParameter, templates: Mapping[TypeParameter, ElementType]
) -> ElementType:
    if isinstance(kind, ElementType):
        return kind
    return templates.get(kind, kind.choices[0])


def _check_element(
    name: str, parameter: str, kind: ElementType | TypeParameter, dtype: DType,
    templates: dict[TypeParameter, ElementType],
) -> None:  # fmt: skip
    if isinstance(kind, TypeParameter):
        found = element_of(dtype)
        known = templates.setdefault(kind, found) if found in kind.choices and found else None
        if known is None or known is not found:
            wanted = repr(templates[kind]) if kind in templates else f"one of {kind.choices}"
            raise LaunchError(f"{parameter} of {name} is {short(dtype)}, not {wanted}")
    elif kind.dtype is not dtype:
        raise LaunchError(
            f"{parameter} of {name} holds {kind} and was given {dtype.name}",
            help=f"convert it before the launch: {parameter}.to({kind.dtype.name}) of a tensor, "
            f"{parameter}.astype({kind.dtype.name!r}) of an array",
        )


def _check_shape(
    name: str, parameter: str, kind: ArrayType, shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    if len(shape) != len(kind.sizes):
        raise LaunchError(
            f"{parameter} of {name} has {len(kind.sizes)} axes ({kind!r}), not {len(shape)}"
        )
    for size, length in zip(kind.sizes, shape):
        known = size if isinstance(size, int) else sizes.setdefault(size, length)
        if known != length:
            what = f"{size}" if isinstance(size, int) else f"{size} = {known}"
            raise LaunchError(f"an axis of {parameter} of {name} is {what} long, not {length}")


def array_shape(array: ThreadArray, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """An array's sizes as numbers."""
    return tuple(size if isinstance(size, int) else sizes[size] for size in array.shape)


def scalar_value(name: str, parameter: Variable, value: Any) -> int | float | bool:
    """A scalar argument as a number of its type."""
    number = value.item() if getattr(value, "size", 0) == 1 else value
    if not isinstance(number, (bool, int, float)):
        raise LaunchError(f"{parameter.name} of {name} is a number, not {value!r:.40}")
    kind = parameter.dtype.kind
    if kind in ("int", "uint") and (
        isinstance(number, float) or not dtypes.fits(number, parameter.dtype)
    ):
        raise LaunchError(f"{parameter.name} of {name} is {short(parameter.dtype)}, not {number}")
    return number


def shared_bytes(program: ThreadProgram, launch: ThreadLaunch) -> int:
    """Bytes of shared memory of a block, static and dynamic; raises where no GPU has as much."""
    static = 0
    for array in program.memories:
        if array.shape == ("dynamic",):
            continue
        bytes_ = math.prod(int(size) for size in array.shape) * array.dtype.itemsize
        if array.space == "local" and bytes_ > _MOST_LOCAL:
            raise LaunchError(
                f"{array.name} of {program.name} takes {bytes_} bytes of local memory a thread, "
                f"and there are {_MOST_LOCAL}",
                help="pass it as an array in global memory",
            )
        if array.space == "shared":
            static = -(-static // 16) * 16 + bytes_
    total = static + launch.shared_bytes
    if total > _MOST_SHARED:
        raise LaunchError(
            f"{program.name} takes {total} bytes of shared memory a block, and no GPU has more "
            f"than {_MOST_SHARED}",
            help="use a smaller tile, or fewer buffers",
        )
    return total
