"""Sampling on grids, windows as columns, and alignments, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.functions.reference import agree
from tests.ops.derivatives import check_derivatives

IMAGE = np.random.default_rng(1).standard_normal((2, 2, 4, 5))
VOLUME = np.random.default_rng(1).standard_normal((1, 2, 3, 4, 5))


def grid(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1.4, 1.4, shape)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_grid_sample(mode: str, border: str, align: bool) -> None:
    def program(lib: Any, x: Any, g: Any) -> Any:
        return lib.nn.functional.grid_sample(x, g, mode, border, align)

    agree(program, [IMAGE, grid(2, 3, 6, 2)])
    if mode != "bicubic":
        agree(program, [VOLUME, grid(1, 2, 3, 4, 3)])


def test_grid_sample_in_both_modes() -> None:
    check_derivatives(
        lambda x, g: rl.grid_sample(x, g, align_corners=True), IMAGE[:1, :1], grid(1, 2, 2, 2)
    )


@pytest.mark.parametrize("align", [True, False])
def test_affine_grid(align: bool) -> None:
    for size, theta in (((2, 1, 3, 4), grid(2, 2, 3)), ((1, 1, 2, 3, 4), grid(1, 3, 4))):

        def program(lib: Any, t: Any, size: Any = size) -> Any:
            return lib.nn.functional.affine_grid(t, size, align_corners=align)

        agree(program, [theta])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_loss(reduction: str) -> None:
    logits = np.random.default_rng(0).standard_normal((8, 3, 5))
    labels = np.array([[1, 2, 2, 3], [4, 4, 1, 0], [2, 1, 0, 0]])

    def program(lib: Any, x: Any) -> Any:
        logs = lib.nn.functional.log_softmax(x, -1)
        targets, lengths = lib.tensor(labels), lib.tensor([4, 3, 2])
        return lib.nn.functional.ctc_loss(
            logs, targets, lib.tensor([8, 7, 6]), lengths, reduction=reduction
        )

    agree(program, [logits], tolerance=1e-6)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("tensors", [False, True])
def test_ctc_loss_under_jit_takes_targets_and_lengths_as_they_come(
    listed: bool, tensors: bool
) -> None:
    rng = np.random.default_rng(3)

    def loss(lib: Any, x: Any, targets: Any, times: Any, counts: Any) -> Any:
        logs = lib.nn.functional.log_softmax(x, -1)
        return lib.nn.functional.ctc_loss(logs, targets, times, counts)

    def gradient(x: rl.Tensor, *rest: Any) -> tuple[rl.Tensor, rl.Tensor]:
        found = loss(rl, x, *rest)
        return found, rl.autograd.grad(found, x)[0]

    compiled = rl.jit(gradient)
    for _ in range(3):
        values = rng.standard_normal((7, 3, 5)).astype(np.float32)
        counts = rng.permutation([3, 0, 2]).tolist() if tensors else [3, 0, 2]
        times = rng.permutation([7, 4, 6]).tolist() if tensors else [7, 4, 6]
        rows = rng.integers(1, 5, (3, 4))
        padded = np.where(np.arange(4) < np.array(counts)[:, None], rows, -7)  # padding is not read
        targets = np.concatenate([r[:c] for r, c in zip(rows, counts)]) if listed else padded
        expected = torch.tensor(values.astype(np.float64), requires_grad=True)
        lengths = (torch.tensor(times), torch.tensor(counts)) if tensors else (times, counts)
        wanted = loss(torch, expected, torch.tensor(targets), *lengths)
        wanted.backward()
        own = (rl.tensor(times), rl.tensor(counts)) if tensors else (times, counts)
        for run in (gradient, compiled):
            found = run(rl.tensor(values, requires_grad=True), rl.tensor(targets), *own)
            np.testing.assert_allclose(found[0].item(), wanted.item(), rtol=1e-5)
            np.testing.assert_allclose(found[1].numpy(), expected.grad.numpy(), atol=1e-6)
    assert compiled.traces == 1


def test_ctc_loss_of_an_impossible_alignment() -> None:
    logs = rl.log_softmax(rl.zeros(2, 1, 3), -1)
    targets = rl.tensor([[1, 1, 2]])
    lost = rl.ctc_loss(logs, targets, (2,), (3,))
    kept = rl.ctc_loss(logs, targets, (2,), (3,), zero_infinity=True)
    assert lost.item() == float("inf") and kept.item() == 0


def test_statistics_of_norms() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for program in (
        lambda lib, t: tuple(lib.native_layer_norm(t, [5], None, None, 1e-5)),
        lambda lib, t: tuple(lib.native_group_norm(t, None, None, 3, 4, 5, 2, 1e-5)),
    ):
        agree(program, [x], gradients=False)


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addmv", "addr", "addbmm"])
def test_sums_of_products_ignore_what_counts_nothing(name: str) -> None:
    shapes = {
        "addmm": ((2, 3), (2, 4), (4, 3)),
        "baddbmm": ((5, 2, 3), (5, 2, 4), (5, 4, 3)),
        "addmv": ((2,), (2, 4), (4,)),
        "addr": ((2, 3), (2,), (3,)),
        "addbmm": ((2, 3), (5, 2, 4), (5, 4, 3)),
    }[name]
    arrays = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate(shapes)]
    agree(lambda lib, *t: getattr(lib, name)(*t, beta=0.5, alpha=2), arrays)
    arrays[0] = np.full(shapes[0], np.nan)
    got = getattr(rl, name)(*map(rl.tensor, arrays), beta=0)
    want = getattr(torch, name)(*map(torch.tensor, arrays), beta=0)
    np.testing.assert_allclose(got.numpy(), want.numpy())


def test_narrow_floats_round_once_and_a_type_asked_for_is_kept() -> None:
    x = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)
    ours, theirs = rl.tensor(x).to(rl.bfloat16), torch.tensor(x).bfloat16()
    for program in (
        lambda lib, t: lib.softmax(t, -1),
        lambda lib, t: lib.var(t, -1),
        lambda lib, t: lib.linalg.vector_norm(t, 3),
        lambda lib, t: lib.nn.functional.layer_norm(t, (9,)),
    ):
        got, want = program(rl, ours), program(torch, theirs)
        assert got.dtype is rl.bfloat16
        np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=8e-3)
    assert rl.softmax(ours, -1, dtype=rl.float32).dtype is rl.float32
    assert rl.linalg.vector_norm(ours, dtype=rl.float64).dtype is rl.float64


def test_wrong_input() -> None:
    x = rl.tensor(IMAGE)
    for wrong in (
        lambda: rl.grid_sample(x, rl.ones(2, 3, 6, 3).double()),
        lambda: rl.grid_sample(x, rl.ones(2, 3, 6, 2)),
        lambda: rl.grid_sample(x, rl.tensor(grid(2, 3, 6, 2)), mode="sideways"),
        lambda: rl.affine_grid(rl.ones(1, 2, 2), (1, 1, 2, 2)),
        lambda: rl.ctc_loss(rl.ones(2, 1, 3), rl.tensor([[1]]), (5,), (1,)),
        lambda: rl.ctc_loss(rl.ones(2, 1, 3), rl.tensor([[1]]), (2,), (1,), blank=7),
    ):
        with pytest.raises(RidgelineError):
            wrong()
