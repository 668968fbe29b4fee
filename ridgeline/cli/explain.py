"""Explain a diagnosis rule (D1, C7, …) or an error code (RL0102, …); offline.

Without a name, lists all of them. Exit codes: 0 explained; 2 no such name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ridgeline.errors import RidgelineError

NAME = "explain"
HELP = "explain a rule (D1) or an error code (RL0102)"
PAGES = Path(__file__).with_name("pages")


class UnknownNameError(RidgelineError, KeyError):
    """Neither a rule nor an error code."""

    code = "RL0712"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ridgeline explain`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a rule or an error code")


def error_codes() -> list[str]:
    """The error codes that have a page."""
    return sorted(path.stem for path in PAGES.glob("RL*.md"))


def run(arguments: argparse.Namespace) -> int:
    """Print one page, or the list of all."""
    from ridgeline.profile.explain import rule_index
    from ridgeline.profile.output import tolerate_unknown_letters

    tolerate_unknown_letters()
    if arguments.name is None:
        print(rule_index())
        titles = [f"  {code}  {_title(PAGES / f'{code}.md')}" for code in error_codes()]
        print("\n".join(("Error codes", *titles)))
        return 0
    print(page(arguments.name), end="")
    return 0


def _title(path: Path) -> str:
    """The first line of a page without its code."""
    return path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ").partition(": ")[2]


def page(name: str) -> str:
    """The page of a rule or of an error code."""
    from ridgeline.profile.explain import rule_page
    from ridgeline.profile.rules.table import BY_ID

    wanted = name.strip().upper()
    if wanted in BY_ID:
        return rule_page(wanted)
    # Only names from the folder's own list are opened, so no path can be smuggled in.
    if wanted in error_codes():
        return (PAGES / f"{wanted}.md").read_text(encoding="utf-8")
    near = [known for known in (*BY_ID, *error_codes()) if known[:1] == wanted[:1]][:8]
    raise UnknownNameError(
        f"there is no rule or error code {name!r}",
        note=f"some that begin alike: {', '.join(near)}" if near else "",
        help="ridgeline explain lists all",
    )
