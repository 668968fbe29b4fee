"""Diagonals, windows, grids, splits, repetition and their kin against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import agree, numbers

CUBE = (3, 4, 5)


@pytest.mark.parametrize("program", [
    lambda lib, x: lib.diagonal(x, 1, 0, 2),
    lambda lib, x: lib.diagonal(x, -2, 2, 1),
    lambda lib, x: lib.diag_embed(x, -1, 0, 2),
    lambda lib, x: lib.diagflat(x, 2),
    lambda lib, x: x[0].diag(1),
    lambda lib, x: x[0, 0].diag(-1),
    lambda lib, x: x[0].trace(),
    lambda lib, x: lib.tril(x, -1) + lib.triu(x, 2),
    lambda lib, x: x.unfold(1, 3, 1),
    lambda lib, x: x.unfold(2, 2, 2),
    lambda lib, x: lib.as_strided(x, (2, 3), (7, 2), 5),
    lambda lib, x: lib.rot90(x, 1, (0, 2)),
    lambda lib, x: lib.rot90(x, 3, (2, 1)),
    lambda lib, x: lib.fliplr(x) + lib.flipud(x) + lib.flip(x, dims=(1, 2)),
    lambda lib, x: lib.roll(x, (1, -2), (0, 2)),
    lambda lib, x: lib.repeat_interleave(x, 3, 1),
    lambda lib, x: lib.repeat_interleave(x, lib.tensor([2, 0, 1]), 0),
    lambda lib, x: x.repeat(2, 1, 1, 3),
    lambda lib, x: lib.tile(x, (2, 2)),
    lambda lib, x: lib.tensor_split(x, 3, 2),
    lambda lib, x: lib.tensor_split(x, (1, 3, 9), 1),
    lambda lib, x: lib.hsplit(x, 2) + lib.vsplit(x, [1]) + lib.dsplit(x, 5),
    lambda lib, x: lib.split(x, [1, 3], 1) + lib.chunk(x, 2, 2) + lib.unbind(x, 1),
    lambda lib, x: lib.combinations(x[0, 0], 2, with_replacement=True),
    lambda lib, x: lib.cartesian_prod(x[0, 0], x[0, :, 0]),
    lambda lib, x: lib.meshgrid(x[0, 0], x[0, :, 0], indexing="xy"),
    lambda lib, x: lib.block_diag(x[0], x[1, 0], x[0, 0, 0]),
    lambda lib, x: lib.atleast_3d(x[0], x[0, 0], x[0, 0, 0]),
    lambda lib, x: [lib.column_stack([x[0, :, 0], x[0]]), lib.dstack([x[0], x[1]])],
    lambda lib, x: lib.narrow(x, 1, 1, 2).ravel(),
    lambda lib, x: lib.masked.mean(x, 1, mask=x > 0),
    lambda lib, x: lib.masked.var(x, (0, 2), mask=x > 0),
])  # fmt: skip
def test_values_and_gradients(program: Any) -> None:
    agree(program, [numbers(CUBE)], second=True)


def test_indices_of_triangles_and_of_places() -> None:
    agree(lambda lib: [lib.tril_indices(3, 5, 1), lib.triu_indices(4, 3, -1)], [])
    agree(lambda lib, i: lib.unravel_index(i, (3, 4, 5)), [np.array([[0, 7], [59, 33]])])


def test_views_of_diagonals_write_through() -> None:
    x = rl.zeros(2, 3, 3)
    x.diagonal(0, 1, 2).fill_(1)
    x[0].diagonal(1).add_(5)
    x[1, :, :2].diagonal().mul_(4)
    assert x.tolist() == [
        [[1, 5, 0], [0, 1, 5], [0, 0, 1]],
        [[4, 0, 0], [0, 4, 0], [0, 0, 1]],
    ]


def test_strides_are_those_of_memory() -> None:
    x = rl.arange(12).reshape(3, 4)
    assert x.as_strided((2, 2), (4, 1), 1).tolist() == [[1, 2], [5, 6]]
    with pytest.raises(rl.RidgelineError, match="clone"):
        x.t().as_strided((2, 2), (4, 1))
    with pytest.raises(rl.RidgelineError, match="beyond 12 elements"):
        x.as_strided((4, 4), (4, 1))


def test_windows_and_strided_views_show_the_memory_they_are_made_of() -> None:
    x = rl.arange(24).reshape(4, 6)
    windows, strided = x[1:].unfold(1, 2, 3), x.as_strided((3, 2), (7, 3), 1)
    x.add_(100)
    assert windows.tolist() == (x[1:].unfold(1, 2, 3) * 1).tolist()
    assert windows.tolist()[0] == [[106, 107], [109, 110]]
    assert strided.tolist() == [[101, 104], [108, 111], [115, 118]]
    windows[0, 1].zero_()
    strided.mul_(-1)
    assert x[1].tolist() == [106, 107, -108, 0, 0, -111]
    assert strided.stride() == (7, 3) and windows.stride() == (6, 3, 1)
    assert np.shares_memory(strided.numpy(), x.numpy())


@pytest.mark.parametrize(
    "dtype", [rl.float8_e4m3fn, rl.bfloat16, rl.float16, rl.bool, rl.complex64, rl.int8, rl.float64]
)
def test_strided_views_of_every_element_type(dtype: rl.DType) -> None:
    x = (rl.arange(12) % 5).to(dtype).reshape(3, 4)
    plain = x.to(rl.float32).numpy() if not dtype.is_complex else x.numpy()
    for view, wanted in (
        (x.T.unfold(0, 2, 2), np.stack([plain.T[0:2].T, plain.T[2:4].T])),
        (x.as_strided((2, 3), (5, 2), 1), plain.ravel()[[[1, 3, 5], [6, 8, 10]]]),
        (x[1:1].unfold(1, 2, 1), np.zeros((0, 3, 2))),
    ):
        seen = view.to(rl.float32) if not dtype.is_complex else view
        assert np.array_equal(seen.numpy(), wanted) and list(view.numpy().shape) == [*view.shape]


def test_gradients_through_windows_that_are_written() -> None:
    x = rl.arange(6).float().requires_grad_()
    y = x * 2
    y.unfold(0, 2, 3).mul_(5)
    (y.as_strided((2, 2), (2, 1)) * rl.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [10, 20, 6, 40, 0, 0]


def test_embedding_shortens_its_table_in_place() -> None:
    table = rl.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    found = rl.nn.functional.embedding(rl.tensor([0, 1]), table, max_norm=1.0)
    np.testing.assert_allclose(found.tolist(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    np.testing.assert_allclose(table.tolist(), [[0.6, 0.8], [0.3, 0.4], [6, 8]], rtol=1e-5)


def test_vander() -> None:
    for increasing in (False, True):
        agree(lambda lib, x, up=increasing: lib.vander(x, 4, up), [numbers((3,))], gradients=False)


@pytest.mark.parametrize(
    "reduce, expected",
    [
        ("sum", [1, 0, 5, 9]),
        ("prod", [1, 1, 6, 20]),
        ("max", [1, -np.inf, 3, 5]),
        ("min", [1, np.inf, 2, 4]),
        ("mean", [1, np.nan, 2.5, 4.5]),
    ],
)
def test_segments(reduce: str, expected: list[float]) -> None:
    x, lengths = rl.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), rl.tensor([1, 0, 2, 2])
    found = rl.segment_reduce(x, reduce, lengths=lengths)
    np.testing.assert_array_equal(found.tolist(), expected)
    offsets = rl.tensor([0, 1, 1, 3, 5])
    np.testing.assert_array_equal(rl.segment_reduce(x, reduce, offsets=offsets).tolist(), expected)
