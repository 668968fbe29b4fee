"""What `help()` and the site say of public names: pages of Markdown with a section for each.

A section is headed by the names that it explains (`## linalg.inv, inverse`) and holds a text and
examples, indented and with what they print. What stands before the first section of a page holds
for all of its names. The first line of a help text is the docstring in the source: a page does not
repeat it. `python tools/reference.py` runs the examples and writes what they print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^## ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """What a page says of some names."""

    names: tuple[str, ...]
    text: str
    shared: str  # what the page says of all its names

    @property
    def full(self) -> str:
        """The text and what holds for the whole page, for who sees nothing else of it."""
        return f"{self.text}\n\n{self.shared}" if self.shared else self.text


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the reference: its title, what holds for all names, and the sections."""

    title: str
    shared: str
    sections: tuple[Section, ...]


def page(text: str) -> Page:
    """A page from its Markdown."""
    head, *parts = _HEADING.split(text)
    title, _, shared = head.removeprefix("# ").partition("\n")
    shared = shared.strip()
    sections = []
    for part in parts:
        names, _, body = part.partition("\n")
        sections.append(Section(tuple(names.split(", ")), body.strip("\n"), shared))
    return Page(title, shared, tuple(sections))


@cache
def sections() -> Mapping[str, Section]:
    """The section of every name that has one; a name is as one writes it behind `rl.`."""
    pages = (page(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.md")))
    return {name: part for one in pages for part in one.sections for name in part.names}


def names_in(namespace: str) -> list[str]:
    """The names of a namespace that have a section."""
    return [name.rpartition(".")[2] for name in sections() if name.rpartition(".")[0] == namespace]


def described(name: str, summary: str | None) -> str:
    """A docstring with what the reference says of a name."""
    found = sections().get(name)
    return summary or "" if found is None else joined(summary, found)


def joined(docstring: str | None, section: Section) -> str:
    """A docstring, without the indentation that it has in the source, and a section."""
    own = docstring or ""
    text = cleandoc(own) if "\n" in own else own
    return f"{text}\n\n{section.full}\n"


def describe(namespace: str, members: Mapping[str, Any]) -> None:
    """Give what the source defines in a namespace the texts of the reference, once."""
    known = sections()
    for name, value in members.items():
        found = known.get(f"{namespace}.{name}" if namespace else name)
        if found is None:
            continue
        if found.full not in (value.__doc__ or ""):
            value.__doc__ = joined(value.__doc__, found)
