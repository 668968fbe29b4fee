"""Runs the blocks of docs/kernels.md and writes what they print into the text blocks after them."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
_BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.S)


def run(code: str, number: int, names: dict[str, Any]) -> str:
    """What a block prints; an error prints as its first line."""
    path = f"kernel{number}.py"
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, path, "exec"), names)
        except AssertionError:
            raise
        except Exception as error:
            print(error)
    return printed.getvalue()


def rewritten(page: str) -> str:
    """The page with every text block as its code prints it."""
    names: dict[str, Any] = {"__name__": "course"}
    numbers = iter(range(1, 1000))

    def block(found: re.Match[str]) -> str:
        printed = run(found[1], next(numbers), names)
        tail = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{found[1]}```\n{tail}"

    return _BLOCKS.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
