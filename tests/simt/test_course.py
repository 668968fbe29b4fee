"""The course of docs/kernels.md runs, and prints what the page says it prints."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import kernels_course  # noqa: E402  (a tool, not a package)


def test_the_page_is_what_its_blocks_print() -> None:
    page = kernels_course.PAGE.read_text()
    assert page.count("\n## ") >= 12
    assert kernels_course.rewritten(page) == page
