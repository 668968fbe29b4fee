"""Runs the examples of the reference and writes what they print: `python tools/reference.py`.

Pages are in `ridgeline/reference`. Given names of pages, only these. What changes is to be read
before it is kept: the tool believes what it sees.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.reference import FOLDER

INDENT = "    "


def names() -> dict[str, Any]:
    """What an example finds: the imports that the reference says it begins with."""
    return {"rl": rl, "nn": nn, "F": nn.functional, "optim": optim, "np": np, "math": math}


def printed(source: str, known: dict[str, Any]) -> str:
    """What a statement prints, as at Python's prompt; an exception as a doctest shows it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, "<example>", "single"), known)
        except Exception as error:
            kind = type(error)
            path = f"{kind.__module__}." if kind.__module__ != "builtins" else ""
            first = (str(error).splitlines() or [""])[0]
            return f"Traceback (most recent call last):\n    ...\n{path}{kind.__name__}: {first}\n"
    return out.getvalue()


def rewritten(lines: list[str]) -> Iterator[str]:
    """The lines of a page with the examples' outputs as they are."""
    known = names()
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        yield line
        if line.startswith("## "):
            known = names()
            rl.manual_seed(0)
        if not line.startswith(f"{INDENT}>>> "):
            continue
        source = [line[8:]]
        while place < len(lines) and lines[place].startswith(f"{INDENT}... "):
            source.append(lines[place][8:])
            yield lines[place]
            place += 1
        old = []
        while place < len(lines) and lines[place].startswith(INDENT):
            if lines[place].startswith(f"{INDENT}>>> "):
                break
            old.append(lines[place][4:])
            place += 1
        made = printed("\n".join(source) + "\n", known)
        before = "\n".join(old) + "\n" if old else ""
        made = made.replace("\n\n", "\n<BLANKLINE>\n")
        if agree(before, made):
            made = before
        yield from (f"{INDENT}{text or '<BLANKLINE>'}" for text in made.splitlines())


def agree(wanted: str, made: str) -> bool:
    """Whether an output is as the page has it, which may leave parts out by dots."""
    return doctest.OutputChecker().check_output(wanted, made, doctest.ELLIPSIS)


def main(pages: list[str]) -> None:
    """Rewrite pages."""
    for path in sorted(FOLDER.glob("*.md")):
        if pages and path.stem not in pages:
            continue
        text = path.read_text(encoding="utf-8")
        made = "\n".join(rewritten(text.splitlines())) + "\n"
        if made != text:
            path.write_text(made, encoding="utf-8")
            print(f"{path.name} has changed")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # examples write files
        main([Path(name).stem for name in sys.argv[1:]])
