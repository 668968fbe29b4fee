"""NumPy's reports of overflow, division by zero and invalid operands, switched off for a block.

NumPy's own block is left by Python code: a signal that arrives where that code begins would leave
the reports of the whole thread switched off. This block is left by one call of C code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar, Token, copy_context
from itertools import repeat
from typing import Any

import numpy as np

from ridgeline.atomic import Block


def _found() -> tuple[ContextVar[Any], Any]:
    """The context variable in which NumPy keeps its error state, and its value for no reports."""
    before, context = copy_context(), copy_context()
    context.run(np.seterr, all="ignore")
    (variable,) = [v for v in context if v not in before or before[v] is not context[v]]
    return variable, context[variable]


_STATE, _IGNORE = _found()


def float_errors_ignored() -> Block:
    """A block in which operations on floats warn of nothing."""
    tokens: list[Token[Any]] = []
    entering: Iterator[Any] = map(tokens.append, map(_STATE.set, repeat(_IGNORE)))
    return Block(entering, map(_STATE.reset, map(list.pop, repeat(tokens))))
