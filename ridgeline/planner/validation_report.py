"""The comparison with published runs as text: every row, then what must hold."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ridgeline.planner.constants import DEFAULT, NAMES, Constants
from ridgeline.planner.published import PublishedRun
from ridgeline.planner.validation import Judged, Prediction, Predictor, judge

_SWEEP = 6


def validation_text(
    runs: Sequence[PublishedRun], known: Sequence[PublishedRun], constants: Constants = DEFAULT
) -> str:
    """All of it: rows, errors, ranks, memory; `known` are the rows that constants are fitted on."""
    judged = judge(runs, known, constants)
    predictor = Predictor(constants)
    held = [predictor.predict(run) for run in runs if run.memory is not None]
    out = [predictor.predict(run) for run in runs if run.out_of_memory]
    return "\n".join(
        [
            *_rows(judged, {run.id for run in known}),
            "",
            *_summary(judged),
            *_ranks(judged),
            *_memory(held, out, judged),
            "constants, fitted on all rows: "
            + ", ".join(f"{name} {getattr(constants, name):.3g}" for name in NAMES),
            "each row above was predicted by constants fitted without its group",
        ]
    )


def _rows(judged: Sequence[Judged], known: set[str]) -> list[str]:
    lines = [
        f"{'row':<6}{'group':<17}{'model':<18}{'GPU':<10}{'GPUs':>6} {'measured':>9} "
        f"{'predicted':>9} {'blind':>7} {'factor':>7}  layout; * unsaid and chosen, = not in the "
        "fit's file"
    ]
    for one in judged:
        run = one.prediction.run
        factored = f"{one.factored:+7.1%}" if one.factored is not None else f"{'-':>7}"
        unsaid = f" *{', '.join(run.unsaid)}" if run.unsaid else ""
        unsaid += "" if run.id in known else " ="
        lines.append(
            f"{run.id:<6}{run.group:<17}{run.model:<18.17}{run.cluster.gpu.name:<10.9}"
            f"{run.gpus:>6} {run.tokens:>9,.1f} {one.prediction.tokens:>9,.1f} "
            f"{one.blind:>+7.1%} {factored}  {one.prediction.layout}{unsaid}"
        )
    return lines


def _summary(judged: Sequence[Judged]) -> list[str]:
    factored = [abs(one.factored) for one in judged if one.factored is not None]
    blind = [abs(one.blind) for one in judged]
    # Cells under three rows count as blind.
    either = [abs(o.blind if o.factored is None else o.factored) for o in judged]
    within = statistics.mean(error <= 0.10 for error in either)
    lines = [
        f"with a factor: mean error {statistics.mean(either):.1%}, {within:.0%} of {len(either)} "
        f"rows within 10 % ({len(factored)} have a factor)",
        f"blind: median {statistics.median(blind):.1%}, mean {statistics.mean(blind):.1%}",
    ]
    by_gpu: dict[str, list[float]] = defaultdict(list)
    for one in judged:
        by_gpu[one.prediction.run.cluster.gpu.name].append(abs(one.blind))
    for name, errors in by_gpu.items():
        lines.append(
            f"  {name}: {len(errors)} rows, median {statistics.median(errors):.1%}, mean "
            f"{statistics.mean(errors):.1%}"
        )
    return lines


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """How well two rankings agree; equal values share their rank."""
    return float(np.corrcoef(_ranked(left), _ranked(right))[0, 1])


def _ranked(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + sum(other == value for other in values) / 2
        for value in values
    ]


def sweeps(judged: Sequence[Judged]) -> dict[tuple[str, str, str, int], float]:
    """The rank correlation of every sweep: rows of one source, model, GPU and number of GPUs."""
    found: dict[tuple[str, str, str, int], list[Prediction]] = defaultdict(list)
    for one in judged:
        run = one.prediction.run
        key = (run.source, run.model, run.cluster.gpu.name, run.gpus)
        found[key].append(one.prediction)
    return {
        key: spearman([p.tokens for p in rows], [p.run.tokens or 0.0 for p in rows])
        for key, rows in found.items()
        if len(rows) >= _SWEEP
    }


def _ranks(judged: Sequence[Judged]) -> list[str]:
    found = sweeps(judged)
    lines = [
        f"sweep {source.split(',')[0]:.40}, {model} on {gpus} x {gpu}: rank correlation {value:.2f}"
        for (source, model, gpu, gpus), value in found.items()
    ]
    if len(found) > 1:
        lines.append(f"mean over sweeps: {statistics.mean(found.values()):.2f}")
    return lines


def _memory(
    held: Sequence[Prediction], out: Sequence[Prediction], judged: Sequence[Judged]
) -> list[str]:
    lines = []
    errors = []
    for one in held:
        assert one.run.memory is not None
        errors.append(one.memory / one.run.memory - 1)
    if errors:
        sizes = [abs(error) for error in errors]
        beyond = [
            f"{one.run.id} {error:+.0%}" for one, error in zip(held, errors) if abs(error) > 0.1
        ]
        lines.append(
            f"memory: {len(errors)} rows, mean error {statistics.mean(sizes):.1%}, "
            f"{statistics.mean(size <= 0.10 for size in sizes):.0%} within 10 %; beyond: "
            + (", ".join(beyond) or "none")
        )
    wrong = [one.run.id for one in out if one.verdict != "does not fit"]
    refused = [one.prediction.run.id for one in judged if one.prediction.verdict == "does not fit"]
    lines.append(f"out of memory: {len(out) - len(wrong)} of {len(out)} rows are refused")
    lines.append(f"measured rows that are refused: {', '.join(refused) or 'none'}")
    return lines
