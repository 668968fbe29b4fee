"""Source locations of nodes: the user's line and the module that was running.

An origin holds a code object and an instruction offset, which cost almost nothing to collect; the
file, line and source text are looked up only when somebody prints them. A node may have several
origins, because equal expressions written in different places are one node.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any, TypeAlias

from ridgeline.graph.node import Node

Mark: TypeAlias = tuple[CodeType, int, str]  # code, offset of the instruction, module path

MOST_ORIGINS = 4
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Running(threading.local):
    """The path of the nn.Module that runs in this thread, such as encoder.3.fc1."""

    module_path: str = ""
    replayed: Mark | None = None  # the line of a call that is made once more
    looked: bool = False  # a value was read by somebody who may go by it
    let_go: int = 0  # how often tensors were marked as those whose graph is let go
    # operands over memory of others of the call that a tape makes in earnest, and their copies
    copies: Sequence[tuple[Any, Any, Node]] = ()
    looks: list[Any] | None = None  # what was asked about values: see `asked` of ops/gather.py


running = _Running()
_inside: dict[str, bool] = {}  # is a file part of the package; code objects are slow to hash


@dataclass(frozen=True, slots=True)
class Origin:
    """A location in the user's program, ready to be shown."""

    file: str
    line: int
    function: str
    module_path: str

    @property
    def source(self) -> str:
        """The text of the line, where the file can be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        line = f"{short_path(self.file)}:{self.line}"
        return f"{line} in {self.module_path}" if self.module_path else line


def short_path(file: str) -> str:
    """A path relative to the working directory if that is shorter."""
    try:
        relative = os.path.relpath(file)
    except (ValueError, OSError):  # another drive, or a working directory that is gone
        return file
    return relative if len(relative) < len(file) else file


def is_inside(file: str) -> bool:
    """True for a file of the package, and for what starts its command."""
    known = _inside.get(file)
    return look_inside(file) if known is None else known


def look_inside(file: str) -> bool:
    """The same for a file that comes for the first time."""
    starts = file == "<frozen runpy>" or os.path.basename(file) == "ridgeline"
    known = _inside[file] = starts or file.startswith(PACKAGE)
    return known


def user_line() -> str:
    """The file and line of the user's code that is running now; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def here(depth: int = 2) -> Mark | None:
    """A mark for the line of user code that is running now."""
    if running.replayed is not None:
        return running.replayed
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        inside = _inside.get(file)
        if inside is None:
            inside = is_inside(file)
        if not inside:
            return (code, frame.f_lasti, running.module_path)
        frame = frame.f_back
    return None


def stamp(node: Node, mark: Mark | None) -> None:
    """Attach `mark` to a node that was just recorded, and to the new nodes below it."""
    if mark is None:
        return
    if node.origins:
        if node.origins[0] != mark:  # the last place comes first: errors are about that one
            others = [known for known in node.origins if known != mark]
            node.origins = (mark, *others[: MOST_ORIGINS - 1])
        return
    marks = (mark,)
    node.origins = marks
    stack = list(node.inputs)
    while stack:
        below = stack.pop()
        if not below.origins:
            below.origins = marks
            stack += below.inputs


def inherit(node: Node, marks: tuple[Mark, ...]) -> None:
    """Give new nodes, made by a rewrite or a gradient rule, the origins of what they replace."""
    stack = [node] if marks else []  # without a mark, nothing would show that a node was visited
    while stack:
        current = stack.pop()
        if not current.origins:
            current.origins = marks
            stack += current.inputs


def line_of(code: CodeType, offset: int) -> int:
    """The line of an instruction."""
    for _, _, line in islice(
        (entry for entry in code.co_lines() if entry[0] <= offset < entry[1]), 1
    ):
        return line or code.co_firstlineno
    return code.co_firstlineno


def origins_of(node: Node) -> list[Origin]:
    """The places where a node was made."""
    return [
        Origin(code.co_filename, line_of(code, offset), code.co_name, path)
        for code, offset, path in node.origins
    ]


def describe(node: Node) -> str:
    """One line on where a node was made, or an empty text."""
    found = origins_of(node)
    return str(found[0]) if found else ""


def lines_of(nodes: Iterable[Node]) -> list[Origin]:
    """The distinct locations where some nodes were made, in order of first occurrence."""
    seen: dict[Origin, None] = {}
    for node in nodes:
        for origin in origins_of(node):
            seen.setdefault(origin)
    return list(seen)
