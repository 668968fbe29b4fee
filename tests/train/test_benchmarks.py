"""The benchmark harness: wrong results get no time, failures are shown, outliers are noticed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.checkouts import HERE, THERE, Checkout, relative
from benchmarks.measure import Outcome, Timing, _disturbed, largest_difference
from benchmarks.process import ROOT, CandidateError, Worker
from benchmarks.report import as_json, best_peer, print_report, ratio, ratio_of_minima, write_json
from benchmarks.workload import DEFERRED, JAX, NUMPY, OURS, TORCH
from benchmarks.workloads import WORKLOADS, named

MACHINE = {"cpu": "a CPU", "cores": 2, "versions": {"numpy": "2"}}


def outcome() -> Outcome:
    timings = {
        OURS: Timing(rounds=[1.0, 1.2, 1.1], best=0.9),
        DEFERRED: Timing(error="RidgelineError: no such op"),
        TORCH: Timing(rounds=[4.0, 4.0, 4.0], best=3.0),
        JAX: Timing(rounds=[2.0, 2.4, 2.2], best=1.8),
    }
    return Outcome("gemm", timings, rejected=2, disturbed=False)


def test_errors_are_relative_to_the_largest_element() -> None:
    wanted = {"y": np.array([0.0, 100.0])}
    assert largest_difference({"y": np.array([0.5, 100.0])}, wanted) == 0.005
    assert largest_difference({"y": np.array([np.nan, 100.0])}, wanted) == np.inf
    assert largest_difference({"y": np.array([0.0])}, wanted) == np.inf
    assert largest_difference({}, wanted) == np.inf


def test_a_round_is_disturbed_by_one_outlier() -> None:
    quiet = {"a": [1.0, 1.1], "b": [5.0]}
    loud = {"a": [1.0], "b": [9.0]}
    blocks = [quiet, quiet, quiet, loud]
    assert not _disturbed(quiet, blocks) and _disturbed(loud, blocks)


def test_ratios_are_to_the_best_peer() -> None:
    measured = outcome()
    assert best_peer(measured) == JAX
    assert ratio(measured) == pytest.approx(0.5)
    assert ratio_of_minima(measured) == pytest.approx(0.5)
    assert ratio(measured, DEFERRED) is None


def test_the_report_shows_failures_and_what_was_thrown_away() -> None:
    console = Console(file=io.StringIO(), width=140)
    print_report([outcome()], MACHINE, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "gemm, ridgeline failed: RidgelineError: no such op" in text
    assert "2 rounds thrown away" in text and "0.50" in text


def test_runs_of_one_day_are_all_kept(tmp_path: Path) -> None:
    data = as_json([outcome()], MACHINE)
    first, second = write_json(data, tmp_path), write_json(data, tmp_path)
    assert first != second
    assert json.loads(second.read_text())["workloads"]["gemm"]["best_peer"] == JAX


def test_a_worker_answers_and_reports_its_error(tmp_path: Path) -> None:
    worker = Worker("gemm", NUMPY, tmp_path, tmp_path)
    try:
        worker.ready()
        first = worker.ask("first")
        with np.load(first["results"]) as stored:
            reference = WORKLOADS["gemm"].reference(WORKLOADS["gemm"].inputs())
            assert largest_difference(dict(stored), reference) < WORKLOADS["gemm"].tolerance
        assert min(worker.ask("block", seconds=0.0)["times"]) > 0
        assert worker.ask("end")["peak_memory"] >= 0
    finally:
        worker.close()
    broken = Worker("gemm", "no such candidate", tmp_path, tmp_path)
    try:
        with pytest.raises(CandidateError, match="KeyError: 'no such candidate'"):
            broken.ready()
    finally:
        broken.close()


def test_a_name_is_a_workload_before_it_is_a_set() -> None:
    assert named("attention") == ["attention"]
    forms = named("attention:")
    assert len(forms) > 1 and "attention" not in forms
    assert named("products") == named("products:") and len(named("products")) == 20
    assert named("no such workload") == []


def test_another_checkout_is_measured_with_the_benchmarks_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "other" / "ridgeline").mkdir(parents=True)
    (tmp_path / "other" / "ridgeline" / "__init__.py").write_text("said = 'the other package'\n")
    checkout = Checkout(THERE, tmp_path / "other", tmp_path)
    code = "import ridgeline, benchmarks; print(ridgeline.said, benchmarks.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **checkout.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["the", "other", "package", str(ROOT / "benchmarks/__init__.py")]
    assert relative({HERE: 2.0, THERE: 1.0}) == 2.0
    assert relative({HERE: 2.0}) is None
