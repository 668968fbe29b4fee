"""Arrays of NumPy under tensors: a traced function that writes there sees what plain code does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.atomic import Switch
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import Cell
from ridgeline.record.modes import modes
from ridgeline.scalars import Array
from ridgeline.tracing import outer_memory

# each makes a function over an array, and over a tensor that lies in it
Case = Callable[[Array, rl.Tensor], Callable[[rl.Tensor], Any]]
RIGHT: dict[str, Case] = {}
REFUSED: dict[str, Case] = {}


def right(case: Case) -> Case:
    RIGHT[case.__name__] = case
    return case


def refused(case: Case) -> Case:
    REFUSED[case.__name__] = case
    return case


@right
def read_then_written(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        y = x * t
        a[0] += 1
        return y

    return f


@right
def read_on_both_sides_of_a_write(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        y = t * 2
        a[0] += 1
        return x + y + t

    return f


@right
def written_three_times(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        for _ in range(3):
            x = x + t
            a[1] *= 2
        return x

    return f


@right
def written_by_a_function_of_numpys(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        y = x + t
        np.add(a, 1, out=a)
        return y - t

    return f


@right
def written_through_a_memoryview(a: Array, t: rl.Tensor) -> Any:
    seen = memoryview(a)

    def f(x: rl.Tensor) -> rl.Tensor:
        y = x + t
        seen[0] = seen[0] + 1
        return y

    return f


@right
def written_before_it_is_read(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        a[...] = a + 1
        return x + t

    return f


@right
def a_tensor_made_inside(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        inner = rl.from_numpy(a)
        y = x + inner
        a[2] -= 1
        return y * inner

    return f


@right
def an_array_written_through_a_tensor_made_inside(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        rl.from_numpy(a).add_(x)
        return x + 1

    return f


@right
def a_tensor_over_the_array_is_returned(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        made = rl.from_numpy(a)
        made += x
        return made

    return f


@right
def an_array_of_its_own(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        own = np.zeros(4, np.float32)
        made = rl.from_numpy(own)
        own[1] = 5
        y = x + made
        made += 1
        return y + made

    return f


@refused
def the_tensor_is_written_and_the_array_read(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        t.add_(1)
        return x * float(a[0])

    return f


@refused
def the_tensor_is_written_and_the_array_copied(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        t.add_(1)
        return x + rl.tensor(a)

    return f


@refused
def the_tensor_is_written_and_then_the_array(a: Array, t: rl.Tensor) -> Any:
    def f(x: rl.Tensor) -> rl.Tensor:
        t.add_(1)
        seen = memoryview(a)
        seen[0] = 3.0
        return x + t

    return f


@refused
def two_tensors_lie_in_one_array(a: Array, t: rl.Tensor) -> Any:
    other = rl.from_numpy(a[1:])

    def f(x: rl.Tensor) -> rl.Tensor:
        t.add_(1)
        return x + other.sum()

    return f


def outcome(case: Case, wrapped: Callable[[Any], Any]) -> list[Any]:
    a = np.arange(4, dtype=np.float32)
    f = wrapped(case(a, rl.from_numpy(a)))
    x = rl.ones(4)
    return [(f(x).tolist(), a.tolist()) for _ in range(5)]


@pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")
@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_a_jitted_call_sees_what_plain_code_sees(case: Case) -> None:
    assert outcome(case, rl.jit) == outcome(case, lambda f: f)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_has_no_value_while_tracing_is_refused(case: Case) -> None:
    with pytest.raises(CaptureError, match="an array"):
        outcome(case, rl.jit)


def test_an_array_too_large_to_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_memory, "_MOST", 8)
    with pytest.raises(CaptureError, match="too large"):
        outcome(read_then_written, rl.jit)


def test_a_large_array_that_does_not_change_is_read_by_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outer_memory, "_MOST", 8)
    a = np.arange(4, dtype=np.float32)
    t = rl.from_numpy(a)
    f = rl.jit(lambda x: x + t)
    found = []
    for _ in range(3):
        found.append(f(rl.ones(4)).tolist()[0])
        a[0] += 1
    assert found == [1, 2, 3] and f.traces == 1


def test_arrays_that_stay_as_they_are_cost_no_trace() -> None:
    a = np.arange(4, dtype=np.float32)

    @rl.jit
    def f(x: rl.Tensor) -> rl.Tensor:
        return x + rl.from_numpy(a) * rl.from_numpy(a[1:2])

    for _ in range(3):
        assert f(rl.ones(4)).tolist() == [1, 2, 3, 4]
    assert f.traces == 1
    a[1] = 2
    assert f(rl.ones(4)).tolist() == [1, 5, 5, 7]


@pytest.mark.parametrize("jitted", [False, True])
def test_what_another_thread_writes_is_seen_from_then_on(jitted: bool) -> None:
    t, u = rl.zeros(2), rl.zeros(2) + 0

    def write() -> None:
        t.fill_(5)
        u.add_(7)

    def f(x: rl.Tensor) -> tuple[rl.Tensor, ...]:
        before, other = x + t, x + u
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        return before, other, x + t

    call = rl.jit(f) if jitted else f
    for number in range(3):
        t.fill_(0)
        found = call(rl.ones(2))
        assert [value.tolist()[0] for value in found] == [1, 1 + 7 * number, 6]


def test_a_function_that_waits_for_nobody_is_kept_while_others_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t, written = rl.zeros(2), list[bool]()
    plain = outer_memory.OuterMemory.tensor_again

    def write_first(self: outer_memory.OuterMemory, cell: Cell) -> None:
        if cell is t._cell and not written:  # as another thread would, between two reads
            written.append(True)
            with Switch(modes, capture=None, call_recorder=None):
                t.fill_(5)
        plain(self, cell)

    monkeypatch.setattr(outer_memory.OuterMemory, "tensor_again", write_first)
    f = rl.jit(lambda x: (x + t) * 2 + t)
    for _ in range(3):
        assert f(rl.ones(2)).tolist() == [17, 17]
    assert written and f.traces == 1
