"""Published runs that no constant was fitted on: models, meshes and sizes that the file lacks.

Errors on them were looked at once, and causes mended (docs/plan.md): they are not blind any more.

Rows of MosaicML's, Megatron-Bridge's and vTrain's public tables, and of papers, that are not in
`ridgeline/planner/data/training_runs.csv`. Constants are those of that file, for each group of rows
those that were fitted without it.
"""

from __future__ import annotations

import statistics

import pytest

from ridgeline.planner.validation import Predictor
from ridgeline.planner.validation_report import spearman, sweeps
from tests.planner.published_sets import judged, runs_of, told_apart


def test_no_row_is_one_of_those_fitted_on() -> None:
    assert len(runs_of("unseen")) > 300
    assert not {*map(told_apart, runs_of("unseen"))} & {*map(told_apart, runs_of("known"))}


def test_errors() -> None:
    blind = [abs(one.blind) for one in judged("unseen")]
    factored = [abs(o.blind if o.factored is None else o.factored) for o in judged("unseen")]
    assert statistics.median(blind) <= 0.15 and statistics.mean(blind) <= 0.18
    assert statistics.mean(factored) <= 0.10
    assert statistics.mean(error <= 0.10 for error in factored) >= 0.75
    by_gpu: dict[str, list[float]] = {}
    for one in judged("unseen"):
        by_gpu.setdefault(one.prediction.run.cluster.gpu.name, []).append(abs(one.blind))
    assert len(by_gpu) >= 7
    for name, errors in by_gpu.items():
        assert statistics.median(errors) <= 0.15 and statistics.mean(errors) <= 0.18, name


def test_no_run_that_was_made_is_refused() -> None:
    predictor = Predictor()
    for run in runs_of("unseen"):
        assert predictor.predict(run).verdict != "does not fit", run.id


def test_memory_where_it_was_reported() -> None:
    predictor = Predictor()
    errors = [
        abs(predictor.predict(run).memory / run.memory - 1)
        for run in runs_of("unseen")
        if run.memory is not None
    ]
    assert len(errors) >= 8 and statistics.mean(errors) <= 0.05 and max(errors) <= 0.115


def test_ranks_in_sweeps() -> None:
    """All but vTrain's of 18 B and 39 B, whose rows with 2 and 4 tensor ranks are out of order.

    By how much those are slower than predicted comes and goes with the microbatch, the other way
    round on eight stages than on sixteen; with one or eight tensor ranks all is in order, and so
    are 2 and 4 in the sweeps of 3.6 B and 175 B.
    """
    found = {key[1:]: value for key, value in sweeps(judged("unseen")).items()}
    odd = [value for (model, *_), value in found.items() if model in ("GPT-18.4B", "GPT-39.1B")]
    usual = [v for (model, *_), v in found.items() if model not in ("GPT-18.4B", "GPT-39.1B")]
    assert len(usual) >= 15 and len(odd) == 2
    assert min(usual) >= 0.80 and statistics.mean(usual) >= 0.85
    assert statistics.mean([*usual, *odd]) >= 0.85
    alike = [
        one.prediction
        for one in judged("unseen")
        if one.prediction.run.model == "GPT-39.1B"
        and one.prediction.layout.tensor in (1, 8)
        and one.prediction.run.group == "vtrain"
    ]
    assert len(alike) >= 20
    assert spearman([o.tokens for o in alike], [o.run.tokens or 0.0 for o in alike]) >= 0.95


@pytest.mark.xfail(strict=True, reason="vTrain's sweeps of 18 B and 39 B: see above")
def test_every_sweep_is_in_order() -> None:
    assert min(sweeps(judged("unseen")).values()) >= 0.80
