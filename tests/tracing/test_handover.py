"""State that a jitted step replaces keeps its memory; who holds the old value does not see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import Tensor, nn
from ridgeline.errors import ArgumentError
from ridgeline.runtime.buffer import pool
from ridgeline.runtime.cpu.executable import CpuRun


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with rl.config.override(tier="compiled"):
        yield


def address(tensor: Tensor) -> int:
    """Where a tensor's memory lies, without holding it."""
    tensor.sum().item()
    where: int = tensor._cell.node.buffer.address
    return where


def state(size: int = 64) -> Tensor:
    made = rl.arange(size, dtype=rl.float32) * 1.0
    made.sum().item()
    return made


def doubler(x: Tensor) -> Callable[[], None]:
    @rl.jit
    def step() -> None:
        x.mul_(2)

    return step


def test_memory_is_kept_from_call_to_call() -> None:
    x = state()
    step, before = doubler(x), address(x)
    for _ in range(5):
        step()
        assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), np.arange(64) * 32.0)


def test_explain_says_what_is_overwritten() -> None:
    x = state()
    step = doubler(x)
    step()
    assert "results that may lie over the inputs they replace: 1, 256 B" in step.explanation(
        "loops"
    )


def test_a_second_tensor_with_the_same_buffer() -> None:
    a = rl.arange(64, dtype=rl.float32)
    x, y = a + 1, a + 1  # equal expressions are one node and share its memory
    x.sum().item()
    step = doubler(x)
    step()
    step()
    np.testing.assert_array_equal(y.numpy(), np.arange(64) + 1.0)
    np.testing.assert_array_equal(x.numpy(), (np.arange(64) + 1.0) * 4)


def test_views_show_the_new_value() -> None:
    x = state()
    view, row = x.reshape(8, 8), x[3:5]
    view.sum().item()
    step = doubler(x)
    for _ in range(3):
        step()
    np.testing.assert_array_equal(view.numpy(), np.arange(64).reshape(8, 8) * 8.0)
    np.testing.assert_array_equal(row.numpy(), np.array([3, 4]) * 8.0)


def test_copies_and_arrays_keep_the_old_value() -> None:
    x = state()
    step = doubler(x)
    step()
    before = x.detach().clone()
    listed = np.array(x)
    step()
    np.testing.assert_array_equal(before.numpy(), np.arange(64) * 2.0)
    np.testing.assert_array_equal(listed, np.arange(64) * 2.0)
    np.testing.assert_array_equal(np.array(x), np.arange(64) * 4.0)


@pytest.mark.parametrize("how", ["numpy", "dlpack", "from_numpy"])
def test_arrays_over_the_memory_follow(how: str) -> None:
    if how == "from_numpy":
        seen = np.arange(64, dtype=np.float32)
        x = rl.from_numpy(seen)
    else:
        x = state()
        seen = x.numpy() if how == "numpy" else np.from_dlpack(x)
    step = doubler(x)
    for power in (2, 4, 8):
        step()
        np.testing.assert_array_equal(seen, np.arange(64) * power)
    if how != "from_numpy":
        del seen
        step()
        step()
        np.testing.assert_array_equal(x.numpy(), np.arange(64) * 32.0)


def test_a_graph_recorded_before_goes_backward_through_the_old_value() -> None:
    w = rl.arange(8, dtype=rl.float32).requires_grad_()

    @rl.jit
    def step() -> None:
        with rl.no_grad():
            w.mul_(2)

    step()
    old = w.detach().clone().numpy()
    loss = (w * w * w).sum()
    step()
    loss.backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 3 * old**2)
    np.testing.assert_array_equal(w.detach().numpy(), old * 2)


def test_pending_work_reads_the_old_value() -> None:
    x = state()
    step = doubler(x)
    step()
    later = x + 1  # recorded, not computed
    step()
    np.testing.assert_array_equal(later.numpy(), np.arange(64) * 2.0 + 1)


def test_old_values_read_elsewhere_in_the_step() -> None:
    x, y = state(), state()

    @rl.jit
    def swap() -> Tensor:
        old = x.clone()
        x.copy_(y + 1)
        y.copy_(old)
        return old.sum()

    a, b = np.arange(64.0), np.arange(64.0)
    for _ in range(4):
        total = a.sum()
        a, b = b + 1, a
        assert swap().item() == total
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(y.numpy(), b)


@pytest.mark.parametrize("kind", ["flip", "transpose", "shift", "cumsum", "mean", "matmul", "sort"])
def test_values_that_read_other_elements(kind: str) -> None:
    x = rl.arange(64, dtype=rl.float32).reshape(8, 8) / 64
    x.sum().item()
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "flip": lambda t: t.flip(0),
        "transpose": lambda t: t.T + t,
        "shift": lambda t: rl.roll(t, 1, 0) - t,
        "cumsum": lambda t: rl.cumsum(t, 1),
        "mean": lambda t: t - t.mean(0, keepdim=True),
        "matmul": lambda t: t @ t,
        "sort": lambda t: rl.sort(t, dim=0, descending=True)[0],
    }
    change = changes[kind]
    expected = x.detach().clone()

    @rl.jit
    def step() -> None:
        x.copy_(change(x))

    for _ in range(3):
        step()
        expected = change(expected)
        np.testing.assert_allclose(x.detach().clone().numpy(), expected.numpy(), rtol=1e-6)


def test_gradients_that_somebody_holds() -> None:
    w = rl.ones(16).requires_grad_()

    @rl.jit
    def step(x: Tensor) -> None:
        w.grad = None
        (w * x).sum().backward()

    for value in (1.0, 2.0):
        step(rl.full((16,), value))
    held = w.grad
    assert held is not None
    kept = held[:4]
    step(rl.full((16,), 3.0))
    np.testing.assert_array_equal(held.numpy(), np.full(16, 2.0))
    np.testing.assert_array_equal(kept.numpy(), np.full(4, 2.0))
    assert w.grad is not None and w.grad is not held
    np.testing.assert_array_equal(w.grad.numpy(), np.full(16, 3.0))


def same_value_twice() -> dict[str, Callable[[Tensor, Tensor, Tensor], object]]:
    """Steps over a donated tensor and two states, in which two tensors get one value."""
    return {
        "two states": lambda x, s, t: (s.fill_(2), t.fill_(2), x * 1)[-1:],
        "of what both held": lambda x, s, t: (s.add_(t), t.copy_(s), x * 1)[-1:],
        "the second is read": lambda x, s, t: (t * x, s.mul_(3), t.copy_(s))[:1],
        "returned too": lambda x, s, t: (s.fill_(2), s.flip(0))[-1:],
        "returned first": lambda x, s, t: (s * 5 + x, s.mul_(5).add_(x))[:1],
        "returned twice": lambda x, s, t: (s + x, x + s, t.sub_(1))[:2],
        "with the argument": lambda x, s, t: (x.mul_(2), s.copy_(x), x + 1)[-1:],
    }


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("kind", list(same_value_twice()))
def test_one_value_of_the_program_is_the_new_one_of_two_tensors(kind: str, donate: bool) -> None:
    change = same_value_twice()[kind]
    s, t, by_hand = state(), state() + 1, (state(), state() + 1)
    step = rl.jit(lambda x: change(x, s, t), donate=donate)
    kept = []
    for _ in range(3):
        kept.append((step(state() - 3), change(state() - 3, *by_hand)))
        for found, expected in ((s, by_hand[0]), (t, by_hand[1])):
            np.testing.assert_array_equal(np.array(found), np.array(expected))
    for results, expected in kept:
        for found, one in zip(results, expected):
            np.testing.assert_array_equal(np.array(found), np.array(one))


def test_a_run_that_leaves_the_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = state()
    step = doubler(x)
    step()
    finish = CpuRun.finish
    monkeypatch.setattr(CpuRun, "finish", lambda self, reused: finish(self, {}))
    step()
    np.testing.assert_array_equal(x.numpy(), np.arange(64) * 4.0)


def test_a_failing_call_leaves_everything_as_it_was() -> None:
    table = nn.Embedding(8, 4)
    optimizer = rl.optim.AdamW(table.parameters(), lr=0.1)

    @rl.jit
    def step(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (table(index) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    right, wrong = rl.tensor([1, 2, 3]), rl.tensor([1, 2, 8])
    for _ in range(3):
        step(right)
    assert step.program.layout.check >= 0 and step.program.layout.in_place
    tensors = [table.weight, *optimizer.state[table.weight].values()]
    before = [t.detach().clone().numpy() for t in tensors]
    assert table.weight.grad is not None
    gradient = table.weight.grad.detach().clone().numpy()
    with pytest.raises(rl.RidgelineError, match="8"):
        step(wrong)
    for tensor, old in zip(tensors, before):
        np.testing.assert_array_equal(tensor.detach().clone().numpy(), old)
    np.testing.assert_array_equal(table.weight.grad.detach().clone().numpy(), gradient)
    step(right)
    assert not np.array_equal(table.weight.detach().numpy(), before[0])


def test_threads_see_whole_values() -> None:
    x = rl.zeros(1 << 18)
    x.sum().item()

    @rl.jit
    def step() -> None:
        x.add_(1)

    step()
    torn: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen = np.array(x.detach().clone().numpy())
            torn.append(float(seen.max() - seen.min()))

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    writers = [threading.Thread(target=lambda: [step() for _ in range(40)]) for _ in range(2)]
    for thread in (*watchers, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    for thread in watchers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in (*watchers, *writers))
    assert torn and max(torn) == 0.0
    found = x.detach().numpy()
    assert found.min() == found.max() and 41 <= found[0] <= 81


def test_a_step_needs_no_second_copy_of_its_state() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    optimizer = rl.optim.AdamW(model.parameters(), lr=1e-3)

    @rl.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = rl.ones(4, 256)
    for _ in range(3):
        step(x).item()
    held = sum(p.numel() * 4 for p in model.parameters()) * 4  # values, gradients, two moments
    pool.reset_peak()
    start = pool.in_use
    for _ in range(3):
        step(x).item()
    assert pool.peak - start < held // 8


# ---- donated arguments ---------------------------------------------------------------------------


def test_a_result_takes_the_memory_of_a_donated_argument() -> None:
    step = rl.jit(lambda state, by: state * by, donate="state")
    x = state()
    before = address(x)
    for _ in range(4):
        x = step(x, rl.tensor(2.0))
        assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), np.arange(64) * 16.0)


def uses() -> dict[str, Callable[[Tensor], object]]:
    return {
        "read": lambda t: t.numpy(),
        "operand": lambda t: t + 1,
        "written": lambda t: t.add_(1),
        "viewed": lambda t: t[0].item(),
        "given": rl.jit(lambda t: t * 3),
        "mapped": lambda t: rl.vmap(lambda v: v + t.sum())(rl.ones(2)),
        "donated": rl.jit(lambda t: t * 3, donate=0),
    }


def test_memory_is_not_taken_from_an_argument_that_is_returned_in_another_shape() -> None:
    x = rl.arange(6).float() + 1
    half, same = rl.jit(lambda x: (x * 0.5, x.reshape(2, 3)), donate=True)(x)
    assert half.tolist() == [0.5, 1, 1.5, 2, 2.5, 3]
    assert same.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_memory_is_not_taken_from_state_whose_old_value_is_returned_in_another_shape() -> None:
    state = rl.arange(6).float() + 1

    @rl.jit
    def step() -> rl.Tensor:
        before = state.clone().unsqueeze(0)
        state.mul_(0.5)
        return before

    for factor in (1, 0.5, 0.25):
        assert step().tolist() == [[factor * n for n in (1, 2, 3, 4, 5, 6)]]


@pytest.mark.parametrize("use", list(uses()))
def test_a_donated_tensor_is_gone(use: str) -> None:
    step = rl.jit(lambda x: x + 1, donate=True)
    x = state()
    view = x[2:4]
    step(x)
    with pytest.raises(rl.RidgelineError, match="RL0405") as found:
        uses()[use](x)
    assert "test_handover.py:" in str(found.value) and "float32[64]" in str(found.value)
    with pytest.raises(rl.RidgelineError, match="RL0405"):
        view.numpy()
    assert list(x.shape) == [64]


def test_a_donated_tensor_that_nothing_read_is_not_waited_for() -> None:
    x = state() + 1  # recorded, not computed
    made = rl.jit(lambda x: rl.ones(3), donate=True)(x)
    assert (made + 1).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(rl.RidgelineError, match="RL0405"):
        x.tolist()


def test_captured_donated_tensors_are_gone_too() -> None:
    x = state()
    rl.jit(lambda x: x + 1, donate=True)(x)
    with pytest.raises(rl.RidgelineError, match="RL0405"):
        rl.jit(lambda y: y + x)(rl.ones(64))


def test_other_holders_of_donated_memory_keep_it() -> None:
    step = rl.jit(lambda x: x * 2, donate=0)
    a = rl.arange(64, dtype=rl.float32)
    x, y = a + 1, a + 1
    x.sum().item()
    later = x - 1
    step(x)
    np.testing.assert_array_equal(y.numpy(), np.arange(64) + 1.0)
    np.testing.assert_array_equal(later.numpy(), np.arange(64) * 1.0)


def test_structures_and_results_that_are_arguments() -> None:
    step = rl.jit(lambda state, k: ({"a": state["a"] + k, "b": state["b"]}, k), donate="state")
    given = {"a": rl.zeros(8), "b": rl.ones(8)}
    k = rl.ones(8)
    made, same = step(given, k)
    assert same is k and made["b"] is not given["b"]
    np.testing.assert_array_equal(made["a"].numpy(), np.ones(8))
    np.testing.assert_array_equal(made["b"].numpy(), np.ones(8))
    with pytest.raises(rl.RidgelineError, match="RL0405"):
        given["b"].numpy()


def test_a_donated_tensor_takes_no_gradient() -> None:
    w = rl.full((4,), 3.0).requires_grad_()
    loss = rl.jit(lambda w: (w * w).sum(), donate=0)(w)
    assert loss.item() == 36.0
    with pytest.raises(rl.RidgelineError, match="RL0405"):
        loss.backward()


def test_what_cannot_be_donated() -> None:
    with pytest.raises(rl.RidgelineError, match="view"):
        rl.jit(lambda x: x + 1, donate=0)(state()[2:])
    with pytest.raises(rl.RidgelineError, match="'z'"):
        rl.jit(lambda x: x + 1, donate="z")(state())
    with pytest.raises(rl.RidgelineError, match="donate is"):
        rl.jit(lambda x: x + 1, donate=(1.5,))  # type: ignore[arg-type]


@pytest.mark.parametrize("donate", ["y", 1, -2])
def test_donated_arguments_that_a_function_does_not_have(donate: str | int) -> None:
    with pytest.raises(ArgumentError, match="which the function does not have"):
        rl.jit(lambda x: x + 1, donate=donate)(rl.ones(3))


def test_donate_is_a_name_or_a_place() -> None:
    with pytest.raises(ArgumentError, match=r"donate is 1\.5"):
        rl.jit(lambda x: x + 1, donate=1.5)
    moved = rl.ones(3) + 0
    assert rl.jit(lambda x: x + 1, donate=0)(x=moved).tolist() == [2.0] * 3
    with pytest.raises(rl.RidgelineError, match="was donated"):
        moved.tolist()


def test_a_gradient_of_another_size_keeps_its_memory() -> None:
    """It is that of the parameter as it was before it got other values."""
    weight = nn.Parameter(rl.ones(4))

    @rl.jit
    def step() -> None:
        weight.grad = None
        (weight * weight).sum().backward()

    for size in (4, 100_000, 7):
        weight.data = rl.arange(size, dtype=rl.float32)
        for _ in range(2):
            step()
            np.testing.assert_array_equal(weight.grad.numpy(), 2 * np.arange(size))
    before = rl.ones(7).requires_grad_()
    before.sum().backward()
    old = before.grad
    weight.grad = old
    step()
    assert old.tolist() == [1.0] * 7
