"""What every command here asks first: that there is a GPU, and that names are known."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence


def parsed(
    parser: argparse.ArgumentParser, field: str = "", known: Collection[str] = ()
) -> argparse.Namespace:
    """The arguments; stops with a line that says what is wrong with the machine or with a name."""
    arguments = parser.parse_args()
    chosen: Sequence[str] = getattr(arguments, field) if field else ()
    unknown = [name for name in chosen or () if name not in known]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    import ridgeline as rl

    if not rl.cuda.is_available():
        parser.error(f"no GPU can be used: {rl.cuda.why_not()}")
    return arguments
