"""Random programs within memory budgets: what a call holds is measured, and results are compared.

A program is jitted without a budget, and with the smallest one that an error names and one above
it. Blocks that the pool hands out while a call runs, together with its arguments, never exceed the
budget, and every bit of what comes out is that of the call without one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.errors import MemoryBudgetError
from ridgeline.runtime.buffer import pool
from ridgeline.runtime.cpu import executable, executor
from ridgeline.runtime.memory import block_bytes
from tests.fuzz.generate import generate
from tests.fuzz.program import Program
from tests.fuzz.ways import Rejected, _function, _outcome, _set_state

_CALLS = ((0, 0), (1, 0), (0, 0), (0, 1))  # which inputs, which state


class Exceeded(AssertionError):
    """A call held more than its budget."""


def find(seed: int) -> str | None:
    """What is wrong with the program of a seed within budgets, or None."""
    try:
        program = generate(seed)
    except Rejected:
        return None
    with rl.config.override(tier="compiled"), measured_arenas():
        try:
            wanted = _outcomes(program, None)
        except Exception:  # judged elsewhere
            return None
        try:
            smallest, found = _smallest(program)
            if smallest:
                above = smallest + random.Random(seed).randrange(1, 3000)
                found += _outcomes(program, above)
        except Exception as error:
            return f"{program.body()}\n{type(error).__name__}: {error}"
    for call, (one, other) in enumerate(zip(found, wanted * 2)):
        if one != other:
            return f"{program.body()}\ncall {call} gives something else"
    return None


@contextmanager
def measured_arenas() -> Iterator[None]:
    """Inside, small arenas are blocks of the pool, too, and are counted."""
    before = executor.SCRATCH_BYTES
    for module in (executor, executable):
        module.SCRATCH_BYTES = -1  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in (executor, executable):
            module.SCRATCH_BYTES = before  # type: ignore[attr-defined]


def _smallest(program: Program) -> tuple[int, list[list[bytes]]]:
    """The budget that is enough for every call, as errors name it, and what calls give within it.

    0 where no budget can be kept, since sizes follow from values.
    """
    least = 1
    while True:
        try:
            return least, _outcomes(program, least)
        except MemoryBudgetError as error:
            if not error.smallest:
                return 0, []
            if error.smallest <= least:
                raise AssertionError("what is named as enough is not enough") from error
            least = error.smallest


def _outcomes(program: Program, budget: int | None) -> list[list[bytes]]:
    """What the calls of a program give, to the bit."""
    function, names = _function(program, rl)
    jitted = rl.jit(function, dynamic=program.dynamic or False, memory=budget)
    outcomes = []
    for inputs, state in _CALLS:
        _set_state(names, state)
        names["S"].tolist()
        rl.manual_seed(program.seed)
        arguments = [rl.tensor(array) for array in program.values(inputs)]
        for argument in arguments:
            argument.tolist()  # in memory: what is recorded before a call is no part of it
        returned = within(jitted, budget, partial(jitted, *arguments))
        shown = _outcome(returned, [*arguments, names["S"]])
        outcomes.append([b"" if value is None else np.asarray(value).tobytes() for value in shown])
    return outcomes


def within(jitted: Any, budget: int | None, call: Callable[[], Any]) -> Any:
    """What a call gives; an error where it held more than the budget."""
    before, traces = pool.in_use, jitted.traces
    pool.reset_peak()
    result = call()
    grown = pool.peak - before
    if budget is not None:
        held = grown + jitted.program.held.arguments
        if jitted.traces > traces:  # constants are arguments that the traced call has made
            made = jitted._traces[0].executable.fixed if jitted._traces else []
            held -= sum(block_bytes(c.nbytes) for c in made if c is not None and not c.borrowed)
        if held > budget:
            planned = jitted.program.held
            raise Exceeded(f"{held} bytes were held of {budget}; planned were {planned}")
    return result
