"""What goes wrong under other frameworks' compilers: here each is right, or refused with a message.

Every test says whose pitfall it is. `same` calls a jitted function and the plain one on equal
arguments and compares.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.record.captures import CaptureError, LeakError
from tests.tracing.comparing import numbers, same

pytestmark = pytest.mark.usefixtures("both_tiers")


# ---- tinygrad ------------------------------------------------------------------------------------


def test_a_result_is_not_overwritten_by_the_next_call() -> None:
    """tinygrad: outputs are the same buffer on every call (#7020, test_jit_footguns)."""
    f = rl.jit(lambda x: x * 2)
    results = [f(rl.full((3,), float(i))) for i in range(5)]
    assert [r[0].item() for r in results] == [0, 2, 4, 6, 8]


def test_the_first_calls_are_like_the_others() -> None:
    """tinygrad: call 1 runs, call 2 captures, call 3 replays; bugs show from the third on."""
    f = rl.jit(lambda x: (x + 1).sum())
    assert [f(rl.full((2,), float(i))).item() for i in range(5)] == [2, 4, 6, 8, 10]


def test_one_tensor_for_two_arguments() -> None:
    """tinygrad: duplicate inputs to the JIT are an assertion."""
    f = rl.jit(lambda a, b: a * 10 + b)
    x = rl.ones(2)
    same(f, f.function, x, x)
    same(f, f.function, x, rl.zeros(2))
    same(f, f.function, x, x)


def test_a_view_as_an_argument() -> None:
    """tinygrad: an input that is not a realised buffer is rejected or baked in."""
    f = rl.jit(lambda x: x + 1)
    base = rl.arange(12).reshape(3, 4)
    for view in (base[1], base[:, 1], base.T[2], base[::2, 1]):
        same(f, f.function, view)


def test_an_argument_that_is_not_computed_yet() -> None:
    """tinygrad: unrealised inputs need .realize() before the call."""
    f = rl.jit(lambda x: x * 2)
    assert f(rl.ones(3) + 1).tolist() == [4, 4, 4]
    assert f((rl.ones(3) + 1) * 3).tolist() == [12, 12, 12]


def test_random_numbers_do_not_repeat() -> None:
    """tinygrad: rand inside the JIT gives the same values (#16520)."""
    f = rl.jit(lambda: rl.rand(4))
    rl.manual_seed(1)
    jitted = np.stack([f().numpy() for _ in range(4)])
    rl.manual_seed(1)
    plain = np.stack([rl.rand(4).numpy() for _ in range(4)])
    np.testing.assert_array_equal(jitted, plain)
    assert len(np.unique(jitted)) == 16


def test_another_shape_is_another_trace() -> None:
    """tinygrad: a call with another shape fails with a mismatch of arguments."""
    f = rl.jit(lambda x: x.mean(0))
    for n in (2, 3, 2, 5):
        same(f, f.function, rl.tensor(numbers(n, 4)))
    assert f.traces == 3


def test_a_value_read_inside_is_an_error_not_a_constant() -> None:
    """tinygrad: .item() inside the JIT is frozen at its first value (#6803)."""
    f = rl.jit(lambda x: x * x.sum().item())
    with pytest.raises(CaptureError, match=r"item\(\) needs the value"):
        f(rl.ones(3))


def test_a_number_from_outside_that_changes() -> None:
    """tinygrad: Python numbers of the closure are constants of the captured kernels."""
    scale = 2.0

    def plain(x: rl.Tensor) -> rl.Tensor:
        return x * scale

    f = rl.jit(plain)
    same(f, plain, rl.ones(2))
    scale = 5.0
    same(f, plain, rl.ones(2))


def test_a_tensor_from_outside_that_is_written() -> None:
    """tinygrad: a closed-over tensor that is assigned later is missed (#14689)."""
    w = rl.ones(3)
    f = rl.jit(lambda x: x + w)
    assert f(rl.zeros(3)).tolist() == [1, 1, 1]
    w.mul_(7)
    assert f(rl.zeros(3)).tolist() == [7, 7, 7]
    w[1] = 0
    assert f(rl.zeros(3)).tolist() == [7, 0, 7]


def test_keyword_arguments_in_any_order() -> None:
    """tinygrad: inputs are matched by position of kwargs."""
    f = rl.jit(lambda a, b: a - b)
    x, y = rl.full((2,), 3.0), rl.ones(2)
    assert f(a=x, b=y).tolist() == f(b=y, a=x).tolist() == f(x, b=y).tolist() == [2, 2]


def test_a_slice_written_inside() -> None:
    """tinygrad: assignment to a slice inside the JIT is dropped."""

    def plain(x: rl.Tensor) -> rl.Tensor:
        x[1:] += 1
        return x.sum()

    f = rl.jit(plain)
    x, y = rl.zeros(3), rl.zeros(3)
    for _ in range(3):
        assert f(x).item() == plain(y).item()
    assert x.tolist() == y.tolist() == [0, 3, 3]


# ---- JAX -----------------------------------------------------------------------------------------


COUNTER = 0


def test_a_global_that_the_function_itself_changes() -> None:
    """JAX: a global counter is read once and its update happens once."""
    global COUNTER
    COUNTER = 0

    def count(x: rl.Tensor) -> rl.Tensor:
        global COUNTER
        COUNTER += 1
        return x + COUNTER

    f = rl.jit(count)
    assert [f(rl.zeros(())).item() for _ in range(3)] == [1, 2, 3]


def test_a_leaked_tensor() -> None:
    """JAX: a tracer kept outside fails later with an obscure message."""
    kept: list[rl.Tensor] = []
    f = rl.jit(lambda x: rl.vmap(lambda r: kept.append(r) or r * 2)(x))
    f(rl.ones(2, 2))
    with pytest.raises(LeakError, match="return it from that function"):
        kept[0] + 1


def test_arrays_can_be_updated_in_place() -> None:
    """JAX: arrays are immutable inside jit."""

    def plain(x: rl.Tensor) -> rl.Tensor:
        y = x.clone()
        y[0] = 5
        y.mul_(2)
        return y

    same(rl.jit(plain), plain, rl.ones(3))


def test_a_branch_on_a_value_names_the_remedy() -> None:
    """JAX: TracerBoolConversionError."""
    f = rl.jit(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(CaptureError, match=r"where\(\)"):
        f(rl.ones(3))
    g = rl.jit(lambda x: rl.cond(x.sum() > 0, lambda: x, lambda: -x))
    assert g(rl.full((2,), -3.0)).tolist() == [3, 3]


def test_lists_and_dicts_as_static_values() -> None:
    """JAX: static arguments must be hashable."""
    f = rl.jit(lambda x, dims, options: x.sum(dims) * options["scale"])
    x = rl.tensor(numbers(2, 3, 4))
    same(f, f.function, x, [0, 1], {"scale": 2})
    same(f, f.function, x, [0, 1], {"scale": 3})
    same(f, f.function, x, [1, 2], {"scale": 3})


def test_a_changing_float_is_not_a_new_program() -> None:
    """JAX: a Python scalar as a static argument recompiles for every value."""
    f = rl.jit(lambda x, rate: x * rate)
    for k in range(20):
        same(f, f.function, rl.ones(2), k * 0.1)
    assert f.traces <= 2


def test_an_index_out_of_range_raises() -> None:
    """JAX: out-of-bounds indexing clamps silently."""
    f = rl.jit(lambda x, i: x[i])
    assert f(rl.arange(5), rl.tensor(3)).item() == 3
    with pytest.raises(IndexError):
        f(rl.arange(5), rl.tensor(7)).item()


def test_nan_as_an_argument() -> None:
    """JAX: a NaN among static arguments never equals itself and recompiles every time."""
    f = rl.jit(lambda x, fill: rl.where(x > 0, x, fill))
    for _ in range(4):
        assert np.isnan(f(rl.zeros(2), float("nan")).numpy()).all()
    assert f.traces == 1


class Scaler:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @rl.jit
    def apply(self, x: rl.Tensor) -> rl.Tensor:
        return x * self.factor


def test_a_method_sees_its_instance_change() -> None:
    """JAX: jit of a method with self static keeps the first attributes."""
    a, b = Scaler(2.0), Scaler(3.0)
    assert (a.apply(rl.ones(())).item(), b.apply(rl.ones(())).item()) == (2, 3)
    a.factor = 5.0
    assert (a.apply(rl.ones(())).item(), b.apply(rl.ones(())).item()) == (5, 3)


def test_the_order_of_keys() -> None:
    """JAX: dicts are sorted by key, OrderedDicts are not, and results mix them up."""
    f = rl.jit(lambda d: {k: v * 2 for k, v in d.items()})
    a = {"x": rl.ones(()), "b": rl.zeros(())}
    b = {"b": rl.zeros(()), "x": rl.ones(())}
    assert list(f(a)) == ["x", "b"] and list(f(b)) == ["b", "x"]
    assert f(a)["x"].item() == f(b)["x"].item() == 2
    ordered = OrderedDict(x=rl.ones(()), b=rl.zeros(()))
    assert {k: v.item() for k, v in f(ordered).items()} == {"x": 2, "b": 0}


def test_a_default_argument_that_is_a_list() -> None:
    """JAX: defaults are captured when the function is traced."""

    def plain(x: rl.Tensor, weights: list[float] = [1.0, 2.0]) -> rl.Tensor:  # noqa: B006
        return x * sum(weights)

    f = rl.jit(plain)
    same(f, plain, rl.ones(2))
    plain.__defaults__[0].append(10.0)
    same(f, plain, rl.ones(2))


def test_an_int_and_a_float_are_different_arguments() -> None:
    """JAX: weak types make 1 and 1.0 promote differently."""
    f = rl.jit(lambda x, k: x + k)
    x = rl.tensor([1, 2])
    assert f(x, 1).dtype is rl.int64 and f(x, 1.0).dtype is rl.float32
    assert f(x, True).dtype is rl.int64


def test_a_tensor_passed_in_stays_valid() -> None:
    """JAX: a donated buffer is deleted, and using it later raises."""
    f = rl.jit(lambda x: x.add_(1))
    x = rl.zeros(3)
    shown = x.view(3)
    for _ in range(3):
        f(x)
    assert x.tolist() == shown.tolist() == [3, 3, 3]


def test_nested_jit_is_inlined() -> None:
    """JAX: an inner jit keeps a cache of its own and is not retraced with the outer one."""
    factor = 2.0
    inner = rl.jit(lambda x: x * factor)
    outer = rl.jit(lambda x: inner(x) + 1)
    assert outer(rl.ones(())).item() == 3
    factor = 10.0
    assert outer(rl.ones(())).item() == 11


def test_int64_stays_int64() -> None:
    """JAX: 64-bit types are silently narrowed unless a flag is set."""
    f = rl.jit(lambda x: x + 1)
    assert f(rl.tensor([2**40])).item() == 2**40 + 1
    assert f(rl.tensor(1.0, dtype=rl.float64)).dtype is rl.float64


# ---- TensorFlow ----------------------------------------------------------------------------------


def test_a_list_of_the_closure_that_the_function_fills() -> None:
    """tf.function: list.append happens once, while tracing."""
    seen: list[int] = []

    def plain(x: rl.Tensor) -> rl.Tensor:
        seen.append(len(seen))
        return x + len(seen)

    f = rl.jit(plain)
    assert [f(rl.zeros(())).item() for _ in range(3)] == [1, 2, 3]
    assert seen == [0, 1, 2]


def test_an_argument_that_the_function_fills_is_filled_every_time() -> None:
    """tf.function: a dict or list argument is changed in the first call only."""

    def store(x: rl.Tensor, out: dict[str, rl.Tensor]) -> rl.Tensor:
        out["twice"] = x * 2
        return x

    f = rl.jit(store)
    for k in (1.0, 2.0, 3.0):
        out: dict[str, rl.Tensor] = {}
        f(rl.full((2,), k), out)
        assert out["twice"].tolist() == [2 * k, 2 * k]
    assert "changes an argument" in f.history[0]

    def swap(items: list[rl.Tensor]) -> rl.Tensor:
        items.reverse()
        return items[0]

    g = rl.jit(swap)
    for _ in range(3):
        items = [rl.ones(2), rl.zeros(2)]
        assert g(items) is items[0] and items[0].tolist() == [0, 0]


def test_state_made_inside() -> None:
    """tf.function: variables may only be created on the first call."""
    cache: dict[str, rl.Tensor] = {}

    def plain(x: rl.Tensor) -> rl.Tensor:
        if "state" not in cache:
            cache["state"] = rl.zeros(2)
        cache["state"].add_(x)
        return cache["state"].sum()

    f = rl.jit(plain)
    assert [f(rl.ones(2)).item() for _ in range(4)] == [2, 4, 6, 8]


def test_an_int_argument_is_part_of_the_signature() -> None:
    """tf.function: Python ints trigger retracing, with a warning; the values are right."""
    f = rl.jit(lambda x, n: x.repeat(n))
    for n in (1, 2, 3, 2, 1):
        assert f(rl.ones(2), n).shape == (2 * n,)
    assert f.traces == 3


def test_a_loop_over_a_tensor() -> None:
    """tf.function: `for row in tensor` becomes a while loop with other rules for types."""

    def plain(x: rl.Tensor) -> rl.Tensor:
        total = 0
        for row in x:
            total = total + row.sum()
        return total

    same(rl.jit(plain), plain, rl.tensor(numbers(4, 3)))


def test_an_iterator_moves_on() -> None:
    """tf.function: next(iterator) is taken once, while tracing."""
    batches = iter([1.0, 2.0, 3.0])
    f = rl.jit(lambda x: x * next(batches))
    assert [f(rl.ones(())).item() for _ in range(3)] == [1, 2, 3]
    assert "open" in f.history[0] and "list_iterator" in f.history[0]
    g, numbers_ = rl.jit(lambda x, n: x * next(n)), itertools.count(1)
    assert [g(rl.ones(()), numbers_).item() for _ in range(3)] == [1, 2, 3]


def test_pythons_own_random_numbers_do_not_repeat() -> None:
    """tf.function: random.random() and np.random are drawn once, while tracing."""
    rng = np.random.default_rng(0)
    draws: list[Callable[[], float]] = [
        random.random, lambda: random.uniform(0, 1), lambda: float(np.random.rand()),
        lambda: float(rng.normal()),
    ]  # fmt: skip
    for draw in draws:
        f = rl.jit(lambda x: x * draw())  # noqa: B023
        assert len({f(rl.ones(())).item() for _ in range(4)}) == 4
        assert "random" in f.history[0]


def test_an_exception_is_raised_every_time() -> None:
    """tf.function: errors of Python code are raised while tracing only."""

    def plain(x: rl.Tensor, limit: int) -> rl.Tensor:
        if x.shape[0] > limit:
            raise ValueError("too long")
        return x

    f = rl.jit(plain)
    for _ in range(3):
        with pytest.raises(ValueError, match="too long"):
            f(rl.ones(5), 3)
    assert f(rl.ones(2), 3).shape == (2,)


def test_an_exception_rolls_everything_back() -> None:
    """tf.function: variables assigned before the error keep half of the update."""
    w, moments = rl.ones(2), rl.zeros(2)
    before = rl.get_rng_state()

    def broken(x: rl.Tensor) -> rl.Tensor:
        moments.add_(x)
        w.sub_(rl.rand(2))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        rl.jit(broken)(rl.ones(2))
    assert w.tolist() == [1, 1] and moments.tolist() == [0, 0]
    assert np.array_equal(np.array(rl.get_rng_state()), np.array(before))
