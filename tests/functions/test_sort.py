"""Order: sorting, medians, quantiles, searching, counting, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ridgeline as rl
from tests.functions.reference import agree, both, numbers, same

NAN = float("nan")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_sort(dim: int, descending: bool) -> None:
    agree(
        lambda lib, x: lib.sort(x, dim=dim, descending=descending, stable=True),
        [numbers((4, 5))],
        second=True,
    )


def test_nan_stands_above_everything_and_equal_ones_keep_their_order() -> None:
    x = np.array([3.0, NAN, 1.0, 3.0, -np.inf, NAN, 1.0])
    for descending in (False, True):
        agree(
            lambda lib, x, d=descending: lib.sort(x, descending=d, stable=True), [x],
            gradients=False,
        )  # fmt: skip


@pytest.mark.parametrize("largest", [False, True])
def test_topk_and_kthvalue(largest: bool) -> None:
    agree(lambda lib, x: lib.topk(x, 3, 0, largest), [numbers((5, 4))], second=True)
    agree(lambda lib, x: lib.kthvalue(x, 2, 1, keepdim=True), [numbers((5, 4))])


def test_few_of_many() -> None:
    x = numbers((3, 100))
    x[0, 7] = x[1, 3] = NAN
    agree(lambda lib, x: [*x.topk(4), *x.topk(3, largest=False)], [x], gradients=False)
    agree(lambda lib, x: x.topk(5, 1)[0], [numbers((3, 100))], second=True)
    agree(lambda lib, x: x.kthvalue(3, 1), [numbers((3, 100))], second=True)


@pytest.mark.parametrize("length", [600, 1025, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_the_first_of_long_rows_are_those_of_a_stable_sort(dtype: str, length: int) -> None:
    """Rows whose blocks stand for them: with ties, NaN, infinities and the largest numbers."""
    rng = np.random.default_rng(length)
    rows = np.round(rng.standard_normal((4, length)) * 20)
    rows[1] = rows[1] % 3
    values = rows.astype(dtype)
    values[2, -9:] = values[2, :9] = np.iinfo(dtype).max if dtype[0] == "i" else np.inf
    if dtype[0] == "f":
        values[3, ::7] = np.nan
    for count in (1, 13):
        for largest in (True, False):
            found = rl.jit(lambda x: rl.topk(x, count, 1, largest))(rl.tensor(values))  # noqa: B023
            # NumPy sorts NaN last, as we do; turned and negated places keep equal ones in order
            order = np.argsort(values, 1, kind="stable")
            if largest:
                turned = np.argsort(values[:, ::-1], 1, kind="stable")
                order = length - 1 - turned[:, ::-1]
            np.testing.assert_array_equal(found[1].numpy(), order[:, :count])
            wanted = np.take_along_axis(values, order[:, :count], 1)
            np.testing.assert_array_equal(found[0].numpy(), wanted)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_medians(dim: int | None) -> None:
    x = numbers((4, 5))
    holes = x.copy()
    holes[0, :3] = holes[2, 1] = NAN
    options = {} if dim is None else {"dim": dim}
    for values in (x, holes):
        agree(lambda lib, x: lib.nanmedian(x, **options), [values])
        agree(lambda lib, x: lib.median(x, **options)[0] if options else x.median(), [values])


def test_mode() -> None:
    for x in ([1, 2, 2, 1, 3], [2, 1, 2, 1, 2], [5, 4, 3]):
        agree(lambda lib, x: lib.mode(x), [np.array(x)])


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantile(interpolation: str) -> None:
    q = np.array([0.0, 0.3, 0.75, 1.0])

    def program(lib, x, dim=None, name="quantile"):
        return getattr(lib, name)(x, lib.tensor(q), dim, interpolation=interpolation)

    agree(program, [numbers((4, 5))], second=True)
    agree(lambda lib, x: program(lib, x, 1), [numbers((4, 5))])
    x = numbers((4, 5))
    x[1, 2] = NAN
    agree(lambda lib, x: program(lib, x, 1), [x], gradients=False)
    agree(lambda lib, x: program(lib, x, 1, "nanquantile"), [x])


def test_quantile_moves_with_q() -> None:
    agree(lambda lib, x, q: lib.quantile(x, q, 1, True), [numbers((4, 5)), np.array([0.3, 0.7])])


def test_searchsorted_and_bucketize() -> None:
    edges, x = np.array([0.0, 1.0, 1.0, 4.0]), np.array([[-1.0, 1.0], [2.0, 9.0]])
    for right in (False, True):
        agree(
            lambda lib, e, x, r=right: [lib.searchsorted(e, x, right=r), lib.bucketize(x, e)],
            [edges, x], gradients=False,
        )  # fmt: skip
    rows, order = np.sort(numbers((2, 5)), 1), np.array([4, 3, 2, 1, 0])
    agree(
        lambda lib, e, x: lib.searchsorted(e, x, side="right", out_int32=True),
        [rows, numbers((2, 3))], gradients=False,
    )  # fmt: skip
    agree(
        lambda lib, e, x, o: lib.searchsorted(e, x, sorter=o), [rows[0][::-1].copy(), x, order],
        gradients=False,
    )  # fmt: skip


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_unique(dim: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 2, (6, 3))
    agree(
        lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True, dim=dim), [x],
        gradients=False,
    )  # fmt: skip
    agree(lambda lib, x: lib.unique_consecutive(x, True, True, dim=dim), [x], gradients=False)


def test_counts_and_histograms() -> None:
    x = numbers((40,))
    agree(lambda lib, x: lib.histc(x, 7), [x], gradients=False)
    agree(lambda lib, x: lib.histc(x, 4, min=-1, max=1), [x], gradients=False)
    agree(lambda lib, x: lib.histogram(x, 5, density=True), [x], gradients=False)
    agree(
        lambda lib, x, e, w: lib.histogram(x, e, weight=w),
        [x, np.array([-1.0, 0, 0.5, 2]), numbers((40,), 1)], gradients=False,
    )  # fmt: skip
    count = np.random.default_rng(0).integers(0, 6, 20)
    agree(lambda lib, i: lib.bincount(i, minlength=9), [count], gradients=False)
    agree(lambda lib, i, w: i.bincount(w), [count, numbers((20,))], gradients=False)
    ours = rl.histogramdd(rl.tensor(x.reshape(20, 2)), [3, 4])
    theirs = torch.histogramdd(torch.tensor(x.reshape(20, 2)), [3, 4])
    same(ours.hist, theirs.hist)


def test_nonzero_in_all_its_forms() -> None:
    for shape in ((), (5,), (3, 4), (2, 0)):
        x = np.asarray(numbers(shape, 0, "bool")).astype(np.float64)
        agree(lambda lib, x: lib.nonzero(x), [x], gradients=False)
        agree(lambda lib, x: lib.argwhere(x), [x], gradients=False)
        if shape:
            agree(lambda lib, x: lib.nonzero(x, as_tuple=True), [x], gradients=False)
        for size in (1, 4, 20):
            agree(
                lambda lib, x, n=size: lib.nonzero_static(x, size=n, fill_value=-7), [x],
                gradients=False,
            )  # fmt: skip


def test_isin_and_one_hot() -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 4))
    agree(lambda lib, x, t: lib.isin(x, t, invert=True), [x, np.array([1, 4])])
    agree(lambda lib, x: lib.nn.functional.one_hot(x, 6), [x])
    agree(lambda lib, x: lib.nn.functional.one_hot(x), [x])


def test_a_shape_that_depends_on_values_under_jit() -> None:
    ours, theirs = both(numbers((6,), 0, "bool"))
    assert rl.jit(rl.nonzero)(ours).tolist() == torch.nonzero(theirs).tolist()
    static = rl.jit(lambda x: rl.nonzero_static(x, size=3))
    assert static(ours).tolist() == rl.nonzero_static(ours, size=3).tolist()
    sorted_twice = rl.jit(lambda x: x.sort(descending=True)[0].cumsum(0))
    x = rl.tensor([2.0, 3.0, 1.0])
    assert sorted_twice(x).tolist() == [3, 5, 6]


def test_wrong_input_is_explained() -> None:
    x = rl.zeros(3)
    for call, message in (
        (lambda: x.topk(4), "4 elements of an axis with 3"),
        (lambda: x.kthvalue(0), "k runs from 1"),
        (lambda: rl.sort(rl.zeros(2, dtype=rl.complex64)), "no order"),
        (lambda: x.quantile(1.5), "between 0 and 1"),
        (lambda: rl.bincount(rl.tensor([-1])), "at least 0"),
        (lambda: rl.zeros(0).median(0), "no elements"),
    ):
        with pytest.raises(rl.RidgelineError, match=message):
            call()
