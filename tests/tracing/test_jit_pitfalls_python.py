"""More of what goes wrong under other compilers: Python around tensors, aliases, random numbers.

Each test says whose users met the pitfall; here the result is right, or refused with a message.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.record.captures import CaptureError, LeakError

pytestmark = pytest.mark.usefixtures("both_tiers")


def values(tensor: Any) -> Any:
    return tensor.tolist()


# ---- arguments ----------------------------------------------------------------------------------


def test_equal_numbers_of_different_types() -> None:
    """JAX, torch: True, 1 and 1.0 are equal and hash alike, yet mean different programs."""
    f = rl.jit(lambda x, k: x * k)
    x = rl.tensor([1, 2], dtype=rl.int8)
    got = [f(x, k) for k in (True, 1, 1.0, True, 1.0, 1)]
    names = [r.dtype.name for r in got]
    assert names == ["int8", "int8", "float32", "int8", "float32", "int8"]


def test_the_sign_of_zero_in_an_argument() -> None:
    """-0.0 equals 0.0, and a cache by value confuses them."""
    f = rl.jit(lambda x, k: rl.copysign(x, rl.tensor(k)))
    x = rl.ones(1)
    assert [f(x, k).item() for k in (0.0, -0.0, 0.0)] == [1, -1, 1]
    g = rl.jit(lambda x, k: x * k)
    assert [math.copysign(1, g(x, k).item()) for k in (0.0, -0.0, 0.0)] == [1, -1, 1]


def test_a_float_argument_as_a_tensor() -> None:
    """A learning rate made a tensor is an input; in a list it is part of the trace."""
    f = rl.jit(lambda x, k: x * rl.tensor(k) + rl.tensor([k, 2 * k]))
    assert [f(rl.ones(2), k).tolist() for k in (1.0, 0.5, 2.5)] == [[2, 3], [1, 1.5], [5, 7.5]]
    g = rl.jit(lambda x, k: x * rl.tensor(k, dtype=rl.float64))
    assert [g(rl.ones(1), k).item() for k in (1.0, 0.5, 2.5, 0.25)] == [1, 0.5, 2.5, 0.25]
    assert g.traces <= 2


def test_an_array_of_numpy_whose_elements_change() -> None:
    """JAX: a NumPy array is an argument by value; torch.compile: it may be burnt in."""
    f = rl.jit(lambda x, a: x + rl.tensor(a))
    a = np.zeros(2, np.float32)
    assert values(f(rl.ones(2), a)) == [1, 1]
    a[:] = 5
    assert values(f(rl.ones(2), a)) == [6, 6]


def test_scalars_of_numpy() -> None:
    f = rl.jit(lambda x, k: x * k)
    for k in (np.float32(2), np.int64(3), np.float64(0.5), np.float32(4)):
        assert values(f(rl.ones(2), k)) == [float(k)] * 2


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_enums_types_slices_and_strings() -> None:
    """torch.compile: unusual static arguments broke guards."""

    @rl.jit
    def f(x: rl.Tensor, how: Any) -> rl.Tensor:
        if isinstance(how, Colour):
            return x + how.value
        if isinstance(how, slice):
            return x[how]
        if isinstance(how, str):
            return x * len(how)
        return x.to(how)

    x = rl.arange(4)
    for _ in range(2):
        assert values(f(x, Colour.RED)) == [1, 2, 3, 4]
        assert values(f(x, Colour.BLUE)) == [2, 3, 4, 5]
        assert values(f(x, slice(1, 3))) == [1, 2]
        assert values(f(x, slice(0, 4, 2))) == [0, 2]
        assert values(f(x, "abc")) == [0, 3, 6, 9]
        assert f(x, rl.float64).dtype is rl.float64


def test_an_argument_that_is_an_object_whose_attribute_changes() -> None:
    """TensorFlow #31362: the object's value at the first call stays."""
    f = rl.jit(lambda x, o: x * o.scale)
    box = SimpleNamespace(scale=2)
    assert values(f(rl.ones(2), box)) == [2, 2]
    box.scale = 3
    assert values(f(rl.ones(2), box)) == [3, 3]


def test_any_number_of_arguments() -> None:
    f = rl.jit(lambda *xs, **named: sum(xs) + sum(named.values()))
    one = rl.ones(2)
    assert values(f(one)) == [1, 1]
    assert values(f(one, one, k=one)) == [3, 3]
    assert values(f(one, k=one, j=one * 5)) == [7, 7]
    assert values(f(one, j=one * 5, k=one)) == [7, 7]


def test_none_and_a_tensor_for_one_argument() -> None:
    f = rl.jit(lambda x, mask=None: x if mask is None else x * mask)
    assert values(f(rl.ones(2))) == [1, 1]
    assert values(f(rl.ones(2), rl.zeros(2))) == [0, 0]
    assert values(f(rl.ones(2), mask=None)) == [1, 1]


def test_a_float_that_becomes_a_size() -> None:
    """A float argument is an input; where Python needs its value it is part of the signature."""
    f = rl.jit(lambda x, ratio: x[: int(len(x) * ratio)])
    x = rl.arange(10)
    assert [f(x, r).shape[0] for r in (0.5, 0.3, 0.5, 1.0)] == [5, 3, 5, 10]


def test_a_number_too_large_for_its_type() -> None:
    """JAX: OverflowError far from the line; others wrap silently."""
    f = rl.jit(lambda x, k: x + k)
    for call in (f, f.function):
        with pytest.raises(rl.RidgelineError, match="does not fit into int64"):
            call(rl.ones(2, dtype=rl.int64), 2**70)
    assert values(f(rl.ones(1, dtype=rl.int64), 2**62)) == [2**62 + 1]


def test_fractions_and_sets_are_static() -> None:
    f = rl.jit(lambda x, k: x * float(k))
    assert values(f(rl.ones(1), Fraction(1, 2))) == [0.5]
    assert values(f(rl.ones(1), Fraction(1, 4))) == [0.25]
    g = rl.jit(lambda x, keys: x * len(keys))
    assert values(g(rl.ones(1), frozenset("ab"))) == [2]
    assert values(g(rl.ones(1), frozenset("abc"))) == [3]


# ---- Python around tensors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x if x.sum() else -x,
        lambda x: x if not x.any() else -x,
        lambda x: x[: x.sum().long()],
        lambda x: [x * i for i in range(x.sum().long())],
        lambda x: max([x.sum(), x.mean()]),
        lambda x: sorted([x.sum(), x.mean()])[0],
        lambda x: float(x.sum()) * x,
        lambda x: x * int(x.sum()),
        lambda x: rl.zeros(int(x.max())),
        lambda x: np.asarray(x).sum() * x,
        lambda x: x * math.exp(x.sum()),
        lambda x: x.tolist(),
        lambda x: x.unique(),
    ],
)
def test_python_that_needs_a_value_is_refused_on_its_line(body: Any) -> None:
    """JAX: ConcretizationTypeError; tinygrad, torch.compile: frozen or a graph break."""
    with pytest.raises(CaptureError) as caught:
        rl.jit(body)(rl.ones(3))
    assert "test_jit_pitfalls_python.py" in str(caught.value)


def test_what_python_may_ask_without_values() -> None:
    @rl.jit
    def f(x: rl.Tensor) -> rl.Tensor:
        assert x is not None and x.ndim == 2 and len(x) == 2
        rows = [row * i for i, row in enumerate(x)]
        return sum(rows) * x.shape[-1] if x.dtype is rl.float32 else x

    assert values(f(rl.ones(2, 3))) == [3, 3, 3]


def test_an_index_that_is_a_tensor() -> None:
    """tinygrad, torch.compile: the first index is burnt in."""
    f = rl.jit(lambda x, i: x[i])
    x = rl.arange(5) * 10
    assert [f(x, rl.tensor(i)).item() for i in (0, 3, -1)] == [0, 30, 40]


def test_recursion_by_the_functions_own_name() -> None:
    @rl.jit
    def power(x: rl.Tensor, n: int) -> rl.Tensor:
        return x if n == 1 else power(x, n - 1) * x

    assert values(power(rl.full((2,), 2.0), 5)) == [32, 32]
    assert values(power(rl.full((2,), 3.0), 2)) == [9, 9]


def test_mutual_recursion() -> None:
    @rl.jit
    def even(x: rl.Tensor, n: int) -> rl.Tensor:
        return x if n == 0 else odd(x + 1, n - 1)

    @rl.jit
    def odd(x: rl.Tensor, n: int) -> rl.Tensor:
        return x * 10 if n == 0 else even(x * 2, n - 1)

    for _ in range(2):
        assert values(even(rl.ones(1), 4)) == [10]
        assert values(odd(rl.ones(1), 2)) == [30]


def test_a_deep_chain() -> None:
    """RecursionError in tracers that walk graphs recursively."""

    def chain(x: rl.Tensor) -> rl.Tensor:
        for i in range(5000):
            x = x + 1 if i % 2 else x - 0.5
        return x

    assert rl.jit(chain)(rl.zeros(2)).tolist() == [1250, 1250]


def test_lambdas_made_in_a_loop() -> None:
    functions = [rl.jit(lambda x, k=k: x * k) for k in range(3)]
    late = [rl.jit(lambda x: x * k) for k in range(3)]  # noqa: B023
    assert [f(rl.ones(1)).item() for f in functions] == [0, 1, 2]
    assert [f(rl.ones(1)).item() for f in late] == [2, 2, 2]


class Settings:
    scale = 2

    @property
    def doubled(self) -> int:
        return 2 * self.scale


SETTINGS = Settings()


def test_a_class_attribute_and_a_property() -> None:
    """torch.compile: guards on instances miss their class."""
    f = rl.jit(lambda x: x * SETTINGS.doubled)
    try:
        assert f(rl.ones(1)).item() == 4
        Settings.scale = 5
        assert f(rl.ones(1)).item() == 10
        SETTINGS.scale = 1  # type: ignore[misc]
        assert f(rl.ones(1)).item() == 2
    finally:
        Settings.scale = 2
        SETTINGS.__dict__.pop("scale", None)


def test_a_nested_container_of_the_closure() -> None:
    state = {"a": [1, {"b": 2}]}
    f = rl.jit(lambda x: x * state["a"][1]["b"])  # type: ignore[index]
    assert f(rl.ones(1)).item() == 2
    state["a"][1]["b"] = 7  # type: ignore[index]
    assert f(rl.ones(1)).item() == 7


def test_a_cache_of_a_helper_does_not_leak() -> None:
    """JAX: lru_cache around a helper keeps a tracer (UnexpectedTracerError)."""

    @functools.lru_cache
    def table(n: int) -> rl.Tensor:
        return rl.arange(n) * 2

    f = rl.jit(lambda x: x + table(3))
    try:
        first = values(f(rl.ones(3)))
        assert first == [1, 3, 5]
        assert values(f(rl.ones(3))) == first
        assert values(table(3)) == [0, 2, 4]
    except (LeakError, CaptureError) as error:
        assert "jit" in str(error)  # refused, with a message


def test_a_generator_function_is_refused() -> None:
    def rows(x: rl.Tensor) -> Iterator[rl.Tensor]:
        yield x
        yield x + 1

    with pytest.raises(rl.RidgelineError, match="runs after the call"):
        rl.jit(rows)


def test_a_coroutine_is_refused() -> None:
    async def later(x: rl.Tensor) -> rl.Tensor:
        return x + 1

    with pytest.raises(rl.RidgelineError, match="runs after the call"):
        rl.jit(later)
    with pytest.raises(rl.RidgelineError, match="needs a function"):
        rl.jit(3)


def test_an_error_that_the_function_handles() -> None:
    @rl.jit
    def f(x: rl.Tensor) -> rl.Tensor:
        try:
            return x @ rl.ones(7)
        except rl.RidgelineError:
            return x * 2

    assert values(f(rl.ones(3))) == [2, 2, 2]
    assert values(f(rl.full((3,), 2.0))) == [4, 4, 4]
