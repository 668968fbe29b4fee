"""Expressions from tokens, by operator precedence with explicit stacks.

A literal without a type waits for its context: the operands beside it, the buffer it is stored
into, or int64 in an index.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops.ir import Buffer, Const, Expr, Hole, Load, OpExpr, Var
from ridgeline.loops.text import printer

_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"  # numbers
    r"|\$\d+|`[^`]*`"  # names of shared parts, quoted names
    r"|[A-Za-z_][\w.]*=(?!=)|[A-Za-z_][\w.]*"  # reductions such as max=, and names
    r"|<<|>>|<=|==|!=|//|\+=|\*=|[-+*/%<&|^~=()\[\]:,@?])",
    re.ASCII,
)
_NUMBER = re.compile(r"\d|inf$|nan$|True$|False$")


class Tokens:
    """The words of one line, taken from the left."""

    def __init__(self, line: str, fail: Callable[[str], NoReturn]) -> None:
        self.fail = fail
        self._words: list[str] = []
        self._at = 0
        position, end = 0, len(line.rstrip())
        while position < end:
            match = _TOKEN.match(line, position)
            if match is None:
                fail(f"cannot read {line[position:].strip()!r}")
            self._words.append(match[1])
            position = match.end()

    def peek(self, ahead: int = 0) -> str | None:
        """The word `ahead` places on, if there is one."""
        return self._words[self._at + ahead] if self._at + ahead < len(self._words) else None

    def take(self) -> str:
        """The next word."""
        word = self.peek()
        if word is None:
            self.fail("the line ends too soon")
        self._at += 1
        return word

    def accept(self, word: str) -> bool:
        """Take the next word if it is this one."""
        found = self.peek() == word
        self._at += found
        return found

    def expect(self, word: str) -> None:
        """Take this word or fail."""
        if not self.accept(word):
            self.fail(f"expected {word!r}, found {self.peek()!r}")

    def name(self) -> str:
        """The next word as a name."""
        word = self.take()
        if not re.match(r"[A-Za-z_`]", word):
            self.fail(f"{word!r} is not a name")
        return printer.unquoted(word)

    def end(self) -> None:
        """Fail unless the line is used up."""
        if self.peek() is not None:
            self.fail(f"{self.peek()!r} is too much")


@dataclass(slots=True)
class Scope:
    """What names stand for: buffers, and the shared parts of the current statement."""

    buffers: dict[str, Buffer]
    named: dict[str, Expr]


@dataclass(frozen=True, slots=True)
class _Literal:
    """A number whose type is still to be found."""

    text: str

    def typed(self, dtype: DType) -> Const:
        return Const.make(dtype, self.text)


_Operand = Expr | _Literal


@dataclass(slots=True)
class _Frame:
    """An open bracket: what it is for, and the operators and operands read inside it so far."""

    kind: str  # "top", "(", "call" or "load"
    name: str
    operators: list[tuple[str, int]]
    operands: list[_Operand]
    finished: list[_Operand]


def parse_expr(tokens: Tokens, scope: Scope, expected: DType | None, above: int = 0) -> Expr:
    """One expression; only operators that bind more tightly than `above` are taken."""
    value = _Reader(tokens, scope).read(above)
    return _typed(tokens, value, expected)


def _typed(tokens: Tokens, value: _Operand, expected: DType | None) -> Expr:
    if isinstance(value, Expr):
        return value
    if expected is None:
        tokens.fail(f"the type of {value.text} is not known here")
    return value.typed(expected)


class _Reader:
    def __init__(self, tokens: Tokens, scope: Scope) -> None:
        self._tokens = tokens
        self._scope = scope
        self._frames = [_Frame("top", "", [], [], [])]

    def read(self, above: int) -> _Operand:
        while True:
            self._operand()
            while self._closes():
                self._close()
            word = self._tokens.peek()
            frame = self._frames[-1]
            if word == "," and frame.kind in ("call", "load"):
                self._tokens.take()
                frame.finished.append(self._finish(frame))
                continue
            if word not in printer.OPERATORS or (
                frame.kind == "top" and printer.OPERATORS[word][1] <= above
            ):
                break
            self._tokens.take()
            name, precedence = printer.OPERATORS[word]
            self._reduce(frame, precedence)
            frame.operators.append((name, precedence))
        if len(self._frames) > 1:
            self._tokens.fail(f"a bracket is not closed before {self._tokens.peek()!r}")
        return self._finish(self._frames[0])

    def _operand(self) -> None:
        """Read up to and including one operand, opening brackets on the way."""
        tokens = self._tokens
        while True:
            frame, word, following = self._frames[-1], tokens.take(), tokens.peek()
            if word == "-" and following is not None and _NUMBER.match(following):
                frame.operands.append(self._number("-" + tokens.take()))
            elif word in printer.PREFIX_OPERATORS:
                frame.operators.append((printer.PREFIX_OPERATORS[word], printer.UNARY))
                continue
            elif word == "(":
                self._open("(", "")
                continue
            elif _NUMBER.match(word):
                frame.operands.append(self._number(word))
            elif word == "?":
                name = tokens.name()
                tokens.expect(":")
                frame.operands.append(Hole.make(dtypes.named(tokens.take()), name))
            elif word.startswith("$"):
                if word not in self._scope.named:
                    tokens.fail(f"{word} has not been named")
                frame.operands.append(self._scope.named[word])
            elif tokens.accept("("):
                self._open("call", word)
                continue
            elif tokens.accept("["):
                self._open("load", printer.unquoted(word))
                if tokens.peek() != "]":
                    continue
            elif re.match(r"[A-Za-z_`]", word):
                frame.operands.append(Var.make(printer.unquoted(word)))
            else:
                tokens.fail(f"{word!r} is not an operand")
            return

    def _number(self, text: str) -> _Operand:
        dtype = printer.CASTS.get(self._tokens.peek(1) or "")
        if dtype is not None and self._tokens.accept(":"):
            self._tokens.take()
            return _Literal(text).typed(dtype)
        return _Literal(text)

    def _open(self, kind: str, name: str) -> None:
        self._frames.append(_Frame(kind, name, [], [], []))

    def _closes(self) -> bool:
        kind = self._frames[-1].kind
        return kind != "top" and self._tokens.peek() == ("]" if kind == "load" else ")")

    def _close(self) -> None:
        self._tokens.take()
        frame = self._frames.pop()
        if frame.operands:
            frame.finished.append(self._finish(frame))
        if frame.kind == "(":
            result = frame.finished[0]
        elif frame.kind == "load":
            if frame.name not in self._scope.buffers:
                self._tokens.fail(f"no buffer {frame.name!r} is in scope")
            index = tuple(_typed(self._tokens, i, dtypes.int64) for i in frame.finished)
            result = Load.make(self._scope.buffers[frame.name], index)
        else:
            result = self._apply(frame.name, frame.finished)
        self._frames[-1].operands.append(result)

    def _finish(self, frame: _Frame) -> _Operand:
        self._reduce(frame, 0)
        return frame.operands.pop()

    def _reduce(self, frame: _Frame, precedence: int) -> None:
        """Apply the pending operators that bind at least as tightly."""
        while frame.operators and frame.operators[-1][1] >= precedence:
            name, _ = frame.operators.pop()
            arity = scalars.TABLE[name].arity
            operands = frame.operands[-arity:]
            del frame.operands[-arity:]
            frame.operands.append(self._apply(name, operands))

    def _apply(self, name: str, operands: list[_Operand]) -> Expr:
        tokens = self._tokens
        conversion = printer.CASTS.get(name) or printer.BITCASTS.get(name)
        if conversion is not None:
            kind = "cast" if name in printer.CASTS else "bitcast"
            return OpExpr.make((_typed(tokens, operands[0], None),), conversion, kind)
        row = scalars.TABLE.get(name)
        if row is None or len(operands) != row.arity:
            tokens.fail(f"there is no operation {name!r} with {len(operands)} operands")
        first = 1 if name in ("select", "guarded") else 0
        known = [operand.dtype for operand in operands[first:] if isinstance(operand, Expr)]
        shared = known[0] if known else None
        args = [_typed(tokens, operand, dtypes.bool_) for operand in operands[:first]]
        args += [_typed(tokens, operand, shared) for operand in operands[first:]]
        return OpExpr.make(
            tuple(args), scalars.result_type(row, tuple(a.dtype for a in args)), name
        )
