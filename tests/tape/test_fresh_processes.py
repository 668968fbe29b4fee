"""Tests of tapes that need a process of their own.

Programs over unknown sizes are compiled beside the program, whose one thread and full tables other
tests leave as they like. And whether a loop is matched is asked as of a new process: what others
hold there, such as values of constants, may stand in the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["openings", "public_loops"])
def test_in_a_process_of_its_own(name: str, form: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, f"tests/tape/{name}.py", "-k", form.partition(" ")[0]],
        cwd=root, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
