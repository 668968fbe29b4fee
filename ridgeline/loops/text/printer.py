"""Kernels as text: indented, Python-like, with as few parentheses as the meaning allows.

The text is deterministic and says everything (`tests/loops/parser.py` reads it back), so it also
serves as a structural key. A literal carries its type only where its neighbours do not fix it;
large shared subexpressions are named by `let $0 = …` lines in front of the statement that uses
them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir

# ---- the notation shared with the parser: operators, precedences, names, literals ----------------

COMPARISON, SUM, PRODUCT, UNARY, ATOM = 1, 6, 7, 8, 9

INFIX: dict[str, tuple[str, int]] = {
    "lt": ("<", COMPARISON), "le": ("<=", COMPARISON), "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON), "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4),
    "shl": ("<<", 5), "shr": (">>", 5), "add": ("+", SUM), "sub": ("-", SUM),
    "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "floordiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
}  # fmt: skip
PREFIX: dict[str, str] = {"neg": "-", "not": "~"}
OPERATORS = {symbol: (name, precedence) for name, (symbol, precedence) in INFIX.items()}
PREFIX_OPERATORS = {symbol: name for name, symbol in PREFIX.items()}

JOIN_SYMBOLS = {"sum": "+=", "prod": "*="}
JOIN_NAMES = {symbol: name for name, symbol in JOIN_SYMBOLS.items()}

CASTS = {dtype.name: dtype for dtype in dtypes.ALL}
BITCASTS = {f"as_{dtype.name}": dtype for dtype in dtypes.ALL}

_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_LITERAL_WORDS = frozenset({"True", "False", "inf", "nan"})


def quoted(name: str) -> str:
    """A name as it is written: as it is if it looks like one, else between backticks."""
    if _PLAIN_NAME.fullmatch(name) and name not in _LITERAL_WORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def unquoted(token: str) -> str:
    """The name that `quoted` wrote."""
    return str(json.loads('"' + token[1:-1] + '"')) if token.startswith("`") else token


# ---- printing ------------------------------------------------------------------------------------

_NAME_SHARED, _NAME_LONG = 24, 100  # text lengths from which an expression gets a name of its own


def print_kernel(kernel: ir.Kernel) -> str:
    """The text of a kernel."""
    sizes = f"[{', '.join(map(quoted, kernel.sizes))}]" if kernel.sizes else ""
    params = ", ".join(f"{_declaration(p, 'global')} @{p.slot}" for p in kernel.params)
    printer = _Printer({param.name: param for param in kernel.params})
    printer.block(kernel.body, 0)
    head = f"kernel {quoted(kernel.name)}{sizes}({params})"
    return "\n".join([head, *printer.lines]) + "\n"


def print_expr(expr: ir.Expr) -> str:
    """The text of one expression, shared parts written out where they are used."""
    return _Texts([expr], [None], name_from=None).roots[0]


def _declaration(buffer: ir.Buffer, usual_scope: str) -> str:
    shape = ", ".join(_Texts([size], [dtypes.int64], None).roots[0] for size in buffer.shape)
    scope = "" if buffer.scope == usual_scope else f" {buffer.scope}"
    return f"{quoted(buffer.name)}: {buffer.dtype.name}[{shape}]{scope}"


class _Printer:
    """Statements as lines; knows which buffer each name stands for."""

    def __init__(self, buffers: dict[str, ir.Buffer]) -> None:
        self.lines: list[str] = []
        self._buffers = buffers

    def block(self, body: ir.Stmt, depth: int) -> None:
        """A body: the statements of a sequence stand below each other without further ado."""
        if isinstance(body, ir.Seq) and len(body.body) > 1:
            for position, statement in enumerate(body.body):
                self._statement(statement, depth, position == len(body.body) - 1)
        else:
            self._statement(body, depth, True)

    def _statement(self, statement: ir.Stmt, depth: int, last: bool) -> None:
        if isinstance(statement, (ir.For, ir.If)):
            self._compound(statement, depth)
        elif isinstance(statement, ir.Alloc):
            self._alloc(statement, depth, last)
        elif isinstance(statement, (ir.Mma, ir.Pipe)):
            self._line(depth, f"{_heading(statement)}:")
            self.block(statement.body, depth + 1)
        elif isinstance(statement, ir.Seq):
            self._line(depth, "seq:" if statement.body else "pass")
            for position, inner in enumerate(statement.body):
                self._statement(inner, depth + 1, position == len(statement.body) - 1)
        else:
            self._write(statement, depth)

    def _compound(self, statement: ir.For | ir.If, depth: int) -> None:
        if isinstance(statement, ir.If):
            (guard,) = self._texts(depth, [statement.guard], [dtypes.bool_])
            self._line(depth, f"if {guard}:")
        else:
            (extent,) = self._texts(depth, [statement.extent], [dtypes.int64])
            if _precedence(statement.extent) <= COMPARISON:
                extent = f"({extent})"
            axis = "" if statement.axis == "spatial" else f" {statement.axis}"
            kind = "" if statement.kind == "serial" else f" {statement.kind}"
            self._line(depth, f"for {quoted(statement.name)} < {extent}{axis}{kind}:")
        self.block(statement.body, depth + 1)

    def _alloc(self, statement: ir.Alloc, depth: int, last: bool) -> None:
        """The last statement of a block is not indented: its body is the rest of the block."""
        buffer = statement.buffer
        self._line(depth, f"alloc {_declaration(buffer, '')}{'' if last else ':'}")
        hidden = self._buffers.get(buffer.name)
        self._buffers[buffer.name] = buffer
        self.block(statement.body, depth if last else depth + 1)
        del self._buffers[buffer.name]
        if hidden is not None:
            self._buffers[buffer.name] = hidden

    def _write(self, statement: ir.Store | ir.Reduce, depth: int) -> None:
        stored = isinstance(statement, ir.Store)
        buffers = (statement.buffer,) if isinstance(statement, ir.Store) else statement.buffers
        values = (statement.value,) if isinstance(statement, ir.Store) else statement.values
        for buffer in buffers:
            self._check(buffer)
        expected: list[DType] = [dtypes.int64] * len(statement.index)
        expected += [buffer.dtype for buffer in buffers]
        texts = self._texts(depth, [*statement.index, *values], expected)
        index, right = texts[: len(statement.index)], texts[len(statement.index) :]
        names = [quoted(buffer.name) for buffer in buffers]
        target = names[0] if len(names) == 1 else f"({', '.join(names)})"
        sign = "=" if stored else _join_symbol(statement)
        self._line(depth, f"{target}[{', '.join(index)}] {sign} {', '.join(right)}")

    def _texts(self, depth: int, roots: Sequence[ir.Expr], expected: Sequence[DType]) -> list[str]:
        for node in ir.subexpressions(*roots):
            if isinstance(node, ir.Load):
                self._check(node.buffer)
        texts = _Texts(roots, expected, name_from=0)
        for name, text in texts.named:
            self._line(depth, f"let {name} = {text}")
        return texts.roots

    def _check(self, buffer: ir.Buffer) -> None:
        if self._buffers.get(buffer.name) != buffer:
            raise ValueError(f"buffer {buffer.name!r} is used where it is not in scope")

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)


def _heading(statement: ir.Mma | ir.Pipe) -> str:
    if isinstance(statement, ir.Pipe):
        return f"pipe {statement.stages}"
    return f"mma {quoted(statement.instruction)}"


def _join_symbol(statement: ir.Stmt) -> str:
    assert isinstance(statement, ir.Reduce)
    return JOIN_SYMBOLS.get(statement.monoid, f"{statement.monoid}=")


def _precedence(expr: ir.Expr) -> int:
    if isinstance(expr, ir.OpExpr) and expr.name in INFIX:
        return INFIX[expr.name][1]
    if isinstance(expr, ir.OpExpr) and expr.name in PREFIX:
        return ATOM if isinstance(expr.args[0], ir.Const) else UNARY
    return ATOM


class _Texts:
    """The texts of some expressions, made bottom-up so that depth and sharing do no harm."""

    def __init__(
        self, roots: Sequence[ir.Expr], expected: Sequence[DType | None], name_from: int | None
    ) -> None:
        self.named: list[tuple[str, str]] = []
        self._texts: dict[ir.Expr, str] = {}
        self._precedences: dict[ir.Expr, int] = {}
        nodes = ir.subexpressions(*roots)
        uses = Counter(child for node in nodes for child in ir.children(node))
        for node in nodes:
            if isinstance(node, ir.Const):
                continue
            text = self._text(node)
            long = len(text) > _NAME_LONG or (uses[node] > 1 and len(text) > _NAME_SHARED)
            if name_from is not None and long and uses[node]:
                self.named.append((f"${name_from + len(self.named)}", text))
                text = self.named[-1][0]
                self._precedences[node] = ATOM
            self._texts[node] = text
        self.roots = [
            self._literal(root, dtype) if isinstance(root, ir.Const) else self._texts[root]
            for root, dtype in zip(roots, expected)
        ]

    def _literal(self, literal: ir.Const, expected: DType | None) -> str:
        return literal.text if literal.dtype is expected else f"{literal.text}:{literal.dtype.name}"

    def _text(self, node: ir.Expr) -> str:
        if isinstance(node, ir.Var):
            return quoted(node.name)
        if isinstance(node, ir.Hole):
            return f"?{quoted(node.name)}:{node.dtype.name}"
        if isinstance(node, ir.Load):
            index = ", ".join(
                self._literal(i, dtypes.int64) if isinstance(i, ir.Const) else self._texts[i]
                for i in node.index
            )
            return f"{quoted(node.buffer.name)}[{index}]"
        assert isinstance(node, ir.OpExpr)
        return self._operation(node)

    def _operation(self, node: ir.OpExpr) -> str:
        precedence = self._precedences[node] = _precedence(node)
        if node.name in INFIX:
            symbol = INFIX[node.name][0]
            comparison = precedence == COMPARISON  # comparisons do not chain
            left = self._operand(node, 0, precedence + comparison)
            return f"{left} {symbol} {self._operand(node, 1, precedence + 1)}"
        if precedence == UNARY:
            return PREFIX[node.name] + self._operand(node, 0, precedence)
        arguments = ", ".join(self._operand(node, i, 0) for i in range(len(node.args)))
        if node.name == "cast":
            return f"{node.dtype.name}({arguments})"
        return f"{f'as_{node.dtype.name}' if node.name == 'bitcast' else node.name}({arguments})"

    def _operand(self, node: ir.OpExpr, position: int, least: int) -> str:
        operand = node.args[position]
        if not isinstance(operand, ir.Const):
            text = self._texts[operand]
            return text if self._precedences.get(operand, ATOM) >= least else f"({text})"
        return self._literal(operand, self._implied(node, position))

    def _implied(self, node: ir.OpExpr, position: int) -> DType | None:
        """The type that the other operands give a literal at `position`, as the parser sees it."""
        if node.name in ("cast", "bitcast"):
            return None
        first = 1 if node.name in ("select", "guarded") else 0
        if position < first:
            return dtypes.bool_
        for other, operand in enumerate(node.args[first:], first):
            if not isinstance(operand, ir.Const) or (other == first and position != first):
                return operand.dtype  # an expression, or a literal that had to name its type
        return None
