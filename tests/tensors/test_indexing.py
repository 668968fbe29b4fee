"""Subscripts: random index expressions and assignments against torch, through views too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from tests.functions.reference import agree, numbers, same

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def converted(index: Any, library: Any) -> Any:
    """An index in which arrays are tensors of a library."""
    if isinstance(index, tuple):
        return tuple(converted(part, library) for part in index)
    return library.tensor(index) if isinstance(index, np.ndarray) else index


@st.composite
def slices(draw: Any, size: int) -> slice:
    edge = st.none() | st.integers(-size - 1, size + 1)
    return slice(draw(edge), draw(edge), draw(st.none() | st.integers(1, 3)))


@st.composite
def subscripts(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A subscript that fits a shape: basic parts, index arrays of one shape, masks."""
    common = draw(st.sampled_from([(), (1,), (2,), (3, 1), (2, 2)]))
    parts: list[Any] = []
    axis, dotted = 0, False
    while axis < len(shape):
        kind = draw(st.sampled_from(["int", "slice", "none", "index", "mask", "dots", "stop"]))
        size = shape[axis]
        if kind == "stop":
            break
        if kind == "none":
            if len(parts) < 6:
                parts.append(None)
            else:
                break
        elif kind == "dots":
            if not dotted:
                dotted = True
                parts.append(Ellipsis)
        elif kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
            axis += 1
        elif kind == "slice":
            parts.append(draw(slices(size)))
            axis += 1
        elif kind == "index":
            count = int(np.prod(common))
            values = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
            parts.append(np.array(values, np.int64).reshape(common))
            axis += 1
        elif not dotted and not any(isinstance(p, np.ndarray) for p in parts):
            bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            parts.append(np.array(bits, bool))
            axis += 1
            common = (int(sum(bits)),)
    if dotted:  # axes after the dots are counted from the end: keep only what fits there too
        parts = parts[: next(n for n, p in enumerate(parts) if p is Ellipsis) + 1]
    return tuple(parts)


@st.composite
def programs(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...]]:
    shape = draw(SHAPES)
    return (
        shape,
        draw(subscripts(shape)),
        draw(st.sampled_from([(), (0,), (slice(None, None, 2),)])),
    )


@settings(max_examples=150, deadline=None)
@given(programs())
def test_reading(program: Any) -> None:
    shape, index, _ = program
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    ours, theirs = rl.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    got, want = ours[converted(index, rl)], theirs[converted(index, torch)]
    same(got, want)
    if want.numel():
        (got * got).sum().backward()
        (want * want).sum().backward()
        same(ours.grad, theirs.grad)


@settings(max_examples=150, deadline=None)
@given(programs(), st.sampled_from(["number", "whole", "added"]))
def test_assigning_through_views(program: Any, form: str) -> None:
    shape, index, outer = program
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    results = []
    for library in (torch, rl):
        whole = library.tensor(x)
        target = whole[outer] if outer and outer != (0,) else whole
        inner = converted(index, library)
        if any(isinstance(p, int) for p in index) and outer and outer != (0,):
            inner = tuple(0 if isinstance(p, int) else p for p in inner)
        try:
            if form == "number":
                target[inner] = -1.0
            elif form == "added":
                target[inner] += 100.0
            else:
                count = int(np.prod(tuple(target[inner].shape)))
                values = -np.arange(1, count + 1, dtype=np.float64)
                target[inner] = library.tensor(values.reshape(tuple(target[inner].shape)))
        except (IndexError, RuntimeError, rl.RidgelineError) as error:
            results.append(error)
        else:
            results.append(whole)
    want, got = results
    if isinstance(want, Exception):
        assert isinstance(got, rl.RidgelineError)
    elif form != "whole" or not _repeats(index):  # which of several writes wins is not defined
        same(got, want)


def _repeats(index: tuple[Any, ...]) -> bool:
    return any(isinstance(p, np.ndarray) and p.dtype != bool for p in index)


@pytest.mark.parametrize("index", [
    ([0, 1],), ([0, 1], [1, 2]), (slice(None), [2, 0]), (0, slice(None), [1, 1]),
    ([1, 0], slice(None), [1, 1]), (True,), (False,), (None, True, [0]), ([],),
    (np.array([[True, False, True], [False, True, True]]),),
    (slice(None), np.array([[True] * 4, [False] * 4, [True] * 4])),
    (Ellipsis, np.array([3, -1])), (np.array(1),), (np.array([[0], [1]]), np.array([0, 2])),
], ids=str)  # fmt: skip
def test_forms_of_subscripts(index: Any) -> None:
    agree(lambda lib, x: x[converted(index, lib)], [numbers((2, 3, 4))], second=True)


def test_writing_through_a_chain_of_views() -> None:
    results = []
    for lib in (rl, torch):
        x = lib.arange(24).reshape(2, 3, 4)
        x[1].t()[lib.tensor([0, 2]), 1:] = 0
        x[:, ::2][x[:, ::2] > 20] -= 100
        x[0].diagonal(1).fill_(7)
        x[..., -1][lib.tensor([[True, False, False], [False, True, True]])] *= 2
        results.append(x.tolist())
    assert results[0] == results[1]


def test_gradients_pass_through_assignments() -> None:
    def program(lib, x, v):
        y = x * 1
        y[lib.tensor([2, 0])] = v
        y[:, y[0] > 0] *= 3
        return y * y

    agree(program, [numbers((3, 4)), numbers((2, 4), 1)], second=True)


def test_masks_under_jit() -> None:
    @rl.jit
    def clear(x: rl.Tensor, mask: rl.Tensor, index: rl.Tensor) -> rl.Tensor:
        y = x * 2
        y[mask] = 0
        y[index] += 1
        return y[index] + y[0]

    x, mask, index = rl.tensor([1.0, 2, 3]), rl.tensor([True, False, True]), rl.tensor([1, 1])
    assert clear(x, mask, index).tolist() == [5, 5]

    @rl.jit
    def select(x: rl.Tensor, mask: rl.Tensor) -> rl.Tensor:
        return rl.cond(x.sum() > 0, lambda x: x[mask].sum(), lambda x: x.sum(), x)

    with pytest.raises(rl.RidgelineError, match="RL0401") as caught:
        select(x, mask)
    assert "where(mask, x, y)" in str(caught.value) and "test_indexing.py" in str(caught.value)


@pytest.mark.parametrize("call, message", [
    (lambda x: x[rl.tensor([True, False])], "does not fit axes 0 to 0"),
    (lambda x: x[0, 0, 0], "3 indices for a tensor with 2 axes"),
    (lambda x: x[rl.tensor([0.5])], "is no index"),
    (lambda x: x[..., ...], "one ellipsis"),
    (lambda x: x[rl.tensor([0, 1]), rl.tensor([0, 1, 1])], "cannot be broadcast"),
    (lambda x: x.__setitem__(rl.tensor([0, 1]), rl.zeros(3)), "cannot be broadcast"),
    (lambda x: x[7], "outside axis 0 of size 3"),
])  # fmt: skip
def test_wrong_subscripts_are_explained(call: Any, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call(rl.zeros(3, 2))


UNTOUCHED = {
    "rows of nothing": lambda lib, z, i: z(3, 0)[i(5)],
    "rows of nothing, from the end": lambda lib, z, i: z(3, 0)[i(-5)],
    "columns of nothing": lambda lib, z, i: z(0, 3)[:, i(5)],
    "around nothing": lambda lib, z, i: z(3, 0, 2)[i(9), :, i(1)],
    "beside an index of nothing": lambda lib, z, i: z(3, 2)[i(9), i()],
    "an axis of nothing": lambda lib, z, i: z(0, 3)[i(5)],
    "an axis of nothing and another": lambda lib, z, i: z(3, 0)[i(5), i(0)],
    "a number": lambda lib, z, i: z(3, 0)[5],
    "index_put": lambda lib, z, i: z(3, 0).index_put((i(5),), lib.ones(())),
    "index_select": lambda lib, z, i: lib.index_select(z(3, 0), 0, i(5)),
    "index_add": lambda lib, z, i: z(3, 0).index_add(0, i(5), z(1, 0)),
    "index_copy": lambda lib, z, i: z(0, 3).index_copy(1, i(5), z(0, 1)),
    "index_fill": lambda lib, z, i: z(0, 3).index_fill(1, i(5), 1.0),
    "index_reduce": lambda lib, z, i: z(3, 0).index_reduce(0, i(5), z(1, 0), "prod"),
    "take": lambda lib, z, i: lib.take(z(0), i(0)),
}


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("case", UNTOUCHED)
def test_indices_out_of_range_where_no_element_is_touched(case: str, tier: str) -> None:
    def result(lib: Any) -> Any:
        made = UNTOUCHED[case](
            lib,
            lambda *shape: lib.zeros(shape),
            lambda *places: lib.tensor(list(places), dtype=lib.int64),
        )
        return tuple(made.shape), made.tolist()

    try:
        want = result(torch)
    except (IndexError, RuntimeError):
        want = None
    with rl.config.override(tier=tier):
        if want is None:
            with pytest.raises(rl.RidgelineError):
                result(rl)
        else:
            assert result(rl) == want


def _bad_row(x: Any) -> None:
    x[7]


def _bad_value(x: Any) -> None:
    x[:, 0] = rl.ones(5)


def _bad_copy(x: Any) -> None:
    x.copy_(rl.ones(2, 3, 4))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_bad_row, "index 7 is outside axis 0 of size 3"),
        (_bad_value, "a value of shape [5] does not fit into [3]"),
        (_bad_copy, "a value of shape [2, 3, 4] does not fit into [3, 4]"),
    ],
)
def test_errors_name_the_operands_and_where_they_were_made(act: Any, message: str) -> None:
    x = rl.ones(3, 4)
    with pytest.raises(rl.RidgelineError) as caught:
        act(x)
    assert message in caught.value.message
    assert "operand 1 of" in caught.value.note and "test_indexing.py:" in caught.value.note
