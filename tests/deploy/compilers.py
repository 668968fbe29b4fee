"""C compilers for tests: the one of the wheel `ziglang`, else the system's; none is a skip."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

GLIBC = "x86_64-linux-gnu.2.28"  # the oldest that a program file has to do with


def wheel() -> list[str] | None:
    """The compiler of the wheel, for the oldest C library."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, "-m", "ziglang", "cc", "-target", GLIBC]


def system() -> list[str] | None:
    """The compiler that the machine has."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return [found] if found else None


def compile_c(compiler: Sequence[str] | None, folder: Path, *arguments: str) -> None:
    """Compile in a folder; skips the test where there is no compiler."""
    if compiler is None:
        pytest.skip("no C compiler: pip install ziglang")
    command = [*compiler, "-O1", "-Wall", "-Wextra", "-Werror", *arguments]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
