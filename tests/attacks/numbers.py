"""Attack: Python's numbers inside jit, which may stand for those of calls to come.

A whole number among the arguments that changes, the length of an axis and a float are open while a
function is traced; what Python computes with them must be what it computes with the numbers.
Expressions over them are drawn, with operators, comparisons, branches, keys and functions in C.
"""

from __future__ import annotations

import linecache
import math
import operator
import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

import ridgeline as rl
from tests.attacks.attack import Attack
from tests.fuzz.faults import Fault

_CALLS = 9
_LEAVES = (
    "k",
    "k",
    "n",
    "n",
    "f",
    "2",
    "3",
    "0.5",
    "1.5",
    "True",
    "np.float64(0.25)",
    "np.int64(3)",
)
_BINARY = ("+", "-", "*", "/", "//", "%", "**")
_WHOLE = ("&", "|", "^", "<<", ">>")
_COMPARED = ("<", "<=", "==", "!=", ">", ">=")
_FUNCTIONS = (
    "abs({})", "-({})", "+({})", "int({})", "float({})", "bool({})", "round({})", "round({}, 1)",
    "math.floor({})", "math.ceil({})", "math.sqrt(abs({}))", "math.cos({})",
    "math.isqrt(abs(int({})))",
    "len(str({}))", "float(f'{{{}:.3f}}')", "float(repr(float({})))", "np.asarray({}).item()",
    "(lambda v: v * 0.5)({})", "sum([{}, 0.5])", "len({{{}, 2, 3}})", "hash({}) % 97",
    "operator.mul({}, 0.25)", "float(Fraction(1, 3) * int({}))", "isinstance({}, int)",
    "isinstance({}, float)", "({}).__class__ is int", "np.sqrt(abs({}))",
    "{{2: 5, 3.0: 7}}.get({}, 9)",
    "Counter([{}, 2])[2]", "np.array([{}, 0.5]).sum()", "(np.ones(2) * ({})).sum()",
)  # fmt: skip
_PAIRS = (
    "min({}, {})", "max({}, {})", "divmod({}, abs({}) + 1)[0]", "divmod({}, abs({}) + 1)[1]",
    "math.hypot({}, {})", "sorted([{}, {}])[0]", "[{}, {}][n % 2]", "({}, 1) < ({}, 0.5)",
    "({} or {})", "({} and {})", "sum(i * 0.5 for i in range(int(abs({})) % 5)) + ({})",
)  # fmt: skip
_USES = (
    "w * ({})", "({}) * w", "w - ({})", "w.clamp(max={})", "rl.where(w > 0.2, {}, w)",
    "rl.full((2,), {})", "rl.tensor([{}, 1])", "w.add(w, alpha={})", "rl.tensor([1, 2]) * ({})",
    "w < ({})", "w / (abs({}) + 1)", "w.masked_fill(w > 0.2, {})", "rl.lerp(w, w + 1, {})",
    "rl.arange(int(abs({})) % 7)", "w.roll(int({}) % 4)", "w[int({}) % 4]",
)  # fmt: skip


def expression(draw: random.Random, depth: int) -> str:
    """A number, as Python's text."""
    if depth == 0 or draw.random() < 0.1:
        return draw.choice(_LEAVES)
    inner = [expression(draw, depth - 1) for _ in range(2)]
    kind = draw.random()
    if kind < 0.4:
        return f"({inner[0]}) {draw.choice(_BINARY)} ({inner[1]})"
    if kind < 0.45:
        return f"int({inner[0]}) {draw.choice(_WHOLE)} (abs(int({inner[1]})) % 5)"
    if kind < 0.55:
        return f"(({inner[0]}) {draw.choice(_COMPARED)} ({inner[1]}))"
    if kind < 0.65:
        last = expression(draw, depth - 1)
        return f"(({inner[0]}) if ({inner[1]}) {draw.choice(_COMPARED)} ({last}) else 0.5)"
    if kind < 0.85:
        return draw.choice(_FUNCTIONS).format(inner[0])
    return draw.choice(_PAIRS).format(*inner)


def _function(seed: int) -> tuple[str, Callable[..., Any]]:
    draw = random.Random(seed)
    value = expression(draw, draw.choice((1, 1, 2, 2, 3)))
    use = draw.choice(_USES).format("v")
    text = f"def f(x, k, f):\n    n = x.shape[0]\n    v = {value}\n    return v, {use}\n"
    file = f"<numbers {seed}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {
        "rl": rl, "np": np, "math": math, "operator": operator, "Fraction": Fraction,
        "Counter": Counter, "w": rl.tensor([0.05, 0.15, 0.25, 0.35]),
    }  # fmt: skip
    exec(compile(text, file, "exec"), names)
    return text, names["f"]


def _outcome(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a call gives, as values to compare; the error of Python's that it raises."""
    try:
        value, tensor = function(*args)
        return value, str(tensor.dtype), np.array(tensor.tolist())
    except (ArithmeticError, ValueError, TypeError, rl.RidgelineError) as error:
        return error


def _difference(got: Any, wanted: Any) -> str:
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        alike = isinstance(wanted, Exception) and isinstance(got, Exception)
        return "" if alike else f"{got!r} instead of {wanted!r}"
    same = got[1] == wanted[1] and got[2].shape == wanted[2].shape
    with np.errstate(invalid="ignore"):
        same = same and np.allclose(got[2], wanted[2], rtol=1e-5, atol=1e-6, equal_nan=True)
        same = same and bool(got[0] == wanted[0] or (got[0] != got[0] and wanted[0] != wanted[0]))
    kinds = [np.asarray(v).dtype.kind for v in (got[0], wanted[0])]
    return "" if same and kinds[0] == kinds[1] else f"{got} instead of {wanted}"


def trial(seed: int) -> None:
    """Raise where a jitted function makes other numbers of numbers than Python does."""
    draw = random.Random(seed)
    text, function = _function(seed)
    dynamic = draw.choice((None, True, {"x": 0}))
    with warnings.catch_warnings(), rl.config.override(tier="interpreter"):
        warnings.simplefilter("ignore")
        jitted = rl.jit(function, dynamic=dynamic)
        for call in range(_CALLS):
            k, n = draw.randrange(8), draw.randrange(1, 7)
            f = draw.choice((0.0, 0.5, 1.5, -2.25, 3.0))
            k, n, f = [(k, 3, 0.5), (2, n, 0.5), (2, 3, f), (k, n, f)][draw.randrange(4)]
            wanted = _outcome(function, (rl.ones(n), k, f))
            said = _difference(_outcome(jitted, (rl.ones(n), k, f)), wanted)
            assert not said, f"call {call}, k={k}, n={n}, f={f}: {said}\n{text}"


ATTACK = Attack(
    "numbers",
    "numbers that a jitted function is given are computed with as Python computes with them",
    trial,
    short=60,
    faults=(
        Fault("a float that a function is given stays open where it is kept",
              "tracing.side_effects", "result_of", "return spec.getter()", "return spec.value"),
        Fault("a float and a whole number that is open make a whole number", "graph.sizes",
              "_is_size", "int | SizeExpr", "float | int | SizeExpr"),
    ),
)  # fmt: skip
