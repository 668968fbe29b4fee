"""The fuzzer finds faults: planted one at a time, each must show within some hundred programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ridgeline.config import config
from tests.fuzz.agree import judge
from tests.fuzz.faults import FAULTS, Fault, planted
from tests.fuzz.generate import generate
from tests.fuzz.search import ways_for
from tests.fuzz.ways import Rejected

MOST_PROGRAMS = 400
QUICK = (
    "the last partial sum is not joined", "integer division rounds to zero",
    "a changed global goes unnoticed",
)  # fmt: skip


def programs_until_found(fault: Fault, most: int = MOST_PROGRAMS) -> int | None:
    """How many programs it took to notice a fault, or None."""
    with config.override(cache_max_bytes=0):
        for seed in range(most):
            program = generate(seed)  # before the fault: programs are the same for all
            if any("while_loop" in s.text for s in program.statements):
                continue  # a fault may keep it from ending
            with planted(fault):
                try:
                    found = judge(program, ways_for(seed))
                except Rejected:
                    continue
                except Exception:  # a fault in what all ways share may break the reference too
                    return seed + 1
            if found is not None:
                return seed + 1
    return None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_in_the_code_as_it_is(fault: Fault) -> None:
    with planted(fault):
        pass


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_found(name: str) -> None:
    (fault,) = [f for f in FAULTS if f.name == name]
    assert programs_until_found(fault) is not None


_SEARCH = """
from tests.fuzz.test_faults import FAULTS, programs_until_found

(fault,) = [f for f in FAULTS if f.name == {name!r}]
print("missed" if programs_until_found(fault) is None else "found")
"""


def is_missed(fault: Fault) -> bool:
    """True where the search ends without a finding; a fault that ends the process is one."""
    words = [sys.executable, "-c", _SEARCH.format(name=fault.name)]
    searched = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    return searched.stdout.strip() == "missed"


@pytest.mark.slow
def test_nearly_all_planted_faults_are_found() -> None:
    missed = [fault.name for fault in FAULTS if is_missed(fault)]
    assert len(missed) <= len(FAULTS) // 10, missed
