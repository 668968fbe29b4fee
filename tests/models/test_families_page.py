"""The page about the families is what their tables say."""

from __future__ import annotations

from pathlib import Path

from ridgeline.models.families.page import page


def test_the_page_is_up_to_date() -> None:
    found = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8")
    assert found == page(), "run python -m ridgeline.models.families"
