"""What a jitted function did, for people: why each trace was made and how the last is computed.

One text for terminals; in notebooks the same as tables, with the long parts folded away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, cast

from ridgeline.graph.printer import format_graph
from ridgeline.tensors.device_copies import Brought
from ridgeline.tensors.tiers import Runnable

if TYPE_CHECKING:
    from ridgeline.compiler import Program
    from ridgeline.tracing.trace import Trace

MOST_REASONS = 256  # traces whose reasons are remembered
_GRAPH_LINES = 200  # of a graph that is shown


class History:
    """The last traces of a function, each with its signature and why it was made."""

    def __init__(self) -> None:
        self.count = 0
        self._entries: deque[tuple[str, str]] = deque(maxlen=MOST_REASONS)

    def add(self, signature: str, reason: str) -> None:
        """One more trace."""
        self.count += 1
        self._entries.append((signature, reason))

    def numbered(self) -> list[tuple[int, str, str]]:
        """Number, signature and reason of those remembered."""
        first = self.count - len(self._entries) + 1
        return [(first + i, s, r) for i, (s, r) in enumerate(self._entries)]


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
    graph = format_graph(latest.graph.outputs, at_most=_GRAPH_LINES)
    computed = latest.program.explain(detail)
    title = f"{name}: {history.count} trace{'s' if history.count != 1 else ''}"
    lines = [title, *(f"  {n}. {s}: {r}" for n, s, r in history.numbered())]
    text = "\n".join([*lines, "", "graph", graph, "", computed])
    page = [
        f"<h4>{escape(title)}</h4>",
        _table(("", "signature", "why it was traced"), history.numbered()),
        *_kernels(latest.program),
        _folded("graph", graph),
        _folded("how it is computed", computed),
    ]
    return Explanation(text, "\n".join(page))


def passes_text(latest: Trace, after: str) -> Explanation:
    """The passes of the compiler over a trace, or what there was after one of them."""
    from ridgeline.compiler.show import Walk  # loads the compiler

    walk = Walk(latest.captured[0])
    latest.walk(walk)
    text = walk.after(after) if after else walk.list_text()
    return Explanation(text, f"<pre>{escape(text)}</pre>")


def _kernels(program: Runnable) -> Iterable[str]:
    """A table of the kernels with their exact work; an interpreted graph has none."""
    if isinstance(program, Brought):
        program = program.program
    if not hasattr(program, "stages"):
        return
    from ridgeline.explain import kernel_rows, quantity  # loads the compiler

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
    """True where values are shown by a notebook's front end."""
    import builtins

    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and type(shell()).__name__ == "ZMQInteractiveShell"
