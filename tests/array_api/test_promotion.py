"""The standard's promotion: 0-d arrays like any other, numbers weak, mixed kinds as torch's."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from ridgeline import array_api as xp
from ridgeline.dtypes import DType
from ridgeline.functions.operands import promote_types

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATING = ["float32", "float64", "complex64", "complex128"]
EVERY = ["bool", *SIGNED, *UNSIGNED, *FLOATING]
# rows and columns int8 … int64 against uint8 … uint64; "-" where no type holds both
MIXED = """
int16 int32 int64 -
int16 int32 int64 -
int32 int32 int64 -
int64 int64 int64 -
"""
# float32, float64, complex64, complex128 against one another
FLOATS = """
float32    float64    complex64  complex128
float64    float64    complex128 complex128
complex64  complex128 complex64  complex128
complex128 complex128 complex128 complex128
"""


def _rows() -> dict[tuple[str, str], str]:
    table = {("bool", "bool"): "bool"}
    for names in (SIGNED, UNSIGNED):
        for i, j in itertools.product(range(4), repeat=2):
            table[names[i], names[j]] = names[max(i, j)]
    for signed, row in zip(SIGNED, MIXED.split("\n")[1:]):
        for unsigned, result in zip(UNSIGNED, row.split()):
            table[signed, unsigned] = table[unsigned, signed] = result
    for first, row in zip(FLOATING, FLOATS.split("\n")[1:]):
        for second, result in zip(FLOATING, row.split()):
            table[first, second] = result
    return table


TABLE = _rows()


def typed(name: str) -> DType:
    dtype: DType = getattr(xp, name)
    return dtype


@pytest.mark.parametrize("first", EVERY)
def test_table(first: str) -> None:
    for second in EVERY:
        result = TABLE.get((first, second), "-")
        pair = typed(first), typed(second)
        arrays = xp.ones(2, dtype=pair[0]), xp.ones((), dtype=pair[1])
        if result == "-" and {pair[0].kind, pair[1].kind} != {"int", "uint"}:
            expected = promote_types(*pair)  # the standard leaves it open
            assert xp.result_type(*pair) is xp.result_type(*arrays) is expected
            xp.equal(*arrays)
            continue
        if result == "-":
            for attempt in (lambda p=pair: xp.result_type(*p), lambda a=arrays: xp.equal(*a)):
                with pytest.raises(TypeError):
                    attempt()
            continue
        expected = typed(result)
        assert xp.result_type(*pair) is expected
        assert xp.can_cast(pair[0], expected) and xp.result_type(*arrays) is expected
        assert xp.where(xp.asarray(True), *arrays).dtype is expected
        assert xp.concat([arrays[0], xp.ones(1, dtype=pair[1])]).dtype is expected
        if first != "bool":  # a 0-d array counts as much as any other
            assert (arrays[0] + arrays[1]).dtype is expected
            assert (arrays[1] * arrays[0]).dtype is expected


def _weak(number: complex, name: str) -> str:
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}
    own = ranks[np.dtype(name).kind]
    if isinstance(number, bool) or (own >= 2 and not isinstance(number, complex)):
        return name
    if isinstance(number, int):
        return name if own == 1 else "int64"
    if own == 1:
        return "-"
    if isinstance(number, float):
        return "float32"
    return {"float64": "complex128", "complex128": "complex128"}.get(name, "complex64")


@pytest.mark.parametrize("number", [True, 1, 1.5, 1 + 2j])
def test_python_numbers_are_weak(number: complex) -> None:
    for name in EVERY:
        x = xp.ones(2, dtype=typed(name))
        result = _weak(number, name)
        if result == "-":
            with pytest.raises(TypeError):
                xp.equal(x, number)
            continue
        assert xp.result_type(x, number) is typed(result)
        np.testing.assert_array_equal(np.asarray(xp.equal(x, number)), np.ones(2) == number)
        if result != "bool":
            for made in (x + number, number - x, x * number):
                assert made.dtype is typed(result)
            expected = np.ones(2, name) + np.asarray(number, result)
            np.testing.assert_array_equal(np.asarray(x + number), expected)


def test_a_number_of_a_higher_kind_is_not_written() -> None:
    x = xp.asarray([4, 5])
    with pytest.raises(TypeError):
        x[0] = 2.5
    with pytest.raises(TypeError):
        x += 2.5


def test_bounds_of_a_higher_kind_are_kept() -> None:
    held = xp.clip(xp.asarray([1, 2, 3]), xp.asarray(1.5), xp.asarray(2.5))
    np.testing.assert_array_equal(np.asarray(held), [1.5, 2.0, 2.5])
    assert xp.clip(xp.asarray([1, 2, 3]), 2, None).dtype is xp.int64


def test_numbers_out_of_range_raise() -> None:
    x = xp.ones(2, dtype=xp.int8)
    for attempt in (lambda: x + 128, lambda: 300 * x, lambda: xp.full(2, -1, dtype=xp.uint8)):
        with pytest.raises(OverflowError):
            attempt()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
def test_in_place_keeps_the_type(name: str) -> None:
    augmented: Any = getattr(operator, f"i{name}")
    x = xp.full(3, 4.0, dtype=xp.float32)
    same = x
    x = augmented(x, xp.asarray(2.0, dtype=xp.float32))
    assert x is same and x.dtype is xp.float32
    x = augmented(x, xp.asarray(2.0, dtype=xp.float64))  # of the same kind, as in NumPy and torch
    assert x is same and x.dtype is xp.float32
    with pytest.raises(TypeError):
        augmented(xp.asarray([4]), xp.asarray(2.5))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sqrt", "bool"), ("logical_not", "int8"), ("bitwise_invert", "float32"), ("add", "bool"),
     ("floor", "complex64"), ("mean", "int32"), ("max", "complex64"), ("diff", "bool")],
)  # fmt: skip
def test_kinds_a_function_does_not_take(name: str, dtype: str) -> None:
    x = xp.ones(2, dtype=typed(dtype))
    with pytest.raises(TypeError, match=name):
        getattr(xp, name)(*(x, x) if name == "add" else (x,))


@pytest.mark.parametrize(
    "name",
    ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log",
     "log10", "log1p", "log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_floating_functions_of_integers(name: str, dtype: str) -> None:
    made = getattr(xp, name)(xp.ones(2, dtype=typed(dtype)))
    with np.errstate(divide="ignore"):
        expected = getattr(np, name)(np.ones(2))
    assert made.dtype is xp.float32  # the default
    np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-6, atol=1e-7)


def test_totals_grow() -> None:
    for name in SIGNED:
        assert xp.sum(xp.ones(2, dtype=typed(name))).dtype is xp.int64
    for name in UNSIGNED:
        assert xp.prod(xp.ones(2, dtype=typed(name))).dtype is xp.uint64
        assert xp.cumulative_sum(xp.ones(2, dtype=typed(name))).dtype is xp.uint64
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):  # truths are counted
        counted = getattr(xp, name)(xp.asarray([True, True, False]))
        expected = getattr(np, name)([1, 1, 0])
        assert counted.dtype is xp.int64
        np.testing.assert_array_equal(np.asarray(counted), expected)
    assert xp.sum(xp.ones(2, dtype=xp.float32)).dtype is xp.float32
    assert xp.sum(xp.ones(2, dtype=xp.int8), dtype=xp.int16).dtype is xp.int16


def test_questions_about_types() -> None:
    assert xp.isdtype(xp.uint8, ("signed integer", "unsigned integer"))
    assert xp.isdtype(xp.float32, xp.float32) and not xp.isdtype(xp.bool, "numeric")
    assert not xp.can_cast(xp.int64, xp.int32) and not xp.can_cast(xp.int8, xp.float32)
    with pytest.raises(TypeError):
        xp.isdtype(xp.uint8, "whole")
    assert xp.finfo(xp.complex64).dtype is xp.float32
    assert xp.iinfo(xp.uint8).max == 255 and xp.finfo(xp.float64).eps == 2.0**-52
