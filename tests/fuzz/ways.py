"""The ways to run a program: interpreter, torch, eager, deferred, jit; in float64; on a GPU.

A *call* of a program is a choice of inputs and of the Python state it reads. Every way runs the
same calls, on fresh tensors and from the same random state, and gives for each the returned values,
what the arguments and the tensor from outside hold afterwards, the random state, and what was
returned and given once more after all calls.
"""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.graph import interpreter
from ridgeline.graph.node import Node
from ridgeline.runtime.cpu import executor
from ridgeline.tape import native
from ridgeline.tape.tape_recorder import TapeRecorder
from ridgeline.tracing import trace
from tests.fuzz.deviations import interpreted_programs
from tests.fuzz.program import Array, Program, settings

try:
    import torch
except ImportError:
    torch = None

Results = list[Array | None]  # None for what cannot be read any more
Call = tuple[int, int]  # which inputs, which state
# a plan on a GPU is launched at first, then captured, then replayed
CALLS: dict[str, tuple[Call, ...]] = {
    "cpu": ((0, 0), (1, 0), (0, 1)),
    "cuda": ((0, 0), (1, 0), (0, 0), (1, 0), (0, 1)),
    "loops": ((0, 0), (0, 1)),
}


_TIMES = 4  # in which a call is seen, learnt, and matched


class Rejected(Exception):
    """The program cannot be judged on these inputs, for instance because it is not exact."""


def _function(
    program: Program, module: Any, wide: bool = False, place: str = "cpu"
) -> tuple[Callable[..., Any], dict[str, Any]]:
    names = settings(module, wide, place)
    text = program.body()
    lines = text.splitlines(keepends=True)  # jit reads the source of what it traces
    linecache.cache["<program>"] = len(text), None, lines, "<program>"
    exec(compile(text, "<program>", "exec"), names)
    return names["program"], names


def _set_state(names: dict[str, Any], state: int) -> None:
    names["K"] = 2 + state
    names["BOX"].scale = 3 - state
    names["BOX"].shifts[0] = 1 + state
    names["S"].fill_(state)


def _outcome(results: Sequence[Any], arguments: Sequence[Any]) -> Results:
    return [None if t is None else np.array(_numpy(t)) for t in (*results, *arguments)]


def _numpy(tensor: Any) -> Array:
    tensor = tensor.detach().cpu()
    if torch is not None and isinstance(tensor, torch.Tensor):
        if tensor.dtype is torch.bfloat16:
            return tensor.float().numpy().astype("bfloat16")
        return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
    return np.asarray(tensor.numpy())


def _run(
    program: Program,
    calls: Sequence[Call],
    around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda f: f,
    wide: bool = False,
    place: str = "cpu",
    given_away: bool = False,
) -> list[Results]:
    function, names = _function(program, rl, wide, place)
    runner = around(function)
    outside = [names["S"], names["S"][:2]]
    outcomes, held = [], []
    for turn, (inputs, state) in enumerate(calls):
        _set_state(names, state)
        if turn or not program.reads_outside:
            names["S"].tolist()  # in memory; otherwise the new state is part of the call's graph
        rl.manual_seed(program.seed)
        given = [_widened(array, wide) for array in program.values(inputs)]
        arguments = [rl.tensor(array, device=place) for array in given]
        _spoil_scratch()
        returned = runner(*arguments)
        seen: list[Any] = [None] * len(arguments) if given_away else arguments
        outcome = _outcome(returned, [*seen, *outside])
        outcomes.append([*outcome, np.array(rl.get_rng_state(), np.uint64)])
        held.append((returned, seen))
    later = [_outcome(*pair) for pair in held]
    return [[*outcome, *same] for outcome, same in zip(outcomes, later)]


def _spoil_scratch() -> None:
    """Fill what kernels use between them with numbers that are no index and no likely value."""
    ctypes.memset(executor._scratch.address, 0x7F, executor.SCRATCH_BYTES)


def _widened(array: Array, wide: bool) -> Array:
    return array.astype(np.float64) if wide and np.dtype(array.dtype).kind in "fV" else array


def interpreted(program: Program, calls: Sequence[Call], wide: bool = False) -> list[Results]:
    """Op by op in NumPy: the definition."""
    with rl.config.override(tier="interpreter"), rl.eager():
        return _run(program, calls, wide=wide)


def deferred_interpreted(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Recorded and flushed, in NumPy."""
    with rl.config.override(tier="interpreter"):
        return _run(program, calls, place=place)


def eager(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Every op compiled alone."""
    with rl.config.override(tier="compiled"), rl.eager():
        return _run(program, calls, place=place)


def deferred(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Recorded, fused and compiled."""
    with rl.config.override(tier="compiled", tape=False):
        return _run(program, calls, place=place)


def matched(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """The same in a loop, so that calls are learnt by a tape, matched, and deviate from it.

    Machine code matches them, where there is some for this Python.
    """
    native.is_made(TapeRecorder)
    with rl.config.override(tier="compiled", tape=True, native_tape=True):
        return _run(program, _again(calls), place=place)


def matched_interpreted(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """The same where Python matches, and the interpreter runs what is matched."""
    with interpreted_programs(), rl.config.override(tape=True, native_tape=False):
        return _run(program, _again(calls), place=place)


def _again(calls: Sequence[Call]) -> list[Call]:
    """Each call some times in a row, and then all of them in turns, twice."""
    return [call for call in calls for _ in range(_TIMES)] + [*calls] * 2


def came(way: str, calls: int, outcomes: int) -> list[int]:
    """Of each outcome of a way, which of the calls gave it."""
    if way.startswith("matched"):
        return [turn for turn in range(calls) for _ in range(_TIMES)] + [*range(calls)] * 2
    return [*range(outcomes)]


def jitted(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Captured on the first call, replayed on the second, captured again when state changed."""
    with rl.config.override(tier="compiled"):
        return _run(program, calls, _jit(program), place=place)


def _jit(program: Program, donate: bool = False) -> Callable[..., Any]:
    """`rl.jit` with the lengths of stretched axes left open, where there are some."""
    return partial(rl.jit, dynamic=program.dynamic or False, donate=donate)


def donated(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Captured, and the memory of all arguments given away."""
    with rl.config.override(tier="compiled"):
        return _run(program, calls, _jit(program, donate=True), place=place, given_away=True)


def gpu_loops(program: Program, calls: Sequence[Call], place: str) -> list[Results]:
    """Traced by jit and run by the loop interpreter, as a GPU would be given it."""
    from tests.fuzz.gpu_loops import LoopProgram

    before = trace.program_for
    trace.program_for = LoopProgram  # type: ignore[assignment]
    try:
        with rl.config.override(tier="interpreter"):
            return _run(program, calls, _jit(program))
    finally:
        trace.program_for = before


def by_torch(program: Program, calls: Sequence[Call]) -> list[Results]:
    """The same text on torch; a smooth program in float64, rounded to the types that it has.

    There torch says what is meant. Its own roundings are not judged: some of its gradients cancel.
    """
    plain = _by_torch(program, calls)
    if program.flavour == "exact":
        return plain
    wide = _by_torch(program, calls, wide=True)
    return [[_typed(w, p) for w, p in zip(*results)] for results in zip(wide, plain)]


def _by_torch(program: Program, calls: Sequence[Call], wide: bool = False) -> list[Results]:
    function, names = _function(program, torch, wide)
    outside = [names["S"], names["S"][:2]]
    outcomes = []
    for inputs, state in calls:
        _set_state(names, state)
        arguments = [_torch_tensor(_widened(a, wide)) for a in program.values(inputs)]
        outcomes.append(_outcome(function(*arguments), [*arguments, *outside]))
    return outcomes


def _typed(value: Array | None, like: Array | None) -> Array | None:
    return None if value is None or like is None else value.astype(like.dtype)


def _torch_tensor(array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


WAYS: dict[str, Callable[[Program, Sequence[Call], str], list[Results]]] = {
    "deferred": deferred,
    "matched": matched,
    "matched, interpreted": matched_interpreted,
    "jit": jitted,
    "deferred, interpreted": deferred_interpreted,
    "eager": eager,
    "donated": donated,
    "GPU loops": gpu_loops,
}


# ---- what arithmetic does to a program ----------------------------------------------------------

_ROOM = {
    "float64": 2.0**40, "float32": 2.0**20, "float16": 2.0**10, "bfloat16": 2.0**7,
    "float8_e4m3fn": 2.0**4, "float8_e5m2": 2.0**3,
}  # fmt: skip
_GRAIN = {
    "float64": 16, "float32": 16, "float16": 1, "bfloat16": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_SUMS = {"reduce", "contract", "scan", "scatter"}
_Computed = Callable[[Node, Sequence[Array]], tuple[Array, ...]]


@contextmanager
def _around_ops(wrap: Callable[[_Computed], _Computed]) -> Iterator[None]:
    plain = interpreter._computed
    interpreter._computed = wrap(plain)  # type: ignore[assignment]
    try:
        yield
    finally:
        interpreter._computed = plain


def exact_only() -> Any:
    """Inside, the interpreter raises `Rejected` at the first value that might be rounded.

    Values are multiples of a sixteenth (of one, in half precision) and no sum of magnitudes is
    too long for the mantissa: then every order of summation gives the same bits.
    """

    def wrap(plain: _Computed) -> _Computed:
        def checked(node: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
            values = plain(node, operands)
            for value, made in zip(values, node.types):
                if made.dtype.kind in ("float", "complex"):
                    _require_exact(node, value, operands)
            return values

        return checked

    return _around_ops(wrap)


def _require_exact(node: Node, value: Array, operands: Sequence[Array]) -> None:
    if np.iscomplexobj(value):
        value = np.stack([value.real, value.imag])
    room, grain = _ROOM.get(node.dtype.name, 2.0**20), _GRAIN.get(node.dtype.name, 16)
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    largest = float(np.abs(finite).max(initial=0.0))
    if node.op.name in _SUMS:
        largest = max(largest, _sum_bound(node, operands))
    if largest >= room or (finite * grain != np.round(finite * grain)).any():
        raise Rejected(f"{node.op.name} may round")
    if node.op.name == "contract" and any(map(_leaves_out, operands, reversed(operands))):
        raise Rejected("products of zeros between elements, which are NaN, may be left out")


def _leaves_out(operand: Array, other: Array) -> bool:
    """True for whole slices of zeros, as padding between elements makes, beside no numbers."""
    if np.isfinite(other).all():
        return False
    others = [tuple(a for a in range(operand.ndim) if a != axis) for axis in range(operand.ndim)]
    return any((~operand.astype(bool).any(axis=rest)).any() for rest in others)


def _sum_bound(node: Node, operands: Sequence[Array]) -> float:
    sizes = [_magnitude(o) for o in operands if o.dtype.kind not in "iub"]
    if not sizes:
        return 0.0
    tops = [float(s[np.isfinite(s)].max(initial=0.0)) for s in sizes]
    if node.op.name == "contract":
        terms = float(
            np.prod([e for i, e in enumerate(node.attrs.extents) if i not in node.attrs.output])
        )
        return terms * tops[0] * tops[-1]
    if node.op.name == "reduce" and node.attrs.monoid == "prod":
        return 0.0
    return max(float(s.sum(where=np.isfinite(s))) for s in sizes)


def _magnitude(value: Array) -> Array:
    """At least the size of every part of each element."""
    if np.iscomplexobj(value):
        return np.asarray(np.abs(value.real) + np.abs(value.imag), np.float64)
    return np.abs(value.astype(np.float64))


def perturbed(seed: int, scale: float = 1.0) -> Any:
    """Inside, the interpreter rounds every float result anew, up or down: another valid order.

    A larger scale rounds to so many times the spacing of the numbers.
    """
    rng = np.random.default_rng(seed)

    def wrap(plain: _Computed) -> _Computed:
        def noisy(node: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
            if node.op.family in ("movement", "leaf") or node.op.name in ("constant", "select"):
                return plain(node, operands)
            values = plain(node, operands)
            sizes = values
            if node.op.name in _SUMS:  # a sum is off by roundings of its parts, however small it is
                sizes = plain(
                    node, [np.abs(o) if o.dtype.kind not in "iub" else o for o in operands]
                )
            return tuple(
                _jittered(v, size, t.dtype.name, rng, scale) if t.dtype.kind == "float" else v
                for v, size, t in zip(values, sizes, node.types)
            )

        return noisy

    return _around_ops(wrap)


_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _jittered(
    value: Array, size: Array, dtype: str, rng: np.random.Generator, scale: float
) -> Array:
    noise = rng.uniform(-scale, scale, value.shape) * _EPS.get(dtype, 2.0**-23)
    return (value.astype(np.float64) + size.astype(np.float64) * noise).astype(value.dtype)
