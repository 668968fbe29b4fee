"""Tracing runs a function once: what it leaves outside is left once, whatever numbers are for."""

from __future__ import annotations

import decimal
import functools
import json
import math
import numbers
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl


@functools.lru_cache
def doubled(p: float) -> float:
    return 2 * p


def matched(p: float) -> int:
    match p:
        case float():
            return 1
        case _:
            return 2


FLOATS: dict[str, Callable[[Any], Any]] = {
    "is_integer": lambda p: float(p.is_integer()), "hex": lambda p: len(p.hex()),
    "ratio": lambda p: p.as_integer_ratio()[0], "real": lambda p: p.real,
    "round": lambda p: round(p, 1), "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor,
    "divmod": lambda p: divmod(p, 2)[1], "other divmod": lambda p: divmod(3.0, p)[0],
    "ufunc": lambda p: np.sin(p).item(), "clip": lambda p: float(np.clip(p, 0, 1)),
    "type": lambda p: 1 if type(p) is float else 2, "match": matched, "cached": doubled,
    "class": lambda p: 1 if p.__class__ is float else 2,
    "isinstance": lambda p: 1 if isinstance(p, float) else 2,
    "number": lambda p: 1 if isinstance(p, numbers.Real) else 2,
    "unbound": lambda p: float.__add__(p, 1.0), "text": lambda p: len(f"{p:.3f}"),
    "decimal": lambda p: float(decimal.Decimal(p)), "packed": lambda p: len(struct.pack("f", p)),
}  # fmt: skip
INTS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda n: n << 1, "shifted": lambda n: 64 >> n, "and": lambda n: n & 1,
    "or": lambda n: 8 | n, "xor": lambda n: n ^ 3, "invert": lambda n: ~n, "plus": lambda n: +n,
    "round": round, "bits": lambda n: n.bit_length(), "choose": lambda n: math.comb(n, 2),
}  # fmt: skip


def outcome(
    function: Callable[[Any], Any], calls: list[tuple[Any, Any]], wrapped: Callable[[Any], Any]
) -> list[Any]:
    """What calls give and leave in a list; a float or an int is an argument, or a length."""
    left: list[rl.Tensor] = []

    def f(x: rl.Tensor, number: Any) -> rl.Tensor:
        left.append(x.sum() * 2)
        return x.sum() * function(x.shape[0] if number is None else number)

    f = wrapped(f)
    results = [f(x, number).item() for x, number in calls]
    return [results, [tensor.item() for tensor in left]]


def same_in_both_ways(function: Callable[[Any], Any], calls: list[tuple[Any, Any]]) -> None:
    jitted = outcome(function, calls, rl.jit)
    plain = outcome(function, calls, lambda f: f)
    assert jitted[1] == plain[1]
    assert jitted[0] == pytest.approx(plain[0], rel=1e-6)


@pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")
@pytest.mark.parametrize("function", FLOATS.values(), ids=FLOATS)
def test_a_float_among_the_arguments(function: Callable[[Any], Any]) -> None:
    same_in_both_ways(function, [(rl.ones(2), p) for p in (0.5, 1.0, 2.0, 1.0)])


@pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")
@pytest.mark.parametrize("function", INTS.values(), ids=INTS)
def test_an_int_among_the_arguments(function: Callable[[Any], Any]) -> None:
    same_in_both_ways(function, [(rl.ones(2), n) for n in (3, 4, 5, 6)])


@pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")
@pytest.mark.parametrize("function", INTS.values(), ids=INTS)
def test_a_length(function: Callable[[Any], Any]) -> None:
    same_in_both_ways(function, [(rl.arange(n).float(), None) for n in (3, 4, 5, 6, 7)])


def test_a_class_that_is_asked_for_needs_no_other_trace() -> None:
    @rl.jit
    def f(x: rl.Tensor, p: float) -> rl.Tensor:
        return x * p if isinstance(p, float) and type(p) is float else x

    assert [f(rl.ones(1), p).item() for p in (0.5, 1.5, 2.5, 3.5)] == [0.5, 1.5, 2.5, 3.5]
    assert f.traces == 2


@pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")
def test_a_mask_after_a_change_of_state() -> None:
    class State:
        calls = 0

    def run(wrapped: Callable[[Any], Any]) -> list[Any]:
        state, left = State(), list[rl.Tensor]()

        def f(x: rl.Tensor) -> rl.Tensor:
            state.calls += 1
            left.append(x.sum())
            return x[x > 0].sum() * state.calls

        f = wrapped(f)
        results = [f(rl.arange(n).float()).item() for n in (3, 4, 4, 6, 7)]
        return [results, state.calls, [tensor.item() for tensor in left]]

    assert run(rl.jit) == run(lambda f: f)


def test_what_needs_a_plain_number_is_not_run_twice() -> None:
    left: list[rl.Tensor] = []

    @rl.jit
    def f(x: rl.Tensor, p: float) -> rl.Tensor:
        left.append(x + 1)
        return x * len(json.dumps(OrderedDict(p=p)))

    f(rl.ones(1), 0.5)
    with pytest.raises(TypeError) as raised:  # json knows no number that may change
        f(rl.ones(1), 1.5)
    assert "not run a second time" in raised.value.__notes__[0]
    assert len(left) == 2
    assert f(rl.ones(1), 1.5).item() == 10 and len(left) == 3
