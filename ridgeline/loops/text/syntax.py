"""The notation shared by the printer and the parser: operators, precedences, names, literals."""

from __future__ import annotations

import json
import re

from ridgeline import dtypes

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
