"""Numbers that a jitted function is given: what Python computes with them, and leaves of them.

While a function is traced, a whole number that changes, a length and a float stand for those of
later calls. Python itself, without jit, says what is right.
"""

from __future__ import annotations

import collections
import linecache
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.numbers import Lifted

pytestmark = pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")

EXPRESSIONS = """
k + 1.5 | 1.5 + k | k - 0.5 | 0.5 - k | k * 0.1 | 0.1 * (k % 4) | k * 1.0 | k // 0.5 | 0.5 // k
k % 0.3 | 7.5 % k | 2 ** k | (-2) ** k | k ** 2.0 | k == 2.0 | k != 3.0 | 2.0 == k | k < 2.5
k > 2.5 | 2.5 < k | k >= 3.5 | round(k * 0.3) | divmod(k, 0.7) | divmod(9, k) | k * (1 + 1j)
math.ceil(k * 0.4) | sum([k, 0.5]) | max(k, 2.5) | min(2.5, k) | type(k * 0.5) is float
isinstance(k * 0.5, float) | isinstance(k, int) | operator.mul(k, 0.1) | operator.lt(k, 2.5)
float(Fraction(1, 3) * k) | k * Fraction(1, 3) | np.float64(0.5) * k | k * np.float64(0.5)
k * np.int64(3) | k + np.float32(0.5) | np.int32(7) % k | k % np.int32(2) | np.array([k, 0.5]).sum()
(np.ones(3, np.float32) * k).dtype.name | np.asarray([k, 1]).dtype.name | k.__class__ is int
(k * 0.5) * (k * 0.5) | 0.5 * (1 + math.cos(math.pi * k / 10)) | float(f"{k * 0.1:.2f}")
len([i for i in range(9) if i < k * 0.5]) | 0.5 if k % 2 == 0.0 else 1.5 | {k} == {2}
{k: 1} == {2: 1} | set([k]) == {2} | frozenset([k]) == {3} | {2}.union([k]) == {2}
dict([(k, 1)]) == {2: 1} | dict.fromkeys([k]) == {2: None} | {i for i in [k, 2]} == {2}
collections.Counter([k, 2])[2] | [k] == [2.0] | max(1e-4, 0.1 * 0.5 ** k) | len(k * [0])
-(k * 0.5) | abs(-k * 0.5)
"""
_NAMES = {"rl": rl, "np": np, "math": math, "operator": operator, "Fraction": Fraction,
          "collections": collections, "w": rl.tensor([0.05, 0.15, 0.25])}  # fmt: skip


def _made(text: str, name: str, **more: Any) -> Callable[..., Any]:
    """A function of whose text jit makes its copy."""
    file = f"<{name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = {**_NAMES, **more}
    exec(compile(text, file, "exec"), names)
    found: Callable[..., Any] = names["f"]
    return found


@pytest.mark.parametrize("kind", ["number", "length"])
@pytest.mark.parametrize(
    "expression", [e.strip() for line in EXPRESSIONS.split("\n") for e in line.split(" | ") if e]
)
def test_python_computes_with_open_numbers_as_with_others(expression: str, kind: str) -> None:
    first = "" if kind == "number" else "    k = k.shape[0]\n"
    plain = _made(f"def f(k):\n{first}    v = {expression}\n    return v, w + 1\n", expression)
    with rl.config.override(tier="interpreter"):
        jitted = rl.jit(plain, dynamic=None if kind == "number" else {"k": 0})
        for k in (2, 3, 4, 2, 7):
            given = k if kind == "number" else rl.ones(k)
            wanted, found = plain(given)[0], jitted(given)[0]
            assert found == wanted and np.asarray(found).dtype == np.asarray(wanted).dtype


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize(
    "use", ["w * (k * 0.5)", "w < k * 0.1", "w.clamp(max=k * 0.1)", "w.add(w, alpha=k * 0.5)",
            "rl.full((2,), k * 0.5)", "rl.lerp(w, w + 1, k * 0.1)", "rl.tensor([1, 2]) * (k * 1.0)",
            "rl.nn.functional.leaky_relu(-w, k * 0.1)", "rl.arange(0, k * 0.5, 0.5)"],
)  # fmt: skip
def test_tensors_meet_fractions_of_open_numbers(use: str, tier: Any) -> None:
    plain = _made(f"def f(k):\n    return {use}\n", use)
    with rl.config.override(tier=tier):
        jitted = rl.jit(plain)
        for k in (2, 3, 4, 2):
            wanted, found = plain(k), jitted(k)
            assert found.dtype is wanted.dtype
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "use", ["np.float32(2) * x", "x * np.float32(2)", "np.ones(2, np.float32) * x",
            "x - np.ones(2)", "np.float64(2) > x", "np.float64(0.25) // (x - 0.5)",
            "np.sqrt(x)", "np.array([x, 1])"],
)  # fmt: skip
def test_numpy_computes_with_floats_that_change(use: str) -> None:
    plain = _made(f"def f(x):\n    v = {use}\n    return rl.tensor(v), v, w * x\n", use)
    jitted = rl.jit(plain)
    with np.errstate(divide="ignore"):
        for x in (0.75, 0.75, 1.5, 2.5, 0.5):
            wanted, found = plain(x), jitted(x)
            assert found[0].dtype is wanted[0].dtype and type(found[1]) is type(wanted[1])
            assert np.array_equal(found[0].numpy(), wanted[0].numpy())


KEPT = [
    "box.v = x * 2", "box.v = [x, {'q': x * 2}]", "box.v = (x, x * 2)", "setattr(box, 'v', x + 1)",
    "table['a'] = x * 2", "table[x] = 1", "table.update(a=x * 2)", "table.update({'a': x + 1})",
    "rows[0] = x * 2", "rows.append(x * 2)", "rows.extend([x, x * 2])", "rows.insert(0, x * 2)",
    "found.add(x)", "global G; G = x * 2", "global G; G = [x * 2]", "box.v = f'{x} {x:.2f}'",
]  # fmt: skip


def _plain(value: Any) -> Any:
    """A value to compare, in which numbers that are open would show."""
    assert not isinstance(value, Lifted | SizeExpr)
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)([_plain(part) for part in value])
    return _plain(vars(value)) if isinstance(value, SimpleNamespace) else value


@pytest.mark.parametrize("numbers", [(0.5, 0.5, 1.5, 2.5, 1.5, 3.5), (2, 2, 3, 4, 3, 5)])
@pytest.mark.parametrize("statement", KEPT)
def test_what_is_kept_of_a_number_stays_as_it_was(statement: str, numbers: Any) -> None:
    outcomes = []
    for wrap in (lambda f: f, rl.jit):
        world = {"box": SimpleNamespace(v=0), "table": {}, "rows": [0.0], "found": set(), "G": 0}
        lines = "\n    ".join(statement.split("; "))
        function = _made(f"def f(x):\n    {lines}\n    return w * x\n", statement, **world)
        names, call = function.__globals__, wrap(function)
        seen: list[Any] = []
        for x in numbers:
            values = call(x).tolist()
            seen.append((values, *[repr(_plain(names[name])) for name in world]))
        outcomes.append(seen)
    assert outcomes[1] == outcomes[0]


def test_numbers_are_returned_as_they_are_in_each_call() -> None:
    function = _made("def f(x):\n    return x * 2, [x], {'a': x / 2}, w * x\n", "returned")
    jitted = rl.jit(function)
    found = [jitted(x)[:3] for x in (0.5, 0.5, 1.5, 2.5)]
    assert found == [function(x)[:3] for x in (0.5, 0.5, 1.5, 2.5)]
    assert all(type(row[0]) is float for row in found)


LEFT = [
    "box.v = [x * 2]", "box.v = {'a': x * 2}", "box.v = [1, 2]", "box.v = ([x * 2], 1)",
    "table['v'] = [x * 2]", "rows[0] = [x * 2]", "rows.append(x); box.v = rows[-3:]",
    "box.v = []; box.v.append(x * 2); box.v.append(x)", "table.update(a=[x])",
    "rows[:] = [x, x * 2]",
    "table.setdefault('z', []).append(x * 2)", "global G; G = [x * 2]",
    "box.v = {1}; box.v.add(2)", "rows.append(x * 2); del rows[:-2]",
]  # fmt: skip


def _listed(value: Any) -> Any:
    if isinstance(value, rl.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(part) for part in value]
    return _listed(vars(value)) if isinstance(value, SimpleNamespace) else value


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("statement", LEFT)
def test_containers_that_are_left_outside_are_new_in_every_call(statement: str, tier: Any) -> None:
    outcomes = []
    for wrap in (lambda f: f, rl.jit):
        world = {"box": SimpleNamespace(v=None), "table": {}, "rows": [0.0], "G": None}
        lines = "\n    ".join(statement.split("; "))
        function = _made(f"def f(x):\n    {lines}\n    return x + 1\n", statement, **world)
        names, seen, held = function.__globals__, list[Any](), list[Any]()
        with rl.config.override(tier=tier):
            call = wrap(function)
            for number in range(6):
                values = call(rl.tensor([float(number), 1.0])).tolist()
                seen.append((values, [_listed(names[name]) for name in world]))
                held.append((names["box"].v, names["G"]))
                if isinstance(names["box"].v, list):
                    names["box"].v = [5]  # somebody else's
        outcomes.append([seen, _listed(held)])
    assert outcomes[1] == outcomes[0]


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_float_that_changes_is_compared_with_a_number_that_does(dynamic: bool | None) -> None:
    def f(x: rl.Tensor, k: int, f: float) -> Any:
        return f > k, x * (2 if k <= f else 3)

    jitted = rl.jit(f, dynamic=dynamic)
    for k, number in ((2, 0.5), (3, 0.5), (2, 3.0), (5, 1.5), (2, 2.0), (4, 0.0), (2, 0.0)):
        got, wanted = jitted(rl.ones(2), k, number), f(rl.ones(2), k, number)
        assert got[0] == wanted[0] and got[1].tolist() == wanted[1].tolist()
