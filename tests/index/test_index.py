"""The algebra of indices against brute force: every law is evaluated over small boxes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeline import scalars
from ridgeline.graph.sizes import (
    Size,
    SizeExpr,
    bounds,
    evaluate,
    maximum,
    minimum,
    symbol,
    symbols,
)
from ridgeline.index.intervals import RULES, UNKNOWN, Interval
from ridgeline.index.polynomial import Affine, Polynomial

NAMES = ("x", "y", "z")
BOX = {"x": (-2, 3), "y": (0, 4), "z": (1, 2)}
MONOMIALS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda m: tuple(sorted(m)))
POLYNOMIALS = st.builds(
    Polynomial,
    st.dictionaries(MONOMIALS, st.integers(-6, 6).filter(bool), max_size=4),
    st.integers(-9, 9),
)
EXTENTS = POLYNOMIALS.map(lambda p: p.where(lambda monomial, _: "x" not in monomial))
INTERVALS = st.tuples(st.integers(-5, 5), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))


def points() -> Iterator[dict[str, int]]:
    ranges = [range(low, high + 1) for low, high in BOX.values()]
    return (dict(zip(BOX, values)) for values in product(*ranges))


@settings(max_examples=200, deadline=None)
@given(POLYNOMIALS, POLYNOMIALS, st.integers(-4, 4))
def test_the_ring_of_polynomials(a: Polynomial[str], b: Polynomial[str], scale: int) -> None:
    for made, law in (
        (a + b, lambda x, y: x + y), (a - b, lambda x, y: x - y), (a * b, lambda x, y: x * y),
        (a.plus(b, scale), lambda x, y: x + scale * y), (a.scaled(scale), lambda x, y: scale * x),
        (a.offset(scale), lambda x, y: x + scale),
    ):  # fmt: skip
        assert all(made.terms.values())
        for at in (point.__getitem__ for point in points()):
            assert made.at(at) == law(a.at(at), b.at(at))
    assert a * b == b * a and hash(a * b) == hash(b * a) and a - a == 0
    assert (a + b) * a == a * a + b * a


@settings(max_examples=200, deadline=None)
@given(POLYNOMIALS, st.integers(1, 6), MONOMIALS)
def test_divisions_of_polynomials(
    a: Polynomial[str], divisor: int, monomial: tuple[str, ...]
) -> None:
    quotient, rest = a.split(divisor)
    assert quotient.scaled(divisor) + rest == a and 0 <= rest.constant < divisor
    assert all(c % divisor for c in rest.terms.values())
    quotient, rest = a.by_monomial(monomial)
    assert quotient * Polynomial({monomial: 1}) + rest == a


@settings(max_examples=200, deadline=None)
@given(POLYNOMIALS)
def test_bounds_of_polynomials(a: Polynomial[str]) -> None:
    low, high = a.interval(BOX.__getitem__)
    values = [a.at(point.__getitem__) for point in points()]
    assert low <= min(values) and max(values) <= high
    form = a.affine()
    assert (form is None) == any(len(monomial) > 1 for monomial in a.terms)
    if form is not None:
        assert form.interval(BOX.__getitem__) == (min(values), max(values)) == (low, high)
    if len(a.terms) == 1 and not a.atoms - {"y", "z"}:  # monotone: reached
        assert (low, high) == (min(values), max(values))


@settings(max_examples=100, deadline=None)
@given(POLYNOMIALS, EXTENTS, st.integers(0, 4))
def test_sums_over_a_loop(a: Polynomial[str], extent: Polynomial[str], length: int) -> None:
    summed = a.summed("x", extent.offset(length))
    for point in points():
        last = extent.offset(length).at(point.__getitem__)
        if last >= 0:
            terms = (a.at({**point, "x": k}.__getitem__) for k in range(last))
            assert summed.at(point.__getitem__) == sum(terms)


def test_polynomials_are_read() -> None:
    n, k = Polynomial.of("n"), Polynomial.of("k")
    assert str(n * n + k * 3 - 1) == "n**2 + 3*k + -1" and str(n - n) == "0"
    assert int(n - n + 3) == 3 and Polynomial({}, 3) == 3 and n != 3


AFFINE = st.builds(
    Affine,
    st.dictionaries(st.sampled_from(NAMES), st.integers(-9, 9).filter(bool)).map(
        lambda strides: tuple(sorted(strides.items()))
    ),
    st.integers(-5, 5),
)


@settings(max_examples=200, deadline=None)
@given(AFFINE, st.tuples(*[st.integers(1, 4)] * 3))
def test_maps_that_tell_apart(form: Affine[str], lengths: tuple[int, ...]) -> None:
    extents = {name: n for name, n in zip(NAMES, lengths) if name in form.strides}
    values = [
        form.offset + sum(form.strides[name] * v for name, v in zip(extents, point))
        for point in product(*map(range, extents.values()))
    ]
    if form.tells_apart(extents):
        assert len(set(values)) == len(values)
    for name in NAMES:
        assert (form.plain == name) == (form == Affine(((name, 1),)))


def python(name: str, *values: int) -> int:
    """A scalar operation by its definition, on integers."""
    arrays = [np.array(value, np.int64) for value in values]
    if name == "select":
        arrays[0] = arrays[0].astype(np.bool_)
    return int(scalars.evaluate(name, *arrays))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(RULES)), st.lists(INTERVALS, min_size=3, max_size=3))
def test_rules_of_intervals(name: str, operands: list[Interval]) -> None:
    taken = operands[: scalars.TABLE[name].arity]
    if name == "select":
        taken[0] = (0, 1)
    ranges = [range(int(low), int(high) + 1) for low, high in taken]
    values = [python(name, *point) for point in product(*ranges)]
    low, high = RULES[name](*taken)
    assert low <= min(values) and max(values) <= high
    if name not in ("mod", "and", "sign", "select"):
        assert (low, high) == (min(values), max(values)), "as narrow as can be"
    for unknown in range(len(taken)):  # what is known of fewer operands is no narrower
        wider = [UNKNOWN if i == unknown else operand for i, operand in enumerate(taken)]
        least, most = RULES[name](*wider)
        assert least <= low and high <= most


N, M = symbol("n", 0, 6), symbol("m", 2, 8, multiple_of=2)
Truth = Callable[[int, int], int]
LEAVES: list[tuple[Size, Truth]] = [(N, lambda n, m: n), (M, lambda n, m: m)]
OPERATIONS: list[tuple[Callable[[Size, Size], Size], Callable[[int, int], int]]] = [
    (operator.add, operator.add), (operator.sub, operator.sub), (operator.mul, operator.mul),
    (operator.floordiv, lambda a, b: a // b if b else 0), (minimum, min), (maximum, max),
    (operator.mod, lambda a, b: a % b if b else 0),
]  # fmt: skip


def combined(
    operation: int, left: tuple[Size, Truth], right: tuple[Size, Truth]
) -> tuple[Size, Truth]:
    symbolic, plain = OPERATIONS[operation]
    if isinstance(left[0], int) and isinstance(right[0], int):
        return left
    return symbolic(left[0], right[0]), lambda n, m: plain(left[1](n, m), right[1](n, m))


SIZES = st.recursive(
    st.sampled_from(LEAVES) | st.integers(-4, 6).map(lambda k: (k, lambda n, m: k)),
    lambda inner: st.builds(combined, st.integers(0, len(OPERATIONS) - 1), inner, inner),
    max_leaves=7,
)


@settings(max_examples=400, deadline=None)
@given(SIZES, SIZES)
def test_sizes(one: tuple[Size, Truth], two: tuple[Size, Truth]) -> None:
    (size, truth), (other, other_truth) = one, two
    box = list(product(range(7), range(2, 9, 2)))
    values = [truth(n, m) for n, m in box]
    assert [evaluate(size, {"n": n, "m": m}) for n, m in box] == values
    low, high = bounds(size)
    assert low <= min(values) and max(values) <= high
    if size == other:  # without anybody to decide, only what always holds
        assert values == [other_truth(n, m) for n, m in box] and hash(size) == hash(other)
    if isinstance(size, SizeExpr):
        assert size - size == 0 and size + other == other + size and symbols([size])


def test_a_size_as_text_is_an_expression_of_python_for_it() -> None:
    n = symbol("n", 0, 60)
    assert str((n + 1) // 3) != str(1 + n // 3)  # facts are known by their text


@settings(max_examples=200, deadline=None)
@given(SIZES)
def test_text_means_what_the_size_does(one: tuple[Size, Truth]) -> None:
    size, truth = one
    for n, m in product(range(7), range(2, 9, 2)):
        try:
            read = eval(str(size), {"n": n, "m": m})
        except ZeroDivisionError:  # a quotient of sizes by zero is zero
            continue
        assert read == truth(n, m)
