"""The inverse of `loops/text/printer.py`: kernels from text, node for node as they were printed.

Lines give the statements; expressions are read by operator precedence with explicit stacks, so
their depth does not matter. Nothing is simplified on the way in.
"""

from __future__ import annotations

import re
from typing import NoReturn, cast, get_args

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.ir import (
    Alloc,
    AxisKind,
    Buffer,
    Expr,
    For,
    If,
    Kernel,
    LoopKind,
    Mma,
    Pipe,
    Reduce,
    Scope as Memory,
    Seq,
    Stmt,
    Store,
)
from ridgeline.loops.text import printer
from tests.loops.expression_parser import Scope, Tokens, parse_expr

_AXES, _KINDS, _MEMORIES = get_args(AxisKind), get_args(LoopKind), get_args(Memory)


class ParseError(ValueError):
    """Text that is not a kernel; says which line."""


def parse_kernel(text: str) -> Kernel:
    """The kernel that `print_kernel` wrote."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ParseError("empty text")
    parser = _Parser(lines)
    return parser.kernel()


class _Parser:
    """Reads statements line by line, by indentation."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self._at = 0
        self._scope = Scope({}, {})

    def kernel(self) -> Kernel:
        tokens = self._tokens()
        tokens.expect("kernel")
        name = tokens.name()
        sizes: list[str] = []
        if tokens.accept("["):
            sizes = self._names(tokens, "]")
        tokens.expect("(")
        params: list[Buffer] = []
        while not tokens.accept(")"):
            params.append(self._declaration(tokens, "global"))
            tokens.accept(",")
        tokens.end()
        self._scope.buffers.update({param.name: param for param in params})
        self._at += 1
        body = self._block(0)
        if self._at < len(self._lines):
            self._fail("unexpected indentation")
        return Kernel(name, tuple(params), tuple(sizes), body)

    def _block(self, depth: int) -> Stmt:
        statements = self._statements(depth)
        if not statements:
            self._fail("an indented block should stand here")
        return statements[0] if len(statements) == 1 else Seq(tuple(statements))

    def _statements(self, depth: int) -> list[Stmt]:
        found: list[Stmt] = []
        while self._at < len(self._lines) and self._depth() == depth:
            self._scope.named.clear()
            tokens = self._tokens()
            while (tokens.peek(1) or "").startswith("$") and tokens.accept("let"):
                name = tokens.take()
                tokens.expect("=")
                self._scope.named[name] = self._expr(tokens, None)
                tokens.end()
                self._at += 1
                if self._at == len(self._lines) or self._depth() != depth:
                    self._fail("a let line needs a statement after it")
                tokens = self._tokens()
            found.append(self._statement(tokens, depth))
        return found

    def _statement(self, tokens: Tokens, depth: int) -> Stmt:
        word = tokens.peek(1)
        if word not in ("[", ",") and tokens.accept("for"):
            return self._loop(tokens, depth)
        if word != "[" and tokens.accept("if"):
            guard = self._expr(tokens, dtypes.bool_)
            tokens.expect(":")
            return If(guard, self._inner(tokens, depth))
        if word != "[" and tokens.accept("alloc"):
            return self._alloc(tokens, depth)
        if word not in ("[", ",") and tokens.accept("mma"):
            instruction = tokens.name()
            tokens.expect(":")
            return Mma(instruction, self._inner(tokens, depth))
        if word not in ("[", ",") and tokens.accept("pipe"):
            stages = int(tokens.take())
            tokens.expect(":")
            return Pipe(stages, self._inner(tokens, depth))
        if word == ":" and tokens.accept("seq"):
            tokens.expect(":")
            tokens.end()
            self._at += 1
            return Seq(tuple(self._statements(depth + 1)))
        if word is None and tokens.accept("pass"):
            self._at += 1
            return Seq(())
        return self._write(tokens)

    def _inner(self, tokens: Tokens, depth: int) -> Stmt:
        tokens.end()
        self._at += 1
        return self._block(depth + 1)

    def _loop(self, tokens: Tokens, depth: int) -> For:
        name = tokens.name()
        tokens.expect("<")
        extent = self._expr(tokens, dtypes.int64, above=printer.COMPARISON)
        axis, kind = "spatial", "serial"
        while not tokens.accept(":"):
            word = tokens.take()
            if word in _AXES:
                axis = word
            elif word in _KINDS:
                kind = word
            else:
                self._fail(f"{word!r} is not a kind of loop")
        body = self._inner(tokens, depth)
        return For(name, extent, body, cast(AxisKind, axis), cast(LoopKind, kind))

    def _alloc(self, tokens: Tokens, depth: int) -> Alloc:
        buffer = self._declaration(tokens, "")
        hidden = self._scope.buffers.get(buffer.name)
        self._scope.buffers[buffer.name] = buffer
        if tokens.accept(":"):
            body = self._inner(tokens, depth)
        else:
            tokens.end()
            self._at += 1
            body = self._block(depth)
        del self._scope.buffers[buffer.name]
        if hidden is not None:
            self._scope.buffers[buffer.name] = hidden
        return Alloc(buffer, body)

    def _write(self, tokens: Tokens) -> Store | Reduce:
        names = self._names(tokens, ")") if tokens.accept("(") else [tokens.name()]
        buffers = tuple(self._buffer(name) for name in names)
        tokens.expect("[")
        index: list[Expr] = []
        while not tokens.accept("]"):
            index.append(self._expr(tokens, dtypes.int64))
            tokens.accept(",")
        sign = tokens.take()
        values = []
        for position, buffer in enumerate(buffers):
            if position:
                tokens.expect(",")
            values.append(self._expr(tokens, buffer.dtype))
        tokens.end()
        self._at += 1
        if sign == "=":
            return Store(buffers[0], tuple(index), values[0])
        if not sign.endswith("="):
            self._fail(f"{sign!r} is neither = nor a reduction")
        monoid = printer.JOIN_NAMES.get(sign, sign[:-1])
        return Reduce(buffers, tuple(index), monoid, tuple(values))

    def _declaration(self, tokens: Tokens, usual: str) -> Buffer:
        name = tokens.name()
        tokens.expect(":")
        dtype = dtypes.named(tokens.take())
        tokens.expect("[")
        shape: list[Expr] = []
        while not tokens.accept("]"):
            shape.append(self._expr(tokens, dtypes.int64))
            tokens.accept(",")
        scope = tokens.take() if tokens.peek() in _MEMORIES else usual
        slot = int(tokens.take()) if tokens.accept("@") else -1
        return Buffer(name, tuple(shape), dtype, cast(Memory, scope), slot)

    def _names(self, tokens: Tokens, close: str) -> list[str]:
        names = []
        while not tokens.accept(close):
            names.append(tokens.name())
            tokens.accept(",")
        return names

    def _buffer(self, name: str) -> Buffer:
        if name not in self._scope.buffers:
            self._fail(f"no buffer {name!r} is in scope")
        return self._scope.buffers[name]

    def _expr(self, tokens: Tokens, expected: DType | None, above: int = 0) -> Expr:
        return parse_expr(tokens, self._scope, expected, above)

    def _depth(self) -> int:
        line = self._lines[self._at][1]
        return (len(line) - len(line.lstrip(" "))) // 2

    def _tokens(self) -> Tokens:
        return Tokens(self._lines[self._at][1], self._fail)

    def _fail(self, message: str) -> NoReturn:
        number, line = self._lines[min(self._at, len(self._lines) - 1)]
        raise ParseError(f"line {number}: {message}: {re.sub(' +', ' ', line).strip()}")
