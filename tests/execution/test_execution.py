"""Deferred, eager and pinned tiers agree; work runs once; memory stays bounded."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.execution import tiers
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.printer import format_graph
from ridgeline.record import graph_recorder, recorder
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import read
from ridgeline.runtime.buffer import pool


def program(x):
    y = (x @ x.t()).softmax(-1)
    z = y.mean(0) * 3 - x.sum(1).exp()
    return (z**2).sum() + y[0, 1:].amax()


def gradients(run):
    rl.manual_seed(0)
    x = rl.rand(6, 5, dtype=rl.float64, requires_grad=True)
    value = run(x)
    value.backward()
    return value.item(), x.grad.tolist()


def test_ways_to_run_agree():
    expected = gradients(program)
    with rl.eager():
        value, gradient = gradients(program)
        assert value == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)
    for tier in ("interpreter", "compiled"):
        with rl.config.override(tier=tier):
            value, gradient = gradients(program)
            assert value == pytest.approx(expected[0], rel=1e-12)
            np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)
    value, gradient = gradients(rl.jit(program))
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)


def test_exact_inputs_give_equal_results_everywhere():
    def exact(x, y):
        return ((x @ y) * 2 - x.sum(1, keepdim=True)).relu().sum(0), x.amax(1), y.t()[0]

    x = rl.arange(12, dtype=rl.float32).reshape(3, 4) - 5
    y = rl.arange(20, dtype=rl.float32).reshape(4, 5) - 7
    expected = [t.tolist() for t in exact(x, y)]
    with rl.eager():
        assert [t.tolist() for t in exact(x, y)] == expected
    with rl.config.override(tier="compiled"):
        assert [t.tolist() for t in exact(x, y)] == expected
    assert [t.tolist() for t in rl.jit(exact)(x, y)] == expected


def test_nothing_runs_before_it_is_read(monkeypatch):
    computed = []
    monkeypatch.setattr(upcalls, "match", lambda roots, tracked, reason: (
        computed.append(len(roots)), tiers.match(roots, tracked))[1])  # fmt: skip
    x = rl.ones(3)
    y = x + 1
    z = y * 2
    assert not computed
    assert z.tolist() == [4, 4, 4]
    assert y.tolist() == [2, 2, 2] and x.tolist() == [1, 1, 1]
    assert len(computed) == 1, "one flush computed everything that was pending"
    with rl.eager():
        y + 1
        z + 1
    assert len(computed) == 3


def counting(monkeypatch):
    runs = {}

    def counted(roots, given=None, order=None):
        from ridgeline.graph.node import topological

        for node in topological(roots, lambda n: n.buffer is not None):
            if node.buffer is None and node.inputs:
                runs[node] = runs.get(node, 0) + 1
        return evaluate(roots, given)

    monkeypatch.setattr(tiers, "evaluate", counted)
    return runs


def test_a_flush_between_forward_and_backward_repeats_only_elementwise_work(monkeypatch):
    runs = counting(monkeypatch)
    w1 = rl.randn(4, 5, requires_grad=True)
    w2 = rl.randn(5, 3, requires_grad=True)
    loss = ((rl.randn(2, 4) @ w1).tanh() @ w2).softmax(-1)[:, 0].log().mean()
    loss.item()
    loss.backward()
    assert w1.grad.shape == (4, 5) and np.isfinite(w1.grad.numpy()).all()
    w2.grad.tolist()
    repeated = {n.op.name for n, count in runs.items() if count > 1}
    assert not repeated & {"contract", "reduce"}


def test_memory_stays_bounded_in_loops():
    x = rl.zeros(1 << 14)
    gc.collect()
    x.tolist()
    start = pool.in_use
    for _ in range(50):
        x = x + 1
        x.sum().item()
    gc.collect()
    assert pool.in_use <= start + 4 * (1 << 16) + 4096
    assert x[0].item() == 50


def test_recording_alone_stays_bounded():
    x = rl.zeros(4)
    for _ in range(3 * graph_recorder.MOST_PENDING):
        x = x + 1
    depth, node = 0, x._cell.node
    while node.inputs:
        depth, node = depth + 1, node.inputs[0]
    assert depth <= graph_recorder.MOST_PENDING
    assert x[0].item() == 3 * graph_recorder.MOST_PENDING


def test_training_loop_keeps_constant_memory():
    rl.manual_seed(0)
    w = (rl.randn(64, 64) * 0.1).requires_grad_()
    losses = []
    for step in range(30):
        loss = (rl.randn(8, 64) @ w).tanh().square().mean()
        loss.backward()
        with rl.no_grad():
            w.sub_(w.grad * 10)
        w.grad = None
        recorder.flush()
        losses.append(loss)
        if step == 5:
            gc.collect()
            start, nodes = pool.in_use, count_nodes()
    gc.collect()
    assert pool.in_use <= start + 64 * 1024
    assert count_nodes() <= nodes + 30 * 20
    assert len(losses) == 30 and losses[-1].item() < losses[0].item()


def count_nodes():
    from ridgeline.graph import node

    return len(node._table)


DEPTH = 30_000  # far beyond what recursion could follow


def _deep(depth):
    w = rl.ones(2, requires_grad=True)
    x = w
    for _ in range(depth // 2):
        x = x * 1
        x = x + 1
    node = read(x)
    assert format_graph([node], at_most=5).count("\n") == 6
    assert len(format_graph([node], origins=False).splitlines()) > depth
    x.sum().backward()
    assert w.grad.tolist() == [1, 1]
    assert x.tolist() == [depth // 2 + 1] * 2


def test_deep_graphs():
    _deep(DEPTH)


@pytest.mark.slow
def test_a_hundred_thousand_ops_deep():
    _deep(100_000)


def test_deep_graphs_without_gradients():
    x = rl.ones(2)
    pending, graph_recorder.MOST_PENDING = graph_recorder.MOST_PENDING, 10 * DEPTH
    try:
        y = x
        for _ in range(DEPTH):
            y = y + x
        assert y.tolist() == [DEPTH + 1] * 2
        tangent = rl.jvp(lambda v: _chain(v, 2000), (x,), (x,))[1]
        assert tangent.tolist() == [2001, 2001]
    finally:
        graph_recorder.MOST_PENDING = pending


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_long_chains_in_every_tier(tier):
    """Kernels stay small, so that compiling takes time in proportion to the length."""

    def steps(x, w):
        y = x
        for i in range(150):
            y = (y * w).sin() if i % 3 == 0 else y + x if i % 3 == 1 else y * 0.5
        return y.sum()

    x, w = rl.linspace(0.1, 0.4, 4, requires_grad=True), rl.linspace(0.9, 1.2, 4)
    with rl.config.override(tier=tier):
        steps(x, w).backward()
        value, gradient = rl.jit(rl.value_and_grad(steps))(x, w)
    torch = pytest.importorskip("torch")
    t, u = torch.tensor(x.tolist(), requires_grad=True), torch.tensor(w.tolist())
    expected = steps(t, u)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert gradient.tolist() == pytest.approx(t.grad.tolist(), rel=1e-4)
    assert x.grad.tolist() == pytest.approx(t.grad.tolist(), rel=1e-4)


def _chain(v, length):
    total = v
    for _ in range(length):
        total = total + v
    return total


def test_threads_record_independently():
    results = {}

    def work(name):
        with rl.no_grad():
            x = rl.full((100,), float(name))
            for _ in range(200):
                x = x + 1
            results[name] = x.sum().item()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 100.0 * (n + 200) for n in range(4)}
    assert rl.is_grad_enabled()


def test_copies_and_pickles():
    x = rl.tensor([[1.0, 2.0]], requires_grad=True)
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.requires_grad and twin.is_leaf and twin.grad.tolist() == [[2.0, 4.0]]
    with rl.no_grad():
        twin.add_(1)
    assert x.tolist() == [[1.0, 2.0]]
    for value in (x, rl.arange(3), rl.ones(2, dtype=rl.bfloat16), rl.tensor(True)):
        back = pickle.loads(pickle.dumps(value))
        assert back.tolist() == value.tolist() and back.dtype is value.dtype
        assert back.requires_grad == value.requires_grad
    shallow = copy.copy(rl.ones(2))
    assert shallow.tolist() == [1, 1]


def test_scalars_do_not_change_the_structure():
    x = rl.rand(50, 50)
    x.tolist()
    before = len(tiers._pieces)
    for number in range(5):
        (x * (0.1 + number) - 0.5**number).sum().item()
    assert len(tiers._pieces) <= before + 1


def test_settings_hold_for_what_was_computed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rl.arange(7.0)
    x.tolist()
    interpreted: list[object] = []
    evaluate = tiers.evaluate
    monkeypatch.setattr(
        tiers, "evaluate", lambda *work, **order: interpreted.append(work) or evaluate(*work)
    )
    for tier, times in (("compiled", 0), ("interpreter", 1), ("compiled", 1), ("interpreter", 2)):
        with rl.config.override(tier=tier):
            assert (x * x - 3).tolist() == [n * n - 3 for n in range(7)]
        assert len(interpreted) == times


def test_one_number_is_one_input_and_equal_ones_are_two():
    rate, other = float("0.25"), float("0.25")
    x = rl.ones(3)
    leaves = {read(x * number).inputs[1].inputs[0] for number in (rate, rate, other)}
    assert len(leaves) == 2
    assert read(x.double() * rate).inputs[1].inputs[0] not in leaves, "of another type"
    assert ((x * rate) + x.double() * rate).tolist() == [0.5] * 3


def test_every_step_of_a_model_with_many_numbers_is_recorded_alike():
    layers = [nn.Linear(3, 3) for _ in range(20)]
    model = nn.Sequential(*layers)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x = rl.ones(2, 3)
    known = []
    for _ in range(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        known.append(len(tiers._pieces))
    assert known[2:] == known[2:3] * 4


def test_import_is_light():
    code = (
        "import sys, time; t = time.perf_counter(); import ridgeline; "
        "heavy = [m for m in ('llvmlite', 'rich', 'torch', 'safetensors') if m in sys.modules]; "
        "x = ridgeline.ones(2) + 1; assert x.tolist() == [2, 2]; assert not heavy, heavy; "
        "assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_memory_shared_with_numpy_is_not_overwritten_under_pending_work() -> None:
    x = rl.tensor([1.0, 2.0]).requires_grad_()
    x.detach().numpy()  # from here on the values lie in memory that NumPy may see
    (x * x).sum().backward()
    with rl.no_grad():
        x.add_(5)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


def test_memory_is_shared_with_numpy_as_long_as_an_array_is_held(monkeypatch) -> None:
    x = rl.tensor([1.0, 2.0])
    array = x.numpy()
    x.add_(1)
    assert array.tolist() == [2.0, 3.0]
    array[0] = 7
    assert (x * 1).tolist() == [7.0, 3.0]
    place = array.ctypes.data
    del array
    assert x.numpy().ctypes.data == place  # nobody else has it, so it is handed out again
    flushes = []
    monkeypatch.setattr(upcalls, "match", lambda *roots: flushes.append(roots))
    x.add_(1)
    assert not flushes, "writing to memory that nobody outside holds any more computes nothing"
    monkeypatch.undo()
    assert x.tolist() == [8.0, 4.0]


def test_jit_sees_what_numpy_writes_until_the_array_is_gone() -> None:
    x = rl.tensor([1.0, 2.0])
    double = rl.jit(lambda: x * 2)
    with rl.no_grad():
        array = x.numpy()
        assert double().tolist() == [2.0, 4.0]
        array[1] = 5
        assert double().tolist() == [2.0, 10.0]
        array[1] = 6
        del array
        assert double().tolist() == [2.0, 12.0]


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_what_cannot_be_computed_does_not_stop_other_work(tier: str) -> None:
    """The error comes where the value is read, every time, and nowhere else."""
    with rl.config.override(tier=tier):
        wrong = rl.ones(10, 4)[rl.tensor([1, 49]) * 2 + 1]
        beside = rl.ones(3) * 5
        for _ in range(2):
            with pytest.raises(IndexError, match="index 99"):
                wrong.numpy()
        assert (rl.ones(3) * 2).sum().item() == 6
        assert beside.tolist() == [5, 5, 5]


def test_interpreted_work_that_comes_again_is_derived_once(monkeypatch):
    """The backward pass is written out twice at most, however often the step is interpreted."""
    derived = []
    write_out = tiers.written_out
    monkeypatch.setattr(tiers, "written_out", lambda roots: derived.append(1) or write_out(roots))
    weight = rl.tensor(np.arange(15, dtype=np.float32).reshape(3, 5), requires_grad=True)
    with rl.config.override(tier="interpreter"):
        for number in range(6):
            value = np.full((7, 3), number, np.float32)
            (rl.tensor(value) @ weight).square().sum().backward()
            expected = 2 * value.T @ (value @ weight.detach().numpy())
            np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-5)
            weight.grad = None
    assert 0 < len(derived) <= 2
