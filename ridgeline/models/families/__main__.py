"""Write the list of families into docs/families.md: `python -m ridgeline.models.families`."""

from __future__ import annotations

from pathlib import Path

from ridgeline.models.families.page import page

if __name__ == "__main__":
    Path("docs/families.md").write_text(page(), encoding="utf-8")
