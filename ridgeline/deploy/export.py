"""Export: a jitted function, at one signature, as a program file or an object to link."""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ridgeline.deploy.assemble import Assembly
from ridgeline.deploy.contents import Contents, ExportError, contents
from ridgeline.deploy.dynamic import Sizes
from ridgeline.deploy.file import VERSION, with_manifest
from ridgeline.deploy.header import header
from ridgeline.deploy.instruction_sets import DEFAULT, InstructionSetTarget, instruction_sets
from ridgeline.deploy.link import check_symbols
from ridgeline.deploy.relocatable import relocatable
from ridgeline.deploy.runtime_ir import FUNCTIONS, PREFIX
from ridgeline.deploy.shared_object import shared_object
from ridgeline.errors import BadValueError, RidgelineError, path_of
from ridgeline.files import write_atomic
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.node import TensorType
from ridgeline.record.cells import PLAIN, filled_leaf
from ridgeline.record.modes import called, no_grad
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tensors.pytree import flatten, tree_map, unflatten
from ridgeline.tensors.tensor import Tensor, holding
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.dynamic import Pattern, pattern
from ridgeline.tracing.recording import Recording, record
from ridgeline.tracing.side_effects import Given
from ridgeline.tracing.signatures import signature_of

if TYPE_CHECKING:
    from ridgeline.tracing.jit import JitFunction

# What code may call of libraries: all of it is there since before glibc 2.28.
_LIBC = (
    "clock_gettime", "free", "memcpy", "memmove", "memset", "posix_memalign", "pthread_attr_init",
    "pthread_attr_setdetachstate", "pthread_create", "sched_yield", "syscall",
)  # fmt: skip
_LIBM = (
    "ceil", "cos", "exp", "exp2", "floor", "fma", "fmod", "ldexp", "log", "log10", "log2",
    "nearbyint", "pow", "rint", "round", "roundeven", "sin", "tan", "trunc",
)  # fmt: skip
ALLOWED = frozenset((*_LIBC, *_LIBM, *(f"{name}f" for name in _LIBM)))


def export(
    jitted: JitFunction,
    path: str | os.PathLike[str],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    chosen: Sequence[str] = (),
    prefix: str = PREFIX,
) -> Path:
    """Write the program of a call with these arguments to a file; nothing is run.

    A name that ends in `.o` is an object to link, whose functions have the prefix; its header is
    written beside it.
    """
    where = path_of(path, "export")
    if not prefix.isidentifier() or not prefix.isascii():
        raise BadValueError(f"names in C cannot begin with {prefix!r}")
    recording, leaves = recorded(jitted, args, kwargs)
    made = contents(recording, leaves, jitted.function)
    sets = instruction_sets(chosen or DEFAULT)
    assembly = Assembly(made)
    symbols = () if recording.pattern is None else recording.pattern.sizes
    sizes = Sizes(tuple(sorted(symbols, key=lambda symbol: symbol.name)))
    single = _single(jitted, recording, leaves, made)
    for each in sets:
        if recording.pattern is None:
            assembly.add_static(recording, each)
        else:
            assembly.add_dynamic(recording, sizes, each, single)
    if single is not None:
        sizes = Sizes(tuple(replace(symbol, lo=1) for symbol in sizes.symbols))
    described = manifest(made, sets, sizes)
    image = assembly.finish(described, sizes.symbols)
    check_symbols(image, ALLOWED)
    for name in FUNCTIONS:
        image.symbols[f"{prefix}_{name}"] = image.symbols[f"{PREFIX}_{name}"]
    exported = [f"{prefix}_{name}" for name in FUNCTIONS]
    if where.suffix == ".o":
        write_atomic(where, relocatable(image, exported))
        write_atomic(where.with_suffix(".h"), header(described, prefix).encode())
    else:
        write_atomic(where, with_manifest(shared_object(image, exported), described))
    return where


def recorded(
    jitted: JitFunction, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Recording, list[Any]]:
    """A call with these arguments, recorded, and the leaves of its arguments."""
    given: list[Any] = []
    structure = flatten((tuple(args), kwargs), given)
    leaves = _apart(given)
    args, kwargs = unflatten(structure, leaves)
    recording, conditions = _record(jitted, args, kwargs, leaves, structure)
    if recording.tracked is not None:  # no gradient flows back into a file
        with no_grad():
            recording, conditions = _record(jitted, args, kwargs, leaves, structure)
    _refuse_open(recording, conditions)
    return _without_leftovers(recording), leaves


def _single(
    jitted: JitFunction, recording: Recording, leaves: Sequence[Any], made: Contents
) -> tuple[Recording, Contents] | None:
    """The same call at length 1, which broadcasting treats in a way of its own.

    Only of programs with one size and without state, whose numbers may be part of them.
    """
    if recording.pattern is None or len(recording.pattern.sizes) != 1 or made.changes_state:
        return None
    short = list(leaves)
    for place, kind in recording.pattern.types.items():
        shape = [length if isinstance(length, int) else 1 for length in kind.shape]
        short[place] = zeros_like(leaves[place], shape)
    args, kwargs = unflatten(recording.signature.structure, short)
    try:
        with no_grad():
            alone, conditions = _with_own_results(jitted.function, args, kwargs)
        _refuse_open(alone, conditions)
        alone = _without_leftovers(alone)
        return alone, contents(alone, short, jitted.function)
    except RidgelineError:  # a function that takes no such length
        return None


def zeros_like(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of a tensor's type, in a shape."""
    kind = TensorType(tuple(shape), tensor.dtype)
    buffer = HostBuffer.borrow(np.zeros(tuple(shape), tensor.dtype.numpy))
    return holding(filled_leaf(kind, buffer), PLAIN)


def _record(
    jitted: JitFunction, args: Any, kwargs: Any, leaves: Sequence[Any], structure: Hashable
) -> tuple[Recording, Conditions]:
    """The call, with unknowns for the axes that the function was jitted to be dynamic in."""
    signature = signature_of(structure, leaves)
    shape = pattern(signature, jitted.dynamic_axes(signature, leaves, args, kwargs))
    return _with_own_results(jitted.function, args, kwargs, shape)


def _with_own_results(
    function: Any, args: Any, kwargs: Any, shape: Pattern | None = None
) -> tuple[Recording, Conditions]:
    """The call; where it returns views of what was there before, with copies of them instead."""
    found = record(function, args, kwargs, pattern=shape)
    given = [spec for spec in found[0].returns if isinstance(spec, Given)]
    if all(spec.argument is not None for spec in given):
        return found

    @wraps(function if hasattr(function, "__name__") else type(function))
    def copying(*args: Any, **kwargs: Any) -> Any:
        return tree_map(_copied, called(function)(*args, **kwargs))

    return record(copying, args, kwargs, pattern=shape and _undecided(shape))


def _undecided(shape: Pattern) -> Pattern:
    """A pattern of which nothing has been decided yet."""
    return replace(shape, facts=SizeFacts(shape.facts.values))


def _copied(value: Any) -> Any:
    """A result in memory of its own."""
    return value.clone() if isinstance(value, Tensor) else value


def _without_leftovers(recording: Recording) -> Recording:
    """Without tensors that were held when the call had ended, by what is no more."""
    if not recording.leaks:
        return recording
    gc.collect()
    writes = recording.effects.writes
    held = [w for w in writes if isinstance(w.source, ref)]
    if any(w.source() is not None for w in held):  # type: ignore[operator]
        raise ExportError(
            f"{recording.name} makes tensors that stay behind, in its first call",
            help="call it once before it is exported",
        )
    kept = min(w.output for w in held)
    effects = replace(recording.effects, writes=[w for w in writes if w not in held])
    return replace(recording, outputs=recording.outputs[:kept], effects=effects, leaks=False)


def _apart(leaves: Sequence[Any]) -> list[Any]:
    """Arguments of which none is a view, or shares memory with another."""
    seen: set[int] = set()
    made = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            if leaf._steps or id(leaf._cell) in seen:
                leaf = leaf.detach().clone()
            seen.add(id(leaf._cell))
        made.append(leaf)
    return made


def _refuse_open(recording: Recording, conditions: Conditions) -> None:
    reason = conditions.open or conditions.fleeting
    if reason:
        raise ExportError(
            f"{recording.name} has to run Python in every call: {reason}",
            help="a program file has no Python: take that out of the function",
        )


def manifest(made: Contents, sets: Sequence[InstructionSetTarget], sizes: Sizes) -> dict[str, Any]:
    """What a file says of itself."""
    return {
        "format": VERSION,
        "name": made.name,
        "inputs": [_row(t.name, t.type, sizes) for t in made.inputs],
        "outputs": [_row(t.name, t.type, sizes) for t in made.outputs],
        "state": [_row(t.name, t.type, sizes) for t in made.state],
        "sizes": [{"name": s.name, "low": s.lo, "high": s.hi} for s in sizes.symbols],
        "arguments": made.arguments,
        "results": made.results,
        "instruction_sets": [each.name for each in sets],
    }


def _row(name: str, kind: TensorType, sizes: Sizes) -> dict[str, Any]:
    return {"name": name, "dtype": kind.dtype.name, "shape": sizes.shape(kind.shape)}
