"""Comparing with torch: the same program on the same numbers, values and gradients alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import ridgeline as rl

DTYPES = {
    "float32": (rl.float32, torch.float32),
    "float64": (rl.float64, torch.float64),
    "int64": (rl.int64, torch.int64),
    "int32": (rl.int32, torch.int32),
    "uint8": (rl.uint8, torch.uint8),
    "bool": (rl.bool, torch.bool),
}


def both(array: np.ndarray, requires_grad: bool = False) -> tuple[rl.Tensor, torch.Tensor]:
    """The same numbers as our tensor and as torch's."""
    ours, theirs = rl.tensor(array), torch.tensor(array)
    if requires_grad:
        ours.requires_grad_()
        theirs.requires_grad_()
    return ours, theirs


def numbers(shape: Sequence[int], seed: int = 0, kind: str = "float64") -> np.ndarray:
    """Reproducible numbers away from kinks and poles."""
    random = np.random.default_rng([seed, *shape])
    if kind == "bool":
        return random.random(tuple(shape)) < 0.5
    if kind.startswith(("int", "uint")):
        return random.integers(1, 9, tuple(shape)).astype(kind)
    return random.uniform(0.2, 1.7, tuple(shape)).astype(kind) * random.choice(
        [-1, 1], tuple(shape)
    )


def flat(result: Any) -> list[Any]:
    """Tensors of a result in order, whether it is one or a tuple of them."""
    if isinstance(result, rl.Tensor | torch.Tensor):
        return [result]
    return list(result) if isinstance(result, list | tuple) else []


def same(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    """Equal element types, shapes and values."""
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    assert tuple(ours.shape) == tuple(theirs.shape)
    want = theirs.detach().numpy(force=True)
    got = ours.detach().numpy()
    if want.dtype.kind in "fc":
        if want.dtype.itemsize == 4:
            tolerance = max(tolerance, 3e-6)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        np.testing.assert_array_equal(got, want)


def agree(
    program: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    *,
    gradients: bool = True,
    second: bool = False,
    tolerance: float = 1e-9,
) -> None:
    """`program(library, *tensors)` gives the same values, gradients and second gradients."""
    pairs = [both(a, gradients and a.dtype.kind == "f") for a in arrays]
    ours = flat(program(rl, *[p[0] for p in pairs]))
    theirs = flat(program(torch, *[p[1] for p in pairs]))
    assert len(ours) == len(theirs) > 0
    for got, want in zip(ours, theirs):
        same(got, want, tolerance)
        if gradients:
            assert got.requires_grad == want.requires_grad
    leaves = [p for p in pairs if p[0].requires_grad]
    if not gradients or not leaves:
        return
    picked = [(o, t) for o, t in zip(ours, theirs) if t.requires_grad]
    if not picked:
        return
    weights = [numbers(t.shape, 7, str(t.dtype).split(".")[-1]) for _, t in picked]
    first = [
        library.autograd.grad(
            [p[place] for p in picked],
            [leaf[place] for leaf in leaves],
            [library.tensor(w) for w in weights],
            create_graph=second,
            allow_unused=True,
        )
        for place, library in ((0, rl), (1, torch))
    ]
    for got, want in zip(*first):
        assert (got is None) == (want is None)
        if want is not None:
            same(got, want, tolerance)
    if second:
        _second(first, leaves, tolerance)


def _second(first: list[Any], leaves: list[Any], tolerance: float) -> None:
    """Gradients of the gradients."""
    usable = [
        (g, w) for g, w in zip(*first) if w is not None and w.requires_grad and g.requires_grad
    ]
    if not usable:
        return
    sums = [sum((p[i] * p[i]).sum() for p in usable) for i in (0, 1)]
    found = [
        library.autograd.grad(total, [leaf[i] for leaf in leaves], allow_unused=True)
        for i, (library, total) in enumerate(zip((rl, torch), sums))
    ]
    for got, want in zip(*found):
        zero = got is None or not np.any(got.detach().numpy())
        if want is None:
            assert zero
        elif got is None:
            assert not np.any(want.detach().numpy(force=True))
        else:
            same(got, want, tolerance * 10)
