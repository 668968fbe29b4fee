"""The training loop: epochs of steps, with progress, log, checkpoints and clean stops.

A `Run` ties a model, its optimizer and schedule, a loader and a step function together, and can
save and restore all of them. `fit` drives it. An interrupted and resumed run gives the numbers of
an uninterrupted one, because everything that changes from step to step is in the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.data import DataLoader
from ridgeline.errors import RidgelineError
from ridgeline.nn import Module
from ridgeline.optim import Optimizer
from ridgeline.optim.lr_scheduler import LRScheduler
from ridgeline.random import default_generator
from ridgeline.train.checkpoint import load_checkpoint, save_checkpoint
from ridgeline.train.display import Display, Reading
from ridgeline.train.interrupt import Interrupt
from ridgeline.train.log import RunLog

SAVE_EVERY = 10.0  # seconds between checkpoints that are made at the end of an epoch
CHECKPOINT = "checkpoint.safetensors"

Step = Callable[..., tuple[Any, Any]]  # (inputs, labels) -> (mean loss, correct predictions)


class DivergedError(RidgelineError):
    """A loss that is no longer a finite number."""

    code = "RL0601"


class CheckpointMismatchError(RidgelineError):
    """A checkpoint of another run than the one that is to go on."""

    code = "RL0602"


@dataclass
class Progress:
    """How far a run has come; sums are over the current epoch."""

    epoch: int = 0
    step: int = 0
    samples: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seconds: float = 0.0  # spent in steps since the first run began

    def add(self, samples: int, loss: float, correct: int, seconds: float) -> None:
        """Count one step."""
        self.step += 1
        self.samples += samples
        self.loss_sum += loss * samples
        self.correct += correct
        self.seconds += seconds

    def next_epoch(self) -> None:
        """Begin a new epoch with empty sums."""
        self.epoch, self.step = self.epoch + 1, 0
        self.samples, self.loss_sum, self.correct = 0, 0.0, 0

    def reading(self, speed: float) -> Reading:
        """What to show of it."""
        count = max(self.samples, 1)
        return Reading(self.epoch, self.step, self.loss_sum / count, self.correct / count, speed)


@dataclass
class Run:
    """All that a training run changes, and the settings it was started with."""

    model: Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    loader: DataLoader
    step: Step
    settings: Mapping[str, Any]
    progress: Progress = field(default_factory=Progress)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        save_checkpoint(
            path,
            {
                "settings": dict(self.settings),
                "progress": asdict(self.progress),
                "loader": self.loader.state_dict(),
                "random": list(default_generator.get_state()),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            },
        )

    def restore(self, path: Path) -> None:
        """Take the state of a checkpoint; it must come from a run with the same settings."""
        state = load_checkpoint(path)
        try:
            check_settings(state["settings"], self.settings, path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
            self.loader.load_state_dict(state["loader"])
            self.progress = Progress(**state["progress"])
            seed, offset = state["random"]
            default_generator.set_state((seed, offset))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointMismatchError(f"{path} does not fit this run: {error!r}") from error


def check_settings(saved: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """Raise when a run is to go on with other settings than it began with."""
    different = [
        f"{name}: the checkpoint has {saved.get(name)!r}, this run {wanted[name]!r}"
        for name in wanted
        if saved.get(name) != wanted[name]
    ]
    if different:
        raise CheckpointMismatchError(
            f"{path} belongs to a run with other settings",
            note="\n".join(different),
            help="leave these options out to go on, or train into another folder",
        )


def fit(
    run: Run, epochs: int, out: Path, display: Display, log: RunLog, interrupt: Interrupt
) -> bool:
    """Train until `epochs` are done; False when the user stopped the run, which is then saved."""
    began, samples, first_epoch = time.perf_counter(), 0, run.progress.epoch
    last_save = began
    while run.progress.epoch < epochs:
        for inputs, labels in run.loader:
            before = time.perf_counter()
            loss, correct = run.step(inputs, labels)
            value = float(loss)
            if not math.isfinite(value):
                raise _diverged(run, value)
            if run.scheduler is not None:
                run.scheduler.step()
            run.progress.add(len(labels), value, int(correct), time.perf_counter() - before)
            samples += len(labels)
            display.step(run.progress.reading(samples / (time.perf_counter() - began)))
            if interrupt.requested:
                run.save(out / CHECKPOINT)
                log.write("interrupted", epoch=run.progress.epoch, step=run.progress.step)
                return False
        reading = run.progress.reading(samples / (time.perf_counter() - began))
        log.write("epoch", **asdict(reading), lr=run.optimizer.param_groups[0]["lr"])
        display.epoch(reading, run.progress.epoch + 1 - first_epoch)
        run.progress.next_epoch()
        if time.perf_counter() - last_save > SAVE_EVERY:
            run.save(out / CHECKPOINT)
            last_save = time.perf_counter()
    run.save(out / CHECKPOINT)
    return True


def _diverged(run: Run, value: float) -> DivergedError:
    place = f"epoch {run.progress.epoch + 1}, step {run.progress.step + 1}"
    return DivergedError(
        f"the loss became {value} in {place}",
        note=f"the learning rate was {run.optimizer.param_groups[0]['lr']:.3g}; "
        "the last checkpoint is unchanged",
        help="lower --lr",
    )
