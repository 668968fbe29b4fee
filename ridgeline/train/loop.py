"""The training loop: epochs of steps, with progress, log, checkpoints and clean stops.

A `Run` ties a model, its optimizer and schedule, a loader and a step together, and can save and
restore all of them. `drive` runs it. An interrupted and resumed run gives the numbers of an
uninterrupted one, because everything that changes from step to step is in the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.autograd.anomaly import AnomalyError, detect_anomaly
from ridgeline.data import DataLoader
from ridgeline.distributed import (
    Mesh,
    load_checkpoint as load_sharded,
    save_checkpoint as save_sharded,
)
from ridgeline.errors import RidgelineError
from ridgeline.functions.random import chosen_generator
from ridgeline.nn import Module
from ridgeline.train.checkpoint import load_checkpoint, save_checkpoint
from ridgeline.train.display import Display, StepRate
from ridgeline.train.events import SummaryWriter
from ridgeline.train.interrupt import Interrupt
from ridgeline.train.log import RunLog

SAVE_EVERY = 10.0  # seconds between checkpoints
SAVE_STEPS = 100  # between those of a mesh, whose ranks have no clock in common
SAVE_SHARE = 0.05  # of the time, at most, spent on saving
CHECKPOINT = "checkpoint.safetensors"


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
    metric_sums: dict[str, float] = field(default_factory=dict)
    total_steps: int = 0
    seconds: float = 0.0  # spent in steps since the first run began

    def add(self, samples: int, loss: float, metrics: Mapping[str, float], seconds: float) -> None:
        """Count one step."""
        self.step += 1
        self.total_steps += 1
        self.samples += samples
        self.loss_sum += loss * samples
        for name, value in metrics.items():
            self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value
        self.seconds += seconds

    def next_epoch(self) -> None:
        """Begin a new epoch with empty sums."""
        self.epoch, self.step = self.epoch + 1, 0
        self.samples, self.loss_sum, self.metric_sums = 0, 0.0, {}

    def reading(self, speed: float) -> StepRate:
        """What to show of it."""
        count = max(self.samples, 1)
        metrics = {name: value / count for name, value in self.metric_sums.items()}
        return StepRate(self.epoch, self.step, self.loss_sum / count, metrics, speed)


@dataclass
class Run:
    """All that a training run changes, and the settings it was started with."""

    model: Module
    optimizer: Any  # an Optimizer, or several behind its interface
    scheduler: Any
    loader: DataLoader
    step: Any  # a Step, or a function of a batch that gives the loss and sums of metrics
    settings: Mapping[str, Any]
    device: str = "cpu"
    validate: Callable[[], Mapping[str, float]] | None = None  # after every epoch
    progress: Progress = field(default_factory=Progress)
    mesh: Mesh | None = None  # of the ranks that share the work; all of them drive the run

    def _parts(self) -> dict[str, Any]:
        """What has state of its own."""
        average = getattr(self.step, "average", None)
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader,
                 "scheduler": self.scheduler, "average": average}  # fmt: skip
        return {name: part for name, part in parts.items() if part is not None}

    def save(self, path: Path) -> None:
        """Write a checkpoint; ranks of a mesh write theirs into a folder."""
        if self.mesh is not None:
            here = {"settings": dict(self.settings), "progress": asdict(self.progress)}
            schedule = None if self.scheduler is None else self.scheduler.state_dict()
            save_sharded(
                path.with_suffix(""), self.model, self.optimizer, self.loader,
                {**here, "scheduler": schedule},
            )  # fmt: skip
            return
        state = {name: part.state_dict() for name, part in self._parts().items()}
        plain = {
            "settings": dict(self.settings),
            "progress": asdict(self.progress),
            "random": list(chosen_generator().get_state()),
        }
        save_checkpoint(path, {**plain, **state})

    def restore(self, path: Path) -> None:
        """Take the state of a checkpoint; it must come from a run with the same settings."""
        if self.mesh is not None:
            folder = path.with_suffix("")
            extra = load_sharded(folder, self.model, self.optimizer, self.loader)
            check_settings(extra["settings"], self.settings, folder)
            if self.scheduler is not None:
                self.scheduler.load_state_dict(extra["scheduler"])
            self.progress = Progress(**extra["progress"])
            return
        state = load_checkpoint(path)
        try:
            check_settings(state["settings"], self.settings, path)
            for name, part in self._parts().items():
                part.load_state_dict(state[name])
            self.progress = Progress(**state["progress"])
            seed, offset = state["random"]
            chosen_generator().set_state((seed, offset))
        except RidgelineError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointMismatchError(f"{path} does not fit this run: {error!r}") from error

    def agreed(self, wish: bool) -> bool:
        """True where a rank of the mesh wishes something: then all do it, at the same step."""
        if self.mesh is None:
            return wish
        return bool(self.mesh.world.all_reduce(np.array([int(wish)]), "max")[0])

    def settled(self) -> bool:
        """True where the state can be saved: no gradients wait for an update."""
        return bool(getattr(self.step, "settled", True))

    def take(self, batch: Any) -> tuple[float, dict[str, float]]:
        """One step on a batch."""
        parts = batch if isinstance(batch, tuple) else (batch,)
        loss, metrics = self.step(*(part.to(self.device) for part in parts))
        return float(loss), {name: float(value) for name, value in metrics.items()}

    def end_epoch(self) -> None:
        """Update with what was gathered, and count the epoch."""
        if hasattr(self.step, "finish"):
            self.step.finish()
        self.progress.next_epoch()


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


class _Saver:
    """Saves now and then: not too often, and not for too large a share of the time."""

    def __init__(self, run: Run, path: Path) -> None:
        self.run, self.path = run, path
        self._next = 0.0

    def save(self) -> None:
        """Save now."""
        began = time.perf_counter()
        self.run.save(self.path)
        done = time.perf_counter()
        self._next = done + max(SAVE_EVERY, (done - began) / SAVE_SHARE)

    def maybe(self) -> None:
        """Save if it is time and the state is whole; ranks of a mesh count steps instead."""
        if self.run.mesh is not None:
            if self.run.progress.total_steps % SAVE_STEPS == 0 and self.run.settled():
                self.save()
            return
        if time.perf_counter() >= self._next and self.run.settled():
            self.save()


def drive(
    run: Run,
    epochs: int,
    out: Path,
    display: Display,
    log: RunLog,
    interrupt: Interrupt,
    events: SummaryWriter | None = None,
) -> bool:
    """Train until `epochs` are done; False when the user stopped the run, which is then saved."""
    began, samples, first_epoch = time.perf_counter(), 0, run.progress.epoch
    saver = _Saver(run, out / CHECKPOINT)
    if not run.progress.total_steps:
        saver.save()  # also fails early where nothing can be written
    while run.progress.epoch < epochs:
        for batch in run.loader:
            before = time.perf_counter()
            loss, metrics = run.take(batch)
            if not math.isfinite(loss):
                raise _diverged(run, loss, saver.path)
            if run.scheduler is not None:
                run.scheduler.step()
            count = len(batch[0])
            run.progress.add(count, loss, metrics, time.perf_counter() - before)
            samples += count
            display.step(run.progress.reading(samples / (time.perf_counter() - began)))
            if events is not None:
                means = {f"step/{name}": value / count for name, value in metrics.items()}
                events.add_scalars({"step/loss": loss, **means}, run.progress.total_steps)
            if run.agreed(interrupt.requested) and run.settled():
                saver.save()
                log.write("interrupted", epoch=run.progress.epoch, step=run.progress.step)
                return False
            saver.maybe()
        speed = samples / (time.perf_counter() - began)
        _report_epoch(run, speed, first_epoch, display, log, events)
        run.end_epoch()
    saver.save()
    return True


def _report_epoch(
    run: Run,
    speed: float,
    first_epoch: int,
    display: Display,
    log: RunLog,
    events: SummaryWriter | None,
) -> None:
    reading = run.progress.reading(speed)
    if run.validate is not None:
        found = {f"validation_{name}": value for name, value in run.validate().items()}
        reading = replace(reading, metrics={**reading.metrics, **found})
    rate = run.optimizer.param_groups[0]["lr"]
    shown = {"loss": reading.loss, **reading.metrics}
    log.write(
        "epoch", epoch=reading.epoch, step=reading.step, **shown, samples_per_second=speed, lr=rate
    )
    if events is not None:
        tags = {f"epoch/{name}": value for name, value in shown.items()}
        events.add_scalars({**tags, "epoch/lr": rate}, reading.epoch + 1)
    display.epoch(reading, reading.epoch + 1 - first_epoch)


def _diverged(run: Run, value: float, checkpoint: Path) -> DivergedError:
    """The error, with the op and line that made the first bad value."""
    moment = f"epoch {run.progress.epoch + 1}, step {run.progress.step + 1}"
    rate = run.optimizer.param_groups[0]["lr"]
    return DivergedError(
        f"the loss became {value} in {moment}",
        note=f"{_first_bad_value(run, checkpoint)}\nthe learning rate was {rate:.3g}; "
        "the last checkpoint is unchanged",
        help="lower the learning rate (--lr), or look at the line above",
    )


def _first_bad_value(run: Run, checkpoint: Path) -> str:
    """Go back to the last checkpoint, repeat the steps since, and look into the last two."""
    wanted = run.progress.total_steps
    run.restore(checkpoint)
    while run.progress.total_steps <= wanted:
        for batch in run.loader:
            close = run.progress.total_steps >= wanted - 1
            try:
                with detect_anomaly(close, infinite=True):
                    loss, metrics = run.take(batch)
            except AnomalyError as error:
                return f"{error.message}\n{error.note}".strip()
            if run.scheduler is not None:
                run.scheduler.step()
            run.progress.add(len(batch[0]), loss, metrics, 0.0)
            if run.progress.total_steps > wanted:
                break
        else:
            run.end_epoch()
    return "the steps before it show no bad value when they are repeated node by node"
