"""Values that no function takes are errors alike in every way to run, and change no state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ridgeline as rl
from ridgeline.nn import functional as F

torch: Any = pytest.importorskip("torch")


@pytest.fixture(params=["interpreter", "compiled"])
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with rl.config.override(tier=request.param):
        yield


def ways(function: Callable[..., Any], *values: Any) -> list[Callable[[], Any]]:
    """A call at once, of computed values, op by op, captured, mapped."""

    def eagerly() -> Any:
        with rl.eager():
            return function(*[v.clone() for v in values]).tolist()

    return [
        lambda: function(*values).tolist(),
        lambda: function(*[v * 1 for v in values]).tolist(),
        eagerly,
        lambda: rl.jit(function)(*values).tolist(),
        lambda: rl.vmap(function)(*[rl.stack([v * 1, v * 1]) for v in values]).tolist(),
    ]


DIVISIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: 7 // b + a * 0,
    lambda a, b: a.fmod(b),
    lambda a, b: a.div(b, rounding_mode="trunc"),
]


@pytest.mark.parametrize("number", range(len(DIVISIONS)))
@pytest.mark.parametrize("kind", [rl.int64, rl.uint8])
def test_integers_are_not_divided_by_zero(tier: None, number: int, kind: rl.DType) -> None:
    divide = DIVISIONS[number]
    a, zero, right = (rl.tensor(v, dtype=kind) for v in ([7, 8], [3, 0], [3, 5]))
    with pytest.raises(RuntimeError):
        divide(*(torch.tensor(v.tolist()) for v in (a, zero)))
    for way in ways(divide, a, zero):
        with pytest.raises(ZeroDivisionError):
            way()
    wanted = divide(torch.tensor([7, 8]), torch.tensor([3, 5])).tolist()
    for way in ways(divide, a, right):
        found = way()
        assert found in (wanted, [wanted, wanted])


def test_a_zero_that_python_gives_is_an_error_at_once(tier: None) -> None:
    for wrong in (lambda: rl.tensor([7]) // 0, lambda: rl.jit(lambda a: a % 0)(rl.tensor([7]))):
        with pytest.raises(ZeroDivisionError):
            wrong()
    assert (rl.tensor([7.0]) // 0).tolist() == [float("inf")]


LABELS: list[Callable[[Any], Any]] = [
    lambda y: F.cross_entropy(rl.ones(3, 4), y),
    lambda y: F.nll_loss(rl.ones(3, 4), y),
    lambda y: F.one_hot(y, 4),
    lambda y: F.multi_margin_loss(rl.ones(3, 4), y),
]


@pytest.mark.parametrize("number", range(len(LABELS)))
def test_labels_that_name_no_class(tier: None, number: int) -> None:
    for wrong in ([0, 4, 1], [0, -1, 1]):
        for way in ways(LABELS[number], rl.tensor(wrong)):
            with pytest.raises(IndexError):
                way()


def test_probabilities_and_variances_are_checked(tier: None) -> None:
    for wrong in ([0.5, 1.5], [-0.1, 0.5], [float("nan"), 0.5]):
        for way in ways(lambda p: F.binary_cross_entropy(p, rl.ones(2)), rl.tensor(wrong)):
            with pytest.raises(ValueError, match="0…1"):
                way()
    for way in ways(lambda v: F.gaussian_nll_loss(rl.ones(2), rl.ones(2), v), rl.tensor([1.0, -1])):
        with pytest.raises(ValueError):
            way()
    x = rl.tensor([0.25, 0.75], requires_grad=True)
    rl.jit(F.binary_cross_entropy)(x, rl.tensor([0.0, 1.0])).backward()
    theirs = torch.tensor([0.25, 0.75], requires_grad=True)
    torch.nn.functional.binary_cross_entropy(theirs, torch.tensor([0.0, 1.0])).backward()
    assert x.grad is not None and x.grad.tolist() == pytest.approx(theirs.grad.tolist())


def test_a_wrong_label_leaves_parameters_and_optimizer_as_they_were(tier: None) -> None:
    weight = rl.ones(4, requires_grad=True)
    optimizer = rl.optim.Adam([weight], lr=0.1)

    @rl.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(x * weight, y)
        loss.backward()
        optimizer.step()
        return loss

    x, right = rl.arange(12.0).reshape(3, 4), rl.tensor([0, 1, -100])
    for _ in range(3):
        step(x, right)
    before = weight.tolist(), str(optimizer.state_dict())
    with pytest.raises(IndexError, match="label 9"):
        step(x, rl.tensor([0, 9, 1])).item()
    assert (weight.tolist(), str(optimizer.state_dict())) == before


SHAPES = [(4,), (4, 1), (1, 4), (3, 4), (3, 1), (), (1,), (3,), (0,), (2, 3, 4)]
EXACT = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss",
    "multilabel_soft_margin_loss", "poisson_nll_loss", "hinge_embedding_loss", "kl_div",
]  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_losses_take_the_shapes_that_torch_takes(name: str) -> None:
    for a in SHAPES:
        for b in SHAPES:
            assert _shape_of(rl, name, a, b) == _shape_of(torch, name, a, b), (a, b)


@pytest.mark.parametrize("name", ["margin_ranking_loss", "triplet_margin_loss", "gaussian_nll_loss",
                                  "cosine_embedding_loss"])  # fmt: skip
def test_losses_of_three_take_the_shapes_that_torch_takes(name: str) -> None:
    for a in SHAPES[:6]:
        for b in SHAPES[:6]:
            for c in SHAPES[:6]:
                assert _shape_of(rl, name, a, b, c) == _shape_of(torch, name, a, b, c), (a, b, c)


def _shape_of(library: Any, name: str, *shapes: tuple[int, ...]) -> Any:
    operands = [library.full(shape, 0.5) for shape in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return tuple(getattr(library.nn.functional, name)(*operands).shape)
        except (RuntimeError, ValueError, IndexError):
            return "refused"


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_a_stretched_target_is_warned_of_and_two_stretched_ones_are_refused(name: str) -> None:
    loss = getattr(F, name)
    with pytest.warns(UserWarning, match="stretched"):
        loss(rl.ones(3, 4), rl.ones(4))
    with pytest.raises(ValueError):
        loss(rl.ones(4, 1), rl.ones(4))


STORED: list[Callable[[Any], Any]] = [
    lambda lib: lib.tensor([300], dtype=lib.uint8),
    lambda lib: lib.tensor([-1], dtype=lib.uint8),
    lambda lib: lib.tensor([-300], dtype=lib.uint8),
    lambda lib: lib.tensor([-129], dtype=lib.int8),
    lambda lib: lib.tensor([1e10, 0.0], dtype=lib.int32),
    lambda lib: lib.tensor([float("nan")], dtype=lib.int64),
    lambda lib: lib.tensor([1 + 2j], dtype=lib.float32),
    lambda lib: lib.tensor([2**70]),
    lambda lib: lib.tensor([2**63, -1]),
    lambda lib: lib.tensor([2**63], dtype=lib.uint64),
    lambda lib: lib.tensor([1e40]),
    lambda lib: lib.full((2,), 300, dtype=lib.uint8),
    lambda lib: lib.full((2,), 1e40),
    lambda lib: lib.full((2,), float("inf"), dtype=lib.float16),
    lambda lib: lib.full_like(lib.ones(2, dtype=lib.int8), 200),
    lambda lib: lib.ones(2, dtype=lib.uint8).fill_(300),
    lambda lib: lib.ones(2, dtype=lib.uint8).fill_(lib.tensor(300)),
    lambda lib: lib.ones(2, dtype=lib.uint8).__setitem__(0, 300),
    lambda lib: lib.ones(2, dtype=lib.uint8).__setitem__(lib.tensor([True, False]), 300),
    lambda lib: lib.ones(2, dtype=lib.uint8).masked_fill(lib.tensor([True, False]), 300),
    lambda lib: lib.ones(2, dtype=lib.uint8).clamp(max=300),
    lambda lib: lib.ones(2, dtype=lib.uint8).clamp(max=300.5),
    lambda lib: lib.where(lib.tensor([True]), lib.ones(1, dtype=lib.uint8), 300),
    lambda lib: lib.ones(2, dtype=lib.uint8).index_fill(0, lib.tensor([0]), 300),
    lambda lib: lib.ones(2, dtype=lib.uint8).scatter(0, lib.tensor([0]), 300),
    lambda lib: lib.nn.functional.pad(lib.ones(2, dtype=lib.uint8), (1, 1), value=300),
    lambda lib: lib.ones(2, dtype=lib.uint8).pow(300),
    lambda lib: lib.linspace(0, 1000, 3, dtype=lib.uint8),
    lambda lib: lib.ones(2, dtype=lib.uint8) + 300,
    lambda lib: lib.ones(2, dtype=lib.uint8).add_(300),
]


@pytest.mark.parametrize("number", range(len(STORED)))
def test_numbers_that_are_stored_fit_as_in_torch(number: int) -> None:
    def verdict(library: Any) -> Any:
        try:
            made = STORED[number](library)
        except (RuntimeError, ValueError, TypeError):
            return "refused"
        return None if made is None else made.tolist()

    assert verdict(rl) == verdict(torch)
