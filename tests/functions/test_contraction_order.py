"""The order of contractions against every order there is, and products of several operands."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.functions.contraction_order import MOST_EXACT, contraction_order

Labels = tuple[str, ...]


def _cost(operands: list[Labels], output: Labels, size: dict[str, int], order: object) -> int:
    """Multiplications of an order, counted by carrying it out over sets of labels."""
    alive = {place: set(labels) for place, labels in enumerate(operands)}
    total = 0
    for place, (a, b) in enumerate(order, len(operands)):  # type: ignore[arg-type]
        one, other = alive.pop(a), alive.pop(b)
        later = set(output).union(*alive.values())
        one, other = one & (later | other), other & (later | one)
        total += prod(size[label] for label in one | other)
        alive[place] = (one | other) & later
    assert len(alive) == 1
    return total


def _least(alive: list[set[str]], output: Labels, size: dict[str, int]) -> int:
    """The cost of the best of all orders, by trying each."""
    if len(alive) == 1:
        return 0
    costs = []
    for i, j in combinations(range(len(alive)), 2):
        rest = [labels for place, labels in enumerate(alive) if place not in (i, j)]
        later = set(output).union(*rest)
        one, other = alive[i] & (later | alive[j]), alive[j] & (later | alive[i])
        cost = prod(size[label] for label in one | other)
        costs.append(cost + _least([*rest, (one | other) & later], output, size))
    return min(costs)


def _network(seed: int, count: int) -> tuple[list[Labels], Labels, dict[str, int]]:
    rng = np.random.default_rng(seed)
    letters = "abcdefg"
    operands: list[Labels] = []
    for _ in range(count):
        chosen = rng.choice(list(letters), rng.integers(1, 4), replace=False)
        operands.append(tuple(map(str, chosen)))
    used = sorted({label for labels in operands for label in labels})
    output = tuple(label for label in used if rng.random() < 0.4)
    return operands, output, {label: int(rng.integers(1, 20)) for label in letters}


def _order(operands: list[Labels], output: Labels, size: dict[str, int]) -> tuple[object, ...]:
    listed = list(dict.fromkeys(label for each in operands for label in each))
    return contraction_order(tuple(operands), output, tuple(size[label] for label in listed))


@pytest.mark.parametrize("seed", range(60))
def test_no_order_costs_less(seed: int) -> None:
    operands, output, size = _network(seed, 2 + seed % 4)
    found = _cost(operands, output, size, _order(operands, output, size))
    assert found == _least([set(labels) for labels in operands], output, size)


@pytest.mark.parametrize("count", [MOST_EXACT, MOST_EXACT + 1, 24])
def test_every_operand_is_contracted_once(count: int) -> None:
    operands, output, size = _network(count, count)
    order = _order(operands, output, size)
    assert len(order) == count - 1
    _cost(operands, output, size, order)


def test_a_long_chain_is_no_worse_than_left_to_right() -> None:
    rng = np.random.default_rng(3)
    sides = [int(n) for n in rng.integers(2, 50, 13)]
    letters = "abcdefghijklm"
    operands = [(letters[i], letters[i + 1]) for i in range(12)]
    output, size = (letters[0], letters[12]), dict(zip(letters, sides))
    left_to_right = [(0, 1), *((12 + i, i + 2) for i in range(10))]
    order = _order(operands, output, size)
    assert _cost(operands, output, size, order) <= _cost(operands, output, size, left_to_right)


EQUATIONS = [
    ("ij,jk,kl->il", [(9, 40), (40, 3), (3, 50)]),
    ("bi,oij,bj->bo", [(5, 6), (4, 6, 7), (5, 7)]),
    ("ab,bc,cd,de,ef->af", [(2, 9), (9, 8), (8, 3), (3, 7), (7, 2)]),
    ("...i,ij,...j->...", [(3, 1, 4), (4, 5), (3, 2, 5)]),
    ("i,j,k->kji", [(2,), (3,), (4,)]),
    ("ij,ik,il->jkl", [(1, 3), (6, 4), (6, 5)]),  # an axis of size 1 stands for six
    ("ii,ij,j->", [(4, 4), (4, 5), (5,)]),
    ("a,ab,bc,cd,de,ef,fg,gh,hi->i", [(2,), *((2 + i % 3, 2 + (i + 1) % 3) for i in range(8))]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("how", ["recorded", "eager", "jitted"])
def test_values_and_gradients(equation: str, shapes: list[tuple[int, ...]], how: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(len(equation))
    arrays = [rng.standard_normal(shape) for shape in shapes]
    ours = [rl.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    expected = torch.einsum(equation, *theirs)
    seed = rng.standard_normal(tuple(expected.shape))

    def run(*operands: rl.Tensor) -> list[rl.Tensor]:
        made = rl.einsum(equation, *operands)
        return [made, *rl.autograd.grad(made, list(operands), rl.tensor(seed))]

    if how == "eager":
        with rl.eager():
            found = run(*ours)
    else:
        found = (rl.jit(run) if how == "jitted" else run)(*ours)
    gradients = torch.autograd.grad(expected, theirs, torch.tensor(seed))
    for mine, truth in zip(found, [expected, *gradients], strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), truth.detach().numpy(), rtol=1e-10)


def test_a_matrix_before_a_vector_never_meets_another_matrix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The order is in the program: of two products, none has three long axes."""
    a, b, v = rl.ones(64, 64), rl.ones(64, 64), rl.ones(64)
    function = rl.jit(lambda x, y, z: rl.einsum("ij,jk,k->i", x, y, z))
    function.explain(a, b, v, after="decompose")
    text = capsys.readouterr().out
    assert text.count("extents=(64, 64),") == 2 and "extents=(64, 64, 64)" not in text


def test_sizes_that_are_unknown_have_an_order_too() -> None:
    function = rl.jit(lambda x, y, z: rl.einsum("ij,jk,k->i", x, y, z), dynamic=True)
    for n in (5, 9, 17):
        x, y, z = (np.random.default_rng(n).standard_normal(s) for s in ((n, 7), (7, n), (n,)))
        found = function(rl.tensor(x), rl.tensor(y), rl.tensor(z)).numpy()
        np.testing.assert_allclose(found, x @ (y @ z), rtol=1e-10)
