"""Reports of jit: why each trace was made, and how the last one is computed.

One text for terminals; in notebooks the same as tables, with the long parts folded away.
"""

from __future__ import annotations

import builtins
import re
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, cast

from ridgeline.compiler.kernel_profile import quantity
from ridgeline.execution.device_copies import Brought
from ridgeline.execution.tiers import Runnable
from ridgeline.graph.origins import user_line
from ridgeline.graph.printer import format_graph

if TYPE_CHECKING:
    from ridgeline.compiler import Program
    from ridgeline.tracing.trace import Trace

_BY_ITSELF = ("for each size by itself", "is used as a number: each value is traced")
MOST_ALIKE = 3  # traces for one reason after which the user is told
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_TEXT = re.compile(r"(?<=(?:was| is) )'[^']*'")  # of an argument that is one
_SIZES = re.compile(r"^argument \d+ was \w+\[.*\] and is \w+\[")
_ALONE = re.compile(r"\((?:for this call alone:|open: every call runs Python, because) (.*)\)$")
_PYTHON = (
    "Its calls run Python, as undecorated code does. Let it return what it makes, or "
    "keep numbers that change in tensors."
)
MOST_REASONS = 256  # traces whose reasons are remembered
_GRAPH_LINES = 200  # of a graph that is shown
_MORE = 'more: explain(detail="kernels"), "loops" or "code"; stages=True for the compiler\'s passes'


class RetraceWarning(UserWarning):
    """A jitted function is traced repeatedly for one reason."""


class History:
    """The last traces of a function, each with its signature and why it was made."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name
        self._entries: deque[tuple[str, str]] = deque(maxlen=MOST_REASONS)
        self._alike: Counter[str] = Counter()  # reasons that differ in numbers and texts only

    def add(self, signature: str, reason: str, serves_more: bool = False) -> None:
        """One more trace; one that serves other sizes as well is no cause for a warning."""
        self.count += 1
        self._entries.append((signature, reason))
        alone = _ALONE.search(reason)
        if (self.count == 1 or serves_more) and alone is None:
            return
        why = reason.partition(" (")[0] if alone is None else alone[1]
        kind = _NUMBER.sub("…", _TEXT.sub("…", why))
        self._alike[kind] += 1
        if self._alike[kind] == MOST_ALIKE:
            self._warn(why, _PYTHON if alone is not None else _remedy(reason))

    def _warn(self, reason: str, remedy: str) -> None:
        line = user_line()
        called = f", called at {line}," if line else ""
        warnings.warn(
            f"jit: {self._name}{called} was traced again {MOST_ALIKE} times for one reason: "
            f"{reason}. {remedy}",
            RetraceWarning,
            stacklevel=2,
        )

    def numbered(self) -> list[tuple[int, str, str]]:
        """Number, signature and reason of those remembered."""
        first = self.count - len(self._entries) + 1
        return [(first + i, s, r) for i, (s, r) in enumerate(self._entries)]


def _remedy(reason: str) -> str:
    """The advice against traces for a reason."""
    if any(words in reason for words in _BY_ITSELF) and _SIZES.search(reason):
        return "Pad it to a few sizes: explain() says why they cannot be left open."
    reason = reason.partition(" (")[0]
    if reason.endswith(" view"):
        return "Give it a tensor of its own, such as x.clone(): the function needs the view itself."
    if _SIZES.search(reason):
        return "One program serves every length with jit(dynamic=True) (docs/jit.md)."
    if reason.startswith("argument "):
        return "Give it as a tensor, or as a float, if it changes from call to call."
    if "changed" in reason:
        return "Keep it as it is between calls, or give it as an argument."
    return "explain() has the reason of every trace."


class Explanation(str):
    """The text, which a notebook shows as tables."""

    page: str

    def __new__(cls, text: str, page: str) -> Explanation:
        made = super().__new__(cls, text)
        made.page = page
        return made

    def _repr_html_(self) -> str:
        return self.page


def not_called(name: str) -> Explanation:
    """What can be said before the first call."""
    text = f"{name}: not called yet; call it, or give explain() the arguments of a call"
    return Explanation(text, f"<p>{escape(text)}</p>")


def explanation(name: str, history: History, latest: Trace, detail: str) -> Explanation:
    """How a function was traced, and how its latest trace is computed."""
    graph = format_graph(latest.executable.graph.outputs, at_most=_GRAPH_LINES)
    computed = latest.executable.program.explain(detail)
    rest = [_MORE] if detail == "summary" else ["graph", graph]
    title = f"{name}: {history.count} trace{'s' if history.count != 1 else ''}"
    traces = ["traced", *(f"  {n}. {s}: {r}" for n, s, r in history.numbered())]
    text = "\n".join([title, computed, "", *traces, *rest])
    page = [
        f"<h4>{escape(title)}</h4>",
        _table(("", "signature", "why it was traced"), history.numbered()),
        *_kernels(latest.executable.program),
        _folded("graph", graph),
        _folded("how it is computed", computed),
    ]
    return Explanation(text, "\n".join(page))


def passes_text(latest: Trace, after: str) -> Explanation:
    """The passes of the compiler over a trace, or the state after one of them."""
    from ridgeline.compiler.show import Walk  # loads the compiler

    walk = Walk(latest.executable.captured[0])
    latest.executable.walk(walk)
    text = walk.after(after) if after else walk.list_text()
    return Explanation(text, f"<pre>{escape(text)}</pre>")


def _kernels(program: Runnable) -> Iterable[str]:
    """A table of the kernels with their exact work; an interpreted graph has none."""
    if isinstance(program, Brought):
        program = program.program
    if not hasattr(program, "stages"):
        return
    from ridgeline.compiler.explain import kernel_rows  # loads the compiler

    compiled = cast("Program", program)
    rows = [
        (r.name, quantity(r.flops, "FLOP"), quantity(r.nbytes, "B"), f"{r.intensity:.2f}",
         ", ".join(r.lines))
        for r in kernel_rows(compiled)
    ]  # fmt: skip
    yield _table(("kernel", "work", "traffic", "FLOP/B", "from"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def in_notebook() -> bool:
    """True if values are shown by a notebook's front end."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and type(shell()).__name__ == "ZMQInteractiveShell"
