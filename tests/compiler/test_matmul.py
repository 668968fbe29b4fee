"""Matrix products recognised in loops: computed by their strides, they give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler.matmul import Matmul, Matrix, recognise

RNG = np.random.default_rng(0)


def values(*shape: int) -> rl.Tensor:
    return rl.tensor(RNG.integers(-4, 5, shape).astype(np.float32))


def by_strides(product_: Matmul, memories: list[np.ndarray]) -> None:
    """Compute a product as a library would, from flat memory, offsets and strides alone."""

    def seen(matrix: Matrix, rows: int, columns: int, outer: tuple[int, ...]) -> np.ndarray:
        memory = memories[matrix.parameter]
        start = matrix.offset + sum(i * s for i, s in zip(outer, matrix.outer))
        strides = tuple(4 * s for s in (matrix.batch, matrix.row, matrix.column))
        shape = (product_.batch, rows, columns)
        return np.lib.stride_tricks.as_strided(memory[start:], shape, strides)

    p = product_
    for outer in product(*map(range, p.outer)):
        left, right = seen(p.left, p.m, p.k, outer), seen(p.right, p.k, p.n, outer)
        seen(p.result, p.m, p.n, outer)[...] = left @ right


CASES: dict[str, tuple[Callable[..., rl.Tensor], tuple[tuple[int, ...], ...]]] = {
    "plain": (lambda a, b: a @ b, ((200, 250), (250, 300))),
    "linear": (lambda a, w: rl.nn.functional.linear(a, w), ((200, 250), (300, 250))),
    "left transposed": (lambda a, b: a.T @ b, ((250, 200), (250, 300))),
    "batched linear": (lambda a, w: rl.nn.functional.linear(a, w), ((4, 50, 250), (300, 250))),
    "batches": (lambda a, b: a @ b.mT, ((2, 3, 150, 100), (2, 3, 200, 100))),
    "heads inside rows": (
        lambda x: (
            x[:, :, :200].reshape(2, 250, 2, 100).transpose(1, 2)
            @ x[:, :, 200:400].reshape(2, 250, 2, 100).permute(0, 2, 3, 1)
        ),
        ((2, 250, 600),),
    ),
    "heads back": (lambda a, b: a @ b.transpose(1, 2), ((2, 3, 100, 150), (2, 150, 3, 200))),
    "one row": (lambda a, b: a @ b, ((1, 3000), (3000, 3000))),
    "outer": (lambda a, b: rl.einsum("ij,ik->jk", a, b), ((300, 200), (300, 250))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_strides_say_it_all(name: str) -> None:
    function, shapes = CASES[name]
    tensors = [values(*shape) for shape in shapes]
    loops = rl.loops(function, *tensors)
    found = recognise(loops.lowered.kernel)
    assert found is not None
    expected = function(*tensors)
    slots = [t.numpy().reshape(-1).copy() for t in tensors]
    slots += [np.zeros(expected.numel(), np.float32)]
    memories = [slots[param.slot] for param in loops.lowered.kernel.params]
    by_strides(found, memories)
    np.testing.assert_array_equal(slots[-1], expected.numpy().reshape(-1))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: rl.relu(a @ b), ((200, 250), (250, 300))),  # more than a product
        (lambda x, w: rl.nn.functional.conv2d(x, w), ((40, 8, 64, 64), (8, 8, 3, 3))),
        (lambda a, b: a @ b, ((40, 50), (50, 60))),  # too small to pay
        (lambda a, b: (a @ b).sum(), ((200, 250), (250, 300))),
    ],
)
def test_what_is_no_product_is_left_alone(
    function: Callable[..., rl.Tensor], shapes: tuple[tuple[int, ...], ...]
) -> None:
    tensors = [values(*shape) for shape in shapes]
    try:
        kernel = rl.loops(function, *tensors).lowered.kernel
    except rl.RidgelineError:
        return  # two kernels
    assert recognise(kernel) is None
