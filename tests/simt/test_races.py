"""The simulator finds every labelled mistake and stays silent on kernels without one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simt import (
    race_cases,
    race_cases_blocks,
    race_cases_grids,
    race_cases_locks,
    race_cases_memory,
    race_cases_order,
    race_cases_programs,
    race_cases_small,
    race_cases_volatile,
    race_cases_warps,
)
from tests.simt.labelled import CASES, Case

FILES = (race_cases, race_cases_blocks, race_cases_grids, race_cases_locks, race_cases_memory,
         race_cases_order, race_cases_programs, race_cases_small, race_cases_volatile,
         race_cases_warps)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.__name__)
def test_labelled_kernels(case: Case) -> None:
    found = case.kernel.simulate(case.grid, case.block, *case.arguments, **case.keywords)
    kinds = {finding.kind for finding in found.errors}
    if case.error is None:
        assert not found.findings
    elif case.error == "warning":
        assert not found.errors
        assert found.warnings
    else:
        assert case.error in kinds


def outputs(name: str) -> dict[str, np.ndarray]:
    case = next(case for case in CASES if case.kernel.__name__ == name)
    return case.kernel.simulate(case.grid, case.block, *case.arguments, **case.keywords).outputs


def test_results_of_kernels_that_synchronise() -> None:
    assert outputs("lock_ok")["x"] == 128
    assert outputs("lock_spin")["x"] == 128
    assert outputs("last_block")["y"] == np.arange(512).sum()
    assert (outputs("scan_hillis")["y"] == np.cumsum(np.arange(64))).all()
    assert (outputs("grid_barrier")["y"] == np.arange(256)[::-1] * 2).all()
    kept = outputs("warp_agg")
    assert sorted(kept["y"][: kept["c"][0]]) == list(range(0, 128, 3))
    assert (outputs("votes")["y"] == 53).all()
    assert (outputs("chained_scan")["y"] == np.cumsum(np.arange(256))).all()
    assert (outputs("bitonic")["d"] == np.arange(64)).all()
    assert outputs("ticket")["x"] == 3
