"""The printed stages in ARCHITECTURE.md are what the code prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_walk_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "walk.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
