"""More of what goes wrong under other compilers: aliases, gradients, random numbers, state.

Each test says whose users met the pitfall; here the result is right, or refused with a message.
"""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim

pytestmark = pytest.mark.usefixtures("both_tiers")


def values(tensor: Any) -> Any:
    return tensor.tolist()


# ---- results and aliases ------------------------------------------------------------------------


def test_a_result_that_depends_on_nothing() -> None:
    """A constant result must be fresh memory in every call."""
    f = rl.jit(lambda: rl.zeros(2))
    first = f()
    first.add_(5)
    assert values(f()) == [0, 0] and values(first) == [5, 5]


def test_one_tensor_twice_in_the_result() -> None:
    def f(x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        y = x + 1
        return y, y

    for call in (f, rl.jit(f), rl.jit(f)):
        a, b = call(rl.zeros(1))
        a.add_(1)
        assert b.item() == 2


def test_a_result_that_is_a_view_of_an_argument() -> None:
    """torch.compile, functionalisation: the alias is lost, or the base is not written."""
    f = rl.jit(lambda x: x[1:].unsqueeze(0))
    for _ in range(2):
        x = rl.zeros(3)
        f(x).add_(2)
        assert values(x) == [0, 2, 2]


def test_a_result_that_is_the_tensor_from_outside() -> None:
    kept = rl.zeros(2)
    f = rl.jit(lambda: kept)
    f().add_(1)
    f().add_(1)
    assert values(kept) == [2, 2]


def test_arguments_that_overlap() -> None:
    """torch.compile: overlapping views of one base, one of them written."""

    def f(a: rl.Tensor, b: rl.Tensor) -> rl.Tensor:
        a.add_(1)
        return b * 10

    jitted = rl.jit(f)
    for _ in range(2):
        base = rl.zeros(4)
        assert values(jitted(base[:3], base[1:])) == [10, 10, 0]
        assert values(base) == [1, 1, 1, 0]
        assert values(jitted(rl.zeros(3), rl.zeros(3))) == [0, 0, 0]


def test_an_argument_that_is_also_the_closures() -> None:
    kept = rl.zeros(2)

    def f(x: rl.Tensor) -> rl.Tensor:
        x.add_(1)
        return kept * 10

    jitted = rl.jit(f)
    assert values(jitted(rl.zeros(2))) == [0, 0]
    assert values(jitted(kept)) == [10, 10]
    assert values(jitted(kept)) == [20, 20]
    assert values(jitted(rl.zeros(2))) == [20, 20]


def test_a_view_of_the_closures_tensor_as_an_argument() -> None:
    kept = rl.zeros(3)

    def f(x: rl.Tensor) -> rl.Tensor:
        kept.add_(1)
        return x * 1

    jitted = rl.jit(f)
    assert values(jitted(kept[1:])) == [1, 1]
    assert values(jitted(rl.zeros(2))) == [0, 0]
    assert values(jitted(kept[1:])) == [3, 3]


def test_results_without_tensors() -> None:
    f = rl.jit(lambda x: {"n": x.shape[0], "s": "text", "none": None, "list": [x, (1, x * 2)]})
    for n in (2, 3, 2):
        got = f(rl.ones(n))
        assert got["n"] == n and got["s"] == "text" and got["none"] is None
        assert values(got["list"][1][1]) == [2] * n


def test_only_effects() -> None:
    total = rl.zeros(1)

    @rl.jit
    def f(x: rl.Tensor) -> None:
        total.add_(x.sum())

    for _ in range(3):
        assert f(rl.ones(2)) is None
    assert total.item() == 6


def test_donating_one_tensor_twice_or_again() -> None:
    """XLA #22604: donating a buffer twice crashed."""
    f = rl.jit(lambda a, b: a + b, donate=True)
    x = rl.ones(2)
    try:
        assert values(f(x, x)) == [2, 2]
    except rl.RidgelineError as error:
        assert "donate" in str(error)
    y = rl.ones(2)
    f(y, rl.ones(2))
    with pytest.raises(rl.RidgelineError, match="donated"):
        f(y, rl.ones(2))


def test_donating_what_the_closure_reads() -> None:
    kept = rl.ones(2)
    f = rl.jit(lambda x: x * 2 + kept, donate="x")
    try:
        assert values(f(kept)) == [3, 3]
    except rl.RidgelineError as error:
        assert "donate" in str(error)


# ---- differentiation ----------------------------------------------------------------------------


def test_gradients_through_a_jitted_function() -> None:
    f = rl.jit(lambda x, w: (x * w).sum())
    for _ in range(2):
        w = rl.ones(3).requires_grad_()
        (f(rl.arange(3).float(), w) * 2).backward()
        assert w.grad is not None and values(w.grad) == [0, 2, 4]


def test_transforms_around_and_inside() -> None:
    square = rl.jit(lambda x: (x * x).sum())
    assert values(rl.grad(square)(rl.arange(3).float())) == [0, 2, 4]
    assert values(rl.vmap(square)(rl.ones(2, 3))) == [3, 3]
    inner = rl.jit(lambda x: rl.vmap(rl.grad(lambda r: (r * r).sum()))(x))
    assert values(inner(rl.ones(2, 2))) == [[2, 2], [2, 2]]
    assert values(rl.jit(rl.hessian(lambda x: (x**3).sum()))(rl.ones(2))) == [[6, 0], [0, 6]]


def test_a_gradient_that_is_set_to_none_between_calls() -> None:
    w = rl.ones(2).requires_grad_()

    @rl.jit
    def f() -> rl.Tensor:
        (w * w).sum().backward()
        assert w.grad is not None
        return w.grad * 1

    assert values(f()) == [2, 2]
    assert values(f()) == [4, 4]
    w.grad = None
    assert values(f()) == [2, 2]


# ---- random numbers -----------------------------------------------------------------------------


def test_a_generator_of_ones_own() -> None:
    """torch.compile: explicit generators break the graph or do not move on."""
    own = rl.Generator()
    f = rl.jit(lambda: rl.rand(2, generator=own))
    own.manual_seed(3)
    jitted = [values(f()) for _ in range(3)]
    own.manual_seed(3)
    plain = [values(rl.rand(2, generator=own)) for _ in range(3)]
    assert jitted == plain and jitted[0] != jitted[1]


def test_a_seed_set_inside_is_refused() -> None:
    """JAX has no such state; elsewhere the seed is set while tracing and never again."""

    def f() -> rl.Tensor:
        rl.manual_seed(5)
        return rl.rand(2)

    with pytest.raises(rl.RidgelineError, match="seed it before the jitted call"):
        rl.jit(f)()


# ---- models -------------------------------------------------------------------------------------


def test_a_model_that_changes_its_element_type() -> None:
    model = nn.Linear(2, 2)
    f = rl.jit(lambda x: model(x))
    assert f(rl.ones(1, 2)).dtype is rl.float32
    model.double()
    assert f(rl.ones(1, 2, dtype=rl.float64)).dtype is rl.float64


def test_a_child_that_is_replaced_and_one_that_is_added() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    f = rl.jit(lambda x: model(x))
    x = rl.ones(1, 2)
    f(x)
    model[0] = nn.Identity()
    assert values(f(x)) == [[1, 1]]
    model.append(nn.ReLU())
    assert values(f(-x)) == [[0, 0]]


def test_state_that_is_loaded_after_tracing() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    f = rl.jit(lambda x: model(x))
    x = rl.ones(1, 2)
    f(x)
    model.load_state_dict(other.state_dict())
    np.testing.assert_allclose(f(x).tolist(), other(x).tolist(), rtol=1e-6)


def test_a_copy_of_a_model_has_weights_of_its_own() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    frozen = copy.deepcopy(model)

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = (model(x) * frozen(x)).sum()
        loss.backward()
        optimizer.step()
        return loss

    before = frozen.weight.item()
    for _ in range(3):
        step(rl.ones(1, 1))
    assert frozen.weight.item() == before
    np.testing.assert_allclose(model.weight.item(), before - 3 * 0.5 * before, rtol=1e-5)


def test_parameters_added_to_an_optimizer_after_tracing() -> None:
    a, b = (nn.Parameter(rl.ones(1)) for _ in range(2))
    optimizer = optim.SGD([a], lr=1.0)

    @rl.jit
    def step() -> None:
        optimizer.zero_grad()
        (a + b).sum().backward()
        optimizer.step()

    step()
    optimizer.add_param_group({"params": [b], "lr": 0.5})
    step()
    assert (a.item(), b.item()) == (-1, 0.5)


def test_two_jitted_functions_over_the_same_weights() -> None:
    w = nn.Parameter(rl.ones(1))
    optimizer = optim.SGD([w], lr=1.0)

    def step(sign: int) -> None:
        optimizer.zero_grad()
        (w * sign).sum().backward()
        optimizer.step()

    up, down = rl.jit(lambda: step(-1)), rl.jit(lambda: step(1))
    for call in (up, up, down, up, down, down):
        call()
    assert w.item() == 1


class Scaled:
    """A class whose methods are decorated."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @rl.jit
    def times(self, x: rl.Tensor) -> rl.Tensor:
        return x * self.scale

    @staticmethod
    @rl.jit
    def plus(x: rl.Tensor) -> rl.Tensor:
        return x + 1

    @classmethod
    def made(cls, x: rl.Tensor) -> rl.Tensor:
        return rl.jit(lambda y: y - 1)(x)


def test_decorated_methods() -> None:
    a, b = Scaled(2.0), Scaled(3.0)
    assert [m.times(rl.ones(1)).item() for m in (a, b, a)] == [2, 3, 2]
    a.scale = 5.0
    assert a.times(rl.ones(1)).item() == 5
    assert Scaled.plus(rl.ones(1)).item() == 2 and a.plus(rl.ones(1)).item() == 2
    assert Scaled.made(rl.ones(1)).item() == 0


def test_copies_of_an_object_with_decorated_methods() -> None:
    """What is bound to the original must not be called for its copy."""
    a = Scaled(2.0)
    a.times(rl.ones(1))
    b, c = copy.copy(a), copy.deepcopy(a)
    b.scale, c.scale = 7.0, 9.0
    assert [m.times(rl.ones(1)).item() for m in (a, b, c)] == [2, 7, 9]


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are named relative to it, where there is one."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    f = rl.jit(lambda x: x + 1, donate="x")
    x = rl.ones(2)
    assert values(f(x)) == [2, 2]
    with pytest.raises(rl.RidgelineError, match="donated"):
        x.sum()


def test_threads_with_different_shapes_and_state() -> None:
    """A race between tracing in one thread and replay in another."""
    total = rl.zeros(1)
    f = rl.jit(lambda x: (x * 2).sum() + total * 0)
    found: dict[int, list[float]] = {}

    def work(n: int) -> None:
        found[n] = [f(rl.full((n,), float(i))).item() for i in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [2.0 * n * i for i in range(20)] for n in range(1, 5)}
