"""Published runs as tests share them, by what the planner owes them.

`known`: constants are fitted on it. `unseen` and `further`: no constant is fitted on them, but
errors on them were looked at, and causes mended. `blind`: predicted once, and nothing was changed
since.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.published import PublishedRun, published_runs
from ridgeline.planner.validation import Judged, judge

_DATA = Path(__file__).parent / "data"


@cache
def runs_of(name: str) -> list[PublishedRun]:
    """`known` is the planner's own file; the others are files of these tests."""
    return published_runs(None if name == "known" else str(_DATA / f"{name}_runs.csv"))


@cache
def judged(name: str) -> list[Judged]:
    """Each group by constants fitted without it."""
    return judge(runs_of(name), runs_of("known"), DEFAULT)


def everything() -> list[Judged]:
    """All that were ever compared with."""
    return [one for name in ("known", "unseen", "further", "blind") for one in judged(name)]


def told_apart(run: PublishedRun) -> tuple[object, ...]:
    """What makes a run another one than all others."""
    return (run.source, run.model, run.cluster, run.job, run.layouts, run.tokens, run.memory,
            run.software)  # fmt: skip
