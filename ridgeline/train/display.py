"""Progress of a run on standard error: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


@dataclass(frozen=True, slots=True)
class StepRate:
    """What the display shows at one moment of a run."""

    epoch: int  # 0 for the first
    step: int  # steps done in this epoch
    loss: float
    metrics: Mapping[str, float]
    samples_per_second: float


def shown(metrics: Mapping[str, float]) -> str:
    """Metrics as text; an accuracy is a share."""
    return "  ".join(
        name.replace("_", " ") + (f" {value:.1%}" if name.endswith("accuracy") else f" {value:.4f}")
        for name, value in metrics.items()
    )


class _Speed(ProgressColumn):
    """Samples per second since the run began."""

    def render(self, task: Task) -> Text:
        speed = task.fields.get("speed", 0.0)
        return Text(f"{speed:,.0f} samples/s" if speed else "", style="progress.data.speed")


class Display:
    """Shows readings; `live()` encloses the run."""

    def __init__(self, console: Console, epochs: int, steps: int, quiet: bool = False) -> None:
        self.console, self.epochs, self.steps, self.quiet = console, epochs, steps, quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()

    @contextmanager
    def live(self, done: int = 0) -> Iterator[None]:
        """Show a bar while the block runs; `done` steps were made by an earlier run."""
        self._began = time.monotonic()
        if self.quiet or not self.console.is_terminal:
            yield
            return
        progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[metrics]}"),
            _Speed(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        with progress:
            self._progress = progress
            self._task = progress.add_task(
                "train", total=self.epochs * self.steps, completed=done,
                epoch=f"1/{self.epochs}", loss="–", metrics="", speed=0.0,
            )  # fmt: skip
            try:
                yield
            finally:
                self._progress = None

    def step(self, reading: StepRate) -> None:
        """After every step: move the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task,
                completed=reading.epoch * self.steps + reading.step,
                epoch=f"{reading.epoch + 1}/{self.epochs}",
                loss=f"{reading.loss:.4f}",
                metrics=shown(reading.metrics),
                speed=reading.samples_per_second,
            )

    def epoch(self, reading: StepRate, done: int) -> None:
        """After every epoch: a line, where there is no bar; `done` epochs were made in this run."""
        if self.quiet or self._progress is not None:
            return
        elapsed = time.monotonic() - self._began
        left = elapsed / done * (self.epochs - reading.epoch - 1)
        self.console.print(
            f"epoch {reading.epoch + 1}/{self.epochs}  loss {reading.loss:.4f}  "
            + (f"{shown(reading.metrics)}  " if reading.metrics else "")
            + f"{reading.samples_per_second:,.0f} samples/s  {left:.0f} s left",
            highlight=False,
        )

    def say(self, message: str) -> None:
        """A line above the bar."""
        if not self.quiet:
            self.console.print(message, highlight=False, markup=False)
