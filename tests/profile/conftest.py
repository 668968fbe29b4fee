"""Diagnoses of recorded traces are made once and shared."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRACES = HERE / "traces"
sys.path.insert(0, str(HERE))


@cache
def diagnosed(name: str):
    from ridgeline.profile import diagnose

    return diagnose(TRACES / f"{name}.json.gz")


@pytest.fixture
def recorded():
    """`recorded("no_workers.cuda.planted")` is that trace's report."""
    return diagnosed


def fired(report) -> set[str]:
    """All rules that spoke: findings, notes and those mentioned by others."""
    rank = report.main
    found = {f.rule for f in (*rank.findings, *rank.notes)}
    return found | {rule for f in (*rank.findings, *rank.notes) for rule in f.also}
