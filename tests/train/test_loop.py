"""The loop: it learns, resumes exactly, stops cleanly, and refuses to go on with NaN."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ridgeline import nn, optim
from ridgeline.data import DataLoader, TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.optim.lr_scheduler import OneCycleLR
from ridgeline.random import manual_seed
from ridgeline.train.checkpoint import load_checkpoint
from ridgeline.train.display import Display
from ridgeline.train.interrupt import Interrupt
from ridgeline.train.log import RunLog
from ridgeline.train.loop import (
    CHECKPOINT,
    CheckpointMismatchError,
    DivergedError,
    Run,
    drive,
)

EPOCHS = 4


def make(lr: float = 0.3, seed: int = 0) -> Run:
    """Two clouds of points, a small network with dropout, one cycle of SGD."""
    manual_seed(seed)
    source = np.random.default_rng(0)
    labels = source.integers(0, 2, 40)
    points = (source.standard_normal((40, 2)) + 3 * labels[:, None]).astype(np.float32)
    loader = DataLoader(TensorDataset(points, labels), 8, shuffle=True, seed=seed)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = OneCycleLR(optimizer, lr, total_steps=EPOCHS * len(loader))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        return loss, {"accuracy": (scores.argmax(1) == y).sum()}

    return Run(model, optimizer, schedule, loader, step, {"lr": lr, "seed": seed})


def go(run: Run, out: Path, interrupt: Interrupt | None = None, epochs: int = EPOCHS) -> bool:
    display = Display(Console(file=io.StringIO()), epochs, len(run.loader))
    with RunLog(out / "log.jsonl") as log:
        return drive(run, epochs, out, display, log, interrupt or Interrupt())


def weights(run: Run) -> list[list[float]]:
    return [as_array(p).ravel().tolist() for p in run.model.parameters()]


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_learns_and_logs(tmp_path: Path) -> None:
    run = make()
    assert go(run, tmp_path)
    logged = events(tmp_path)
    assert [e["event"] for e in logged] == ["epoch"] * EPOCHS
    assert logged[-1]["loss"] < logged[0]["loss"] and logged[-1]["accuracy"] > 0.9
    assert (tmp_path / CHECKPOINT).exists()


def stop_after(run: Run, steps: int, interrupt: Interrupt) -> None:
    """Make the run ask for a stop after some steps, as a signal would."""
    plain, done = run.step, []

    def step(*batch: Any) -> Any:
        done.append(None)
        if len(done) == steps:
            interrupt.signal = signal.SIGINT
        return plain(*batch)

    run.step = step


@pytest.mark.parametrize("steps", [1, 5, 7, 19])
def test_a_resumed_run_gives_the_same_numbers(steps: int, tmp_path: Path) -> None:
    whole = make()
    go(whole, tmp_path / "whole")
    first, interrupt = make(), Interrupt()
    stop_after(first, steps, interrupt)
    assert not go(first, tmp_path / "parts", interrupt)
    second = make()
    second.restore(tmp_path / "parts" / CHECKPOINT)
    assert go(second, tmp_path / "parts")
    assert weights(second) == weights(whole)
    losses = [[e["loss"] for e in events(tmp_path / p) if e["event"] == "epoch"]
              for p in ("whole", "parts")]  # fmt: skip
    assert losses[0] == losses[1]


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    run = make()
    run.model[0].weight.data.copy_(run.model[0].weight.data * float("nan"))
    with pytest.raises(DivergedError, match=r"nan in epoch 1, step 1") as caught:
        go(run, tmp_path)
    assert "holds NaN before the forward pass" in caught.value.note
    load_checkpoint(tmp_path / CHECKPOINT)


def test_the_line_that_made_a_nan_is_named(tmp_path: Path) -> None:
    run = make()

    class Rooted(nn.Module):
        """Its square root meets a number below zero in the fourth epoch."""

        def forward(self, x: Any) -> Any:
            return x + (2.5 - run.progress.epoch + 0 * x).sqrt()  # here

    run.model.append(Rooted())
    with pytest.raises(DivergedError, match="nan in epoch 4, step 1") as caught:
        go(run, tmp_path)
    assert "sqrt giving" in caught.value.note and ".sqrt()  # here" in caught.value.note
    assert "in the forward pass" in caught.value.note and "in 4" in caught.value.note


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    make().save(tmp_path / CHECKPOINT)
    with pytest.raises(CheckpointMismatchError, match="other settings") as caught:
        make(lr=0.5).restore(tmp_path / CHECKPOINT)
    assert "lr: the checkpoint has 0.3, this run 0.5" in str(caught.value)
    other = make()
    other.model = nn.Linear(2, 2)
    with pytest.raises(Exception, match="does not fit Linear"):
        other.restore(tmp_path / CHECKPOINT)


def test_signals_are_noted_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested and interrupt.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
