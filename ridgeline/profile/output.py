"""Standard output on terminals that do not know every letter."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def tolerate_unknown_letters() -> None:
    """Print a question mark for a letter the terminal lacks, such as µ, instead of failing."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
