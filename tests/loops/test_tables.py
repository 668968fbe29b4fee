"""The coefficients of the expansions are those that `tools/minimax.py` computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _minimax(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mpmath")
    command = [sys.executable, str(_ROOT / "tools" / "minimax.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_tables_are_those_of_the_tool() -> None:
    """Some that take little time, in parts, as a polynomial and as a quotient."""
    done = _minimax("--check", "LN2_64", "TURNS_81", "TWO_THIRDS", "SIN32", "TANH64")
    assert done.returncode == 0, done.stderr


def test_a_table_that_is_not_there() -> None:
    done = _minimax("--check", "LN2")
    assert done.returncode == 2 and "no table is called LN2" in done.stderr


@pytest.mark.slow
def test_all_tables_are_those_of_the_tool() -> None:
    done = _minimax("--check")
    assert done.returncode == 0, done.stderr
