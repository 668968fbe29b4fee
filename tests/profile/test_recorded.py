"""Programs recorded on an H200 and on a CPU: each planted problem is found, and only there."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from conftest import TRACES, fired
from programs import CASES, RULE_OF

TIMES = json.loads((TRACES / "times.json").read_text())
# Two runs of one program differ by about this part of a step.
NOISE = 0.02


@pytest.mark.parametrize(("name", "device"), CASES)
def test_planted_problem_ranks_first(recorded, name, device):
    report = recorded(f"{name}.{device}.planted")
    assert report.findings[0].rule == RULE_OF[name]
    assert not report.main.warnings


@pytest.mark.parametrize(("name", "device"), CASES)
def test_repaired_twin_is_free_of_it(recorded, name, device):
    assert RULE_OF[name] not in fired(recorded(f"{name}.{device}.repaired"))


@pytest.mark.parametrize(("name", "device"), CASES)
def test_promise_bounds_what_the_repair_saved(recorded, name, device):
    """The promise, in seconds or as a share of the step, is at least the saving measured without
    the profiler."""
    finding = recorded(f"{name}.{device}.planted").findings[0]
    if finding.severity == "stops":
        pytest.skip("promises memory, not time")
    planted, repaired = TIMES[device][name]["planted"], TIMES[device][name]["repaired"]
    promised = max(finding.share, finding.seconds * 1e3 / planted)
    assert promised >= (planted - repaired) / planted - NOISE


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_memory_growth_is_measured(recorded, device):
    """Six layers of activations stay alive every step, and none in the twin."""
    finding = recorded(f"memory_growth.{device}.planted").findings[0]
    growth = next(e.value for e in finding.evidence if e.label == "growth")
    rows, width, item = (4096, 4096, 2) if device == "cuda" else (512, 256, 4)
    kept = 6 * rows * width * item / 2**20
    assert growth.endswith("MiB a step")
    assert kept * 0.9 <= float(growth.split()[0]) <= kept * 2.5


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_well_tuned_program_has_no_finding_above_five_percent(recorded, device):
    assert all(f.share <= 0.05 for f in recorded(f"well_tuned.{device}.planted").findings)


@pytest.mark.parametrize(("name", "device"), CASES)
def test_a_step_splits_without_remainder(recorded, name, device):
    v = recorded(f"{name}.{device}.planted").main.verdict
    parts = v.limit + sum(seconds for _, seconds in v.lost) + v.profiler + v.unexplained
    assert parts == pytest.approx(v.step, rel=1e-6)
    assert v.unexplained_idle <= v.unexplained + 1e-12


@pytest.mark.parametrize(("name", "device"), CASES)
def test_findings_point_at_the_program(recorded, name, device):
    if RULE_OF[name] == "M3":
        return
    finding = recorded(f"{name}.{device}.planted").findings[0]
    assert re.match(r"\w+_programs\.py:\d+ in \S+", finding.places[0])


def test_device_bound_steps_agree_with_the_clock(recorded):
    """Without host trouble the reconstructed step equals the one timed without the profiler."""
    for name in ("no_tf32", "odd_sizes", "unfused_attention", "exposed_copies", "small_grid"):
        measured = TIMES["cuda"][name]["planted"]
        step = recorded(f"{name}.cuda.planted").main.verdict.step * 1e3
        assert step == pytest.approx(measured, rel=0.05)


def test_occupancy_is_recomputed(recorded):
    """The trace says 0 for a kernel with 213 KB of shared memory; the truth is 12 of 64 warps."""
    from ridgeline.profile.rules.kernel import occupancy_of

    facts = recorded("well_tuned.cuda.planted").main.facts
    found = [
        occupancy_of(facts, int(r)) for r in facts.kernels if "nvjet" in facts.gpu_name(int(r))
    ]
    assert found[0] is not None and found[0].share == pytest.approx(0.1875)


def test_traces_are_small_and_name_no_machine():
    files = list(TRACES.glob("*.json.gz"))
    assert sum(path.stat().st_size for path in files) < 10_000_000
    for path in files:
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r'"host_name"|"/(work|root|tmp|home)/', text), path.name
