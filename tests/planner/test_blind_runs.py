"""Published runs that the planner foretold: predicted once, and nothing was changed since.

NVIDIA's recipes for DGX Cloud, from 8 to 2,304 H100s and 512 GB200s, and OneFlow's GPTs on V100s, a
framework for which there is no profile. Whoever changes a number with these rows in view moves them
to `further_runs.csv`.
"""

from __future__ import annotations

import statistics

import pytest

from ridgeline.planner.validation import Judged, Predictor
from tests.planner.published_sets import judged, runs_of, told_apart

OTHERS = ("known", "unseen", "further")


def of_gpus(start: str) -> list[Judged]:
    return [o for o in judged("blind") if o.prediction.run.cluster.gpu.name.startswith(start)]


def blind(some: list[Judged]) -> tuple[float, float]:
    errors = [abs(one.blind) for one in some]
    return statistics.median(errors), statistics.mean(errors)


def test_no_row_is_one_of_the_others() -> None:
    rows = [told_apart(run) for run in runs_of("blind")]
    assert len(rows) == 272
    assert not set(rows) & {told_apart(run) for name in OTHERS for run in runs_of(name)}


def test_errors() -> None:
    median, mean = blind(judged("blind"))
    assert median <= 0.15 and mean <= 0.18
    factored = [abs(o.blind if o.factored is None else o.factored) for o in judged("blind")]
    assert statistics.mean(factored) <= 0.10
    assert statistics.mean(error <= 0.10 for error in factored) >= 0.75


LATER = "dense models ran on GB200s faster with each release; constants know those of a later year"


@pytest.mark.parametrize(
    "start",
    ["V100", "H100", pytest.param("GB200", marks=pytest.mark.xfail(strict=True, reason=LATER))],
)
def test_errors_by_generation(start: str) -> None:
    median, mean = blind(of_gpus(start))
    assert median <= 0.15 and mean <= 0.18


def test_no_run_that_was_made_is_refused() -> None:
    predictor = Predictor()
    for run in runs_of("blind"):
        assert predictor.predict(run).verdict != "does not fit", run.id
