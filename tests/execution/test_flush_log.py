"""What `explain_last` and `record_flushes` tell of undecorated code; the line while one waits."""

from __future__ import annotations

import threading
import time

import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.compiler import background
from ridgeline.config import config

pytestmark = pytest.mark.usefixtures("nothing_recorded")


def test_a_block_tells_its_flushes_with_function_and_line() -> None:
    x = rl.arange(8.0)
    with rl.record_flushes() as log:
        total = (x * 2).sum()
        assert total.item() == 56.0
        assert float((x + 1).mean()) == 4.5
    assert [flush.caller.function for flush in log.flushes] == ["Tensor.item", "Tensor.__float__"]
    assert all("test_flush_log.py:" in flush.why for flush in log.flushes)
    assert [flush.device for flush in log.flushes] == ["cpu", "cpu"]
    assert all(flush.ops >= 2 for flush in log.flushes)
    assert log.began < log.flushes[0].began < log.flushes[0].ended <= log.flushes[1].began
    parts = log.preparing + log.running + log.outside
    assert parts == pytest.approx(log.ended - log.began)


def test_programs_are_interpreted_new_or_found() -> None:
    def step(x: rl.Tensor) -> float:
        return float((x * 3.25 - x.sin()).sum())

    x = rl.arange(11.0)
    with config.override(tier="interpreter"), rl.record_flushes() as log:
        step(x)
    assert [flush.program for flush in log.flushes] == ["interpreted"]
    assert log.preparing == 0.0 < log.running
    with config.override(tier="compiled", tape=False), rl.record_flushes() as log:
        step(x)
        step(x)
    assert [flush.program for flush in log.flushes] == ["new", "found"]
    assert (log.count("new"), log.count("found"), log.count("interpreted")) == (1, 1, 0)
    assert log.flushes[0].preparing > log.flushes[1].preparing > 0.0


def test_a_training_loop_as_a_table() -> None:
    model = nn.Linear(4, 2)
    optimizer = rl.optim.SGD(model.parameters(), lr=0.1)
    with rl.record_flushes() as log:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(rl.ones(5, 4)).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()
    text = str(log)
    assert text == repr(log)
    assert "flushes in" in text.splitlines()[0]
    assert "outside, in Python" in text
    assert "test_flush_log.py:" in text
    assert sum(flush.ops for flush in log.flushes) > 10


def test_what_piled_up_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.record.graph_recorder.MOST_PENDING", 4)
    with rl.record_flushes() as log:
        kept = [rl.ones(2) + n for n in range(4)]
    assert "4 ops had been recorded" in log.flushes[0].why
    assert "test_flush_log.py:" in log.flushes[0].why
    assert [t.tolist() for t in kept] == [[n + 1.0] * 2 for n in range(4)]


def test_the_last_flushes_are_kept_for_their_thread_alone() -> None:
    (rl.tensor([1.0, 2.0]) + 1).numpy()
    assert "Tensor.numpy at" in str(rl.explain_last(1))
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(str(rl.explain_last())))
    thread.start()
    thread.join()
    assert seen == ["nothing was flushed: no recorded work was computed"]


def test_blocks_may_be_nested_and_end_with_errors() -> None:
    def compute() -> None:
        # of new memory: a constant is one node for all, and may have its value
        (rl.tensor([1.0, 2.0]) * 2).sum().item()

    with rl.record_flushes() as outer:
        with pytest.raises(KeyError), rl.record_flushes() as inner:
            compute()
            raise KeyError
        compute()
    assert (len(inner.flushes), len(outer.flushes)) == (1, 2)
    compute()
    assert len(outer.flushes) == 2


def test_eager_ops_are_flushes_of_their_own() -> None:
    with rl.eager(), rl.record_flushes() as log:
        (rl.ones(3) * 2).sum()
    assert len(log.flushes) >= 2


def test_jitted_calls_are_no_flushes() -> None:
    f = rl.jit(lambda x: x * 2)
    x = rl.ones(3)
    f(x)
    with rl.record_flushes() as log:
        f(x)
    assert not log.flushes


def test_a_long_wait_for_the_compiler_is_announced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import ridgeline.compiler as compiler

    def slowly(*args: object) -> object:
        time.sleep(0.05)
        return compiled(*args)

    compiled = compiler.compile_graph
    monkeypatch.setattr(compiler, "compile_graph", slowly)
    monkeypatch.setattr(background, "PATIENCE", 0.005)
    with config.override(announce=True, tier="compiled"):
        (rl.arange(7.0) * 1.75).sum().item()
        said = capfd.readouterr().err
        assert said.startswith("ridgeline: compiling ")
        assert "for cpu, needed at " in said
        assert "test_flush_log.py:" in said
        assert said.count("\n") == 1
    with config.override(announce=False, tier="compiled"):
        (rl.arange(9.0) * 1.75).sum().item()
    assert capfd.readouterr().err == ""
