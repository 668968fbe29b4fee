"""`fit`: a whole training run in one call, with all that `ridgeline train` offers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ridgeline.data import DataLoader
from ridgeline.nn import Module
from ridgeline.optim import Optimizer
from ridgeline.train.display import Display
from ridgeline.train.evaluate import Evaluator
from ridgeline.train.events import SummaryWriter
from ridgeline.train.folders import check_free
from ridgeline.train.interrupt import Interrupt
from ridgeline.train.log import RunLog
from ridgeline.train.loop import CHECKPOINT, Progress, Run, drive
from ridgeline.train.objectives import Objective
from ridgeline.train.step import Average, Step


@dataclass(frozen=True)
class Fitted:
    """What a call of `fit` leaves: the weights to use, and how far it came."""

    model: Module  # the average where one was kept, else the model itself
    progress: Progress
    finished: bool  # False where the user stopped it


def fit(
    model: Module,
    loader: DataLoader,
    objective: Objective,
    optimizer: Optimizer,
    *,
    epochs: int,
    out: str | Path,
    scheduler: Any = None,
    validation: DataLoader | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    ema: float | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Fitted:
    """Train `model` for `epochs` passes over `loader`, writing into the folder `out`.

    The folder gets a checkpoint, a log (`log.jsonl`) and TensorBoard events. The scheduler steps
    once a batch. After every epoch the objective is measured on `validation`, with the average of
    the weights where `ema` keeps one. Ctrl-C saves and returns; with `resume=True` a checkpoint in
    the folder is gone on from, and the numbers are those of a run that was never stopped. Without
    it a folder that holds a run already is refused.
    """
    folder = Path(out)
    average = None if ema is None else Average(model, ema)
    step = Step(model, optimizer, objective, accumulate, clip, average)
    settings = {"accumulate": accumulate, "clip": clip, "ema": ema}
    device = str(next(model.parameters()).device)
    run = Run(model, optimizer, scheduler, loader, step, settings, device)
    if validation is not None:
        evaluator = Evaluator(model if average is None else average.model, objective, device)
        run.validate = partial(evaluator, validation)
    if not resume:
        check_free(folder, "resume=True")
    elif (folder / CHECKPOINT).exists():
        run.restore(folder / CHECKPOINT)
    display = Display(Console(stderr=True), epochs, len(loader), quiet)
    with (
        RunLog(folder / "log.jsonl") as log,
        SummaryWriter(folder) as events,
        Interrupt() as interrupt,
        display.live(run.progress.total_steps),
    ):
        log.write("start", epochs=epochs, resumed=bool(run.progress.total_steps), **settings)
        finished = drive(run, epochs, folder, display, log, interrupt, events)
    return Fitted(average.model if average is not None else model, run.progress, finished)
