"""Shrinking: the shortest program found that still shows the same fault.

A program is cut from both sides: lines and results that the fault does not need are left out, and
a variable's line is replaced by an argument of its shape, which takes all before it away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import ridgeline as rl
from tests.fuzz.agree import Finding, judge
from tests.fuzz.program import Input, Program, Statement
from tests.fuzz.ways import Rejected, interpreted

Fails = Callable[[Program], bool]


def fails_like(finding: Finding, place: str = "cpu") -> Fails:
    """A test for programs: does the same way still go wrong?"""

    def fails(program: Program) -> bool:
        try:
            found = judge(program, () if finding.way == "torch" else (finding.way,), place)
        except Exception:  # a candidate that does not run, or cannot be judged
            return False
        return (
            found is not None
            and found.way == finding.way
            and (found.call < 0) == (finding.call < 0)
        )

    return fails


def shrink(program: Program, fails: Fails) -> Program:
    """The smallest program that can be reached by steps after each of which it still fails."""
    current = program
    while True:
        for candidate in _smaller(current):
            if fails(candidate):
                current = candidate
                break
        else:
            return current


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, those with the least first."""
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield replace(program, outputs=(name,))
        yield replace(program, outputs=())
    for place in reversed(range(len(program.statements))):
        yield from _as_argument(program, place)
    for place in range(len(program.statements)):
        yield _without(program, place)
    if program.statements:
        yield _returning_operands(program)
    for place, given in enumerate(program.inputs):
        if (
            not any(given.name in s.uses for s in program.statements)
            and given.name not in program.outputs
        ):
            yield replace(program, inputs=program.inputs[:place] + program.inputs[place + 1 :])


def _without(program: Program, place: int) -> Program:
    """The program without a line and all that needs it."""
    gone: set[str] = set()
    kept: list[Statement] = []
    for number, statement in enumerate(program.statements):
        if number == place or statement.uses & gone:
            gone |= {statement.target} if statement.target else set()
        else:
            kept.append(statement)
    outputs = tuple(o for o in program.outputs if o not in gone)
    return replace(program, statements=tuple(kept), outputs=outputs)


def _returning_operands(program: Program) -> Program:
    """The program without its last line, returning what that line used."""
    *rest, last = program.statements
    return replace(program, statements=tuple(rest), outputs=tuple(sorted(last.uses)))


def _as_argument(program: Program, place: int) -> Iterator[Program]:
    """The program that gets a variable as an argument instead of computing it."""
    target = program.statements[place].target
    if target is None or program.dynamic:
        return
    before = replace(program, statements=program.statements[: place + 1], outputs=(target,))
    try:
        value = interpreted(before, [(0, 0)])[0][0]
    except (Rejected, rl.RidgelineError):
        return
    number = max([-1, *(int(i.name[1:]) for i in program.inputs)]) + 1
    given = Input(f"a{number}", value.shape, value.dtype.name)
    rest = program.statements[place + 1 :]
    needed = {name for s in rest for name in s.uses} | set(program.outputs)
    earlier = [s for s in program.statements[:place] if s.target in needed or s.target is None]
    renamed = tuple(_renamed(s, target, given.name) for s in (*earlier, *rest))
    outputs = tuple(given.name if o == target else o for o in program.outputs)
    yield replace(program, inputs=(*program.inputs, given), statements=renamed, outputs=outputs)


def _renamed(statement: Statement, old: str, new: str) -> Statement:
    return replace(statement, text=re.sub(rf"\b{old}\b", new, statement.text))
