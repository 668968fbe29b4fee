"""The planner against published runs: what it says of each, and of those it has not seen.

Constants are fitted on rows weighed by how many share a cell, and held near what physics and our
own measurements say. For a held-out group they are fitted on all other groups, and only then is the
group predicted.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ridgeline.planner.constants import DEFAULT, NAMES, PRIOR, SPREADS, Constants
from ridgeline.planner.layouts import ParallelLayout
from ridgeline.planner.memory import RankMemory, verdict, worst_rank
from ridgeline.planner.published import PublishedRun
from ridgeline.planner.step import StepModel, StepTime
from ridgeline.planner.work import TimedCluster

Floats = NDArray[np.float64]
# Of the errors that a fit sees, those beyond this (as logarithms) count as if they were this large.
_OUTLIER = 0.25
_ROUNDS = 3


@dataclass(frozen=True)
class Prediction:
    """What the planner says of a published run."""

    run: PublishedRun
    layout: ParallelLayout
    step: StepTime
    rank: RankMemory
    """The rank that holds most."""
    verdict: str

    @property
    def memory(self) -> float:
        """Bytes of what the row's figure for memory counts: all, or what papers compute."""
        computed = "weights+optimizer+activations" in self.run.memory_kind
        return self.rank.state_and_activations if computed else self.rank.total

    @property
    def log_error(self) -> float:
        """Of tokens a second and GPU, as a logarithm."""
        assert self.run.tokens is not None
        return math.log(self.tokens / self.run.tokens)

    @property
    def tokens(self) -> float:
        """Tokens a second and GPU."""
        return self.step.tokens_per_gpu / self.run.slowed


class Predictor:
    """Predictions under one set of constants."""

    def __init__(self, constants: Constants = DEFAULT) -> None:
        self.constants = constants
        self._machines: dict[object, TimedCluster] = {}

    def machine(self, run: PublishedRun) -> TimedCluster:
        """The machine of a run, made once."""
        if run.cluster not in self._machines:
            self._machines[run.cluster] = TimedCluster(run.cluster, self.constants)
        return self._machines[run.cluster]

    def predict(self, run: PublishedRun, simulated: bool = False) -> Prediction:
        """The run as its authors are taken to have run it: the fastest way that fits."""
        machine, capacity = self.machine(run), run.cluster.capacity
        found: list[tuple[tuple[bool, float], ParallelLayout, StepModel, StepTime, RankMemory]] = []
        for layout in run.layouts:
            if run.job.microbatches(layout) < 1:
                continue
            rank = worst_rank(run.job, layout, run.software)
            model = StepModel(run.job, layout, run.software, machine)
            step = model.estimate()
            fits = rank.total <= capacity
            order = (fits, step.tokens_per_gpu if fits else -rank.total)
            found.append((order, layout, model, step, rank))
        _, layout, model, step, rank = max(found, key=lambda one: one[0])
        if simulated:
            step = model.simulate()
        return Prediction(run, layout, step, rank, verdict(rank.total, capacity))

    def errors(self, chosen: Sequence[Prediction]) -> Floats:
        """The logarithm of predicted over measured speed of runs, in layouts that were chosen."""
        steps = [
            StepModel(one.run.job, one.layout, one.run.software, self.machine(one.run)).estimate()
            for one in chosen
        ]
        return np.array([replace(one, step=step).log_error for one, step in zip(chosen, steps)])


def weights_of(runs: Sequence[PublishedRun]) -> Floats:
    """A cell of many rows counts as the root of their number: its rows share their luck."""
    sizes: dict[object, int] = defaultdict(int)
    for run in runs:
        sizes[run.cell] += 1
    return np.array([sizes[run.cell] ** -0.25 for run in runs])


def fit(runs: Sequence[PublishedRun], start: Constants = PRIOR) -> Constants:
    """Constants that explain runs, by least squares of errors' logarithms and of what is known."""
    constants = start
    for _ in range(_ROUNDS):
        errors, slopes = errors_and_slopes(runs, constants)
        constants = _moved(constants, errors, slopes, weights_of(runs))
    return constants


def errors_and_slopes(runs: Sequence[PublishedRun], constants: Constants) -> tuple[Floats, Floats]:
    """Errors of runs, and how they change with the logarithm of each constant."""
    predictor = Predictor(constants)
    chosen = [predictor.predict(run) for run in runs]
    base, step = predictor.errors(chosen), 0.05
    slopes = [
        (Predictor(constants.moved(name, math.exp(step))).errors(chosen) - base) / step
        for name in NAMES
    ]
    return base, np.stack(slopes, 1)


def _moved(constants: Constants, errors: Floats, slopes: Floats, weights: Floats) -> Constants:
    """One step of least squares towards smaller errors, held by what is known of each constant."""
    # Errors count against their usual size; outliers no more than the bound.
    usual = 0.10
    pull = weights / usual * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    now = np.array([math.log(getattr(constants, n) / getattr(PRIOR, n)) for n in NAMES])
    known = np.array([1 / SPREADS[name] for name in NAMES])
    left = np.concatenate([slopes * pull[:, None], np.diag(known)])
    right = np.concatenate([-errors * pull, -now * known])
    moves, *_ = np.linalg.lstsq(left, right, rcond=None)
    return replace(
        constants,
        **{n: getattr(constants, n) * math.exp(float(m)) for n, m in zip(NAMES, moves)},
    )


@dataclass(frozen=True)
class Judged:
    """A row, predicted by constants that have not seen its group."""

    prediction: Prediction
    blind: float
    """Error without any factor, as a share."""
    factored: float | None
    """Error with the factor of the cell's other rows; none where there are fewer than three."""


def judge(
    runs: Sequence[PublishedRun], known: Sequence[PublishedRun], start: Constants
) -> list[Judged]:
    """Predict each group of runs by constants fitted on other groups of those that are known."""
    timed = [run for run in known if run.tokens is not None]
    errors, slopes = errors_and_slopes(timed, start)
    weights = weights_of(timed)
    groups = np.array([run.group for run in timed])
    asked = [run for run in runs if run.tokens is not None]
    found: list[Judged] = []
    for group in dict.fromkeys(run.group for run in asked):
        kept = groups != group
        constants = _moved(start, errors[kept], slopes[kept], weights[kept])
        predictor = Predictor(constants)
        held_out = [run for run in asked if run.group == group]
        # Rows of the group that are known, too, tell its factor.
        seen = {run.id for run in held_out}
        beside = [run for run in timed if run.group == group and run.id not in seen]
        judged = _judged([predictor.predict(run, True) for run in [*held_out, *beside]])
        found += [one for one in judged if one.prediction.run.id in seen]
    order = {run.id: index for index, run in enumerate(runs)}
    return sorted(found, key=lambda one: order[one.prediction.run.id])


def _judged(predictions: list[Prediction]) -> Iterable[Judged]:
    cells: dict[object, list[Prediction]] = defaultdict(list)
    for one in predictions:
        cells[one.run.cell].append(one)
    for rows in cells.values():
        for one in rows:
            factored = None
            if len(rows) >= 3:
                others = [other.log_error for other in rows if other is not one]
                factored = math.expm1(one.log_error - statistics.median(others))
            yield Judged(one, math.expm1(one.log_error), factored)
