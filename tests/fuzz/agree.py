"""Judging a program: do all ways agree?

Exact programs must agree to the bit. In smooth ones a way's error against float64 may be at most
twice the reference's, where the reference is the interpreter under several roundings.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.fuzz.program import Array, Program
from tests.fuzz.ways import (
    CALLS,
    WAYS,
    Call,
    Rejected,
    Results,
    by_torch,
    came,
    exact_only,
    interpreted,
    perturbed,
    torch,
)

_ROUNDINGS = 3, 15  # tried where a way disagrees with the plain interpreter, then with the first
# torch goes backward through no value that was changed since; here it is kept as it was. A
# conjugate is a flag there, until which is resolved no parts can be seen.
_REFUSED = ("has been modified by an inplace operation", "on unresolved conjugated tensors")
_LARGE_ROUNDINGS, _LARGER = 8, 16.0  # to find jumps near the inputs


@dataclass(frozen=True, slots=True)
class Finding:
    """A way that disagrees: on which call, at which output, and how."""

    way: str
    call: int
    output: int
    detail: str

    def __str__(self) -> str:
        return f"{self.way}, call {self.call}, output {self.output}: {self.detail}"


def judge(
    program: Program, ways: Sequence[str] = ("deferred", "jit"), place: str = "cpu"
) -> Finding | None:
    """The first disagreement on a device with the interpreter on the CPU, or None.

    Raises `Rejected` for a program that cannot be judged.
    """
    if place == "cpu" and program.portable and torch is not None:
        ways = [*ways, "torch"]
    judged = _judge_exact if program.flavour == "exact" else _judge_smooth
    return judged(program, ways, place)


def _judge_exact(program: Program, ways: Sequence[str], place: str) -> Finding | None:
    known: dict[Call, Results] = {}
    for call in set(CALLS[place]):
        try:
            with exact_only():
                (known[call],) = interpreted(program, [call])
        except Rejected:
            continue
    if not known:
        raise Rejected("no call is exact")
    calls = [call for call in CALLS[place] if call in known]
    wanted = [known[call] for call in calls]
    for way in ways:
        outcomes = _attempt(program, way, calls, place)
        if isinstance(outcomes, Finding):
            return outcomes
        for turn, got in zip(came(way, len(calls), len(outcomes)), outcomes):
            for number, pair in enumerate(zip(got, wanted[turn])):
                detail = difference(*pair)
                if detail:
                    return Finding(way, turn, number, detail)
    return None


def _attempt(
    program: Program, way: str, calls: Sequence[Call], place: str
) -> list[Results] | Finding:
    """What a way gives for each call; nothing where torch refuses by a rule of its own."""
    try:
        return by_torch(program, calls) if way == "torch" else WAYS[way](program, calls, place)
    except Exception as error:
        if way == "torch" and any(rule in str(error) for rule in _REFUSED):
            return []
        return Finding(way, -1, -1, traceback.format_exc(limit=-4))


def difference(got: Array | None, wanted: Array) -> str:
    """Where two arrays differ; empty when they are equal, NaN for NaN, or one cannot be read."""
    if got is None:
        return ""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    same = (got == wanted) | ((got != got) & (wanted != wanted))
    if same.all():
        return ""
    first = tuple(np.argwhere(~same)[0])
    places = f"{(~same).sum()} of {same.size} elements"
    return f"{places}, {got[first]} instead of {wanted[first]} at {list(map(int, first))}"


def _judge_smooth(program: Program, ways: Sequence[str], place: str) -> Finding | None:
    calls = CALLS[place]
    truth = interpreted(program, calls, wide=True)
    references = [interpreted(program, calls)]
    for way in ways:
        outcomes = _attempt(program, way, calls, place)
        if isinstance(outcomes, Finding):
            return outcomes
        found = _worst_excess(way, outcomes, references, truth)
        for more in _ROUNDINGS:  # each only allows more
            if found is None:
                break
            references += _rounded(program, calls, range(len(references) - 1, more))
            found = _worst_excess(way, outcomes, references, truth)
        if found is not None:
            _require_no_jump(program, calls, references, truth, found)
            return found
    return None


def _rounded(
    program: Program, calls: Sequence[Call], seeds: Iterable[int], scale: float = 1.0
) -> list[list[Results]]:
    """What the interpreter gives under other roundings, `scale` times as large."""
    results = []
    for seed in seeds:
        with perturbed(seed, scale):
            results.append(interpreted(program, calls))
    return results


def _worst_excess(
    way: str,
    outcomes: Sequence[Results],
    references: Sequence[Sequence[Results]],
    truth: Sequence[Results],
) -> Finding | None:
    for turn, got in zip(came(way, len(truth), len(outcomes)), outcomes):
        for number, value in enumerate(got):
            judged = [r[turn][number] for r in references]
            detail = _excess(value, judged, truth[turn][number])
            if detail:
                return Finding(way, turn, number, detail)
    return None


def _require_no_jump(
    program: Program,
    calls: Sequence[Call],
    references: Sequence[Sequence[Results]],
    truth: Sequence[Results],
    found: Finding,
) -> None:
    """Reject a program in which errors grow faster than roundings: a branch hangs on them.

    Next to a jump (a choice among values that are nearly equal, a gradient at a kink) the roundings
    tried may all have fallen on one side, and the way on the other.
    """

    def error(results: Sequence[Results]) -> float:
        value = results[found.call][found.output].astype(np.float64)
        return float(np.abs(value - truth[found.call][found.output]).max(initial=0.0))

    small = max(error(r) for r in references)
    large = max(error(r) for r in _rounded(program, calls, range(_LARGE_ROUNDINGS), _LARGER))
    if large > 4 * _LARGER * small:
        raise Rejected("the result jumps within roundings of these inputs")


def _excess(got: Array | None, references: Sequence[Array], truth: Array) -> str:
    """What is wrong with a float result, measured against the errors of the references."""
    if got is None:
        return ""
    first = references[0]
    if got.shape != first.shape or got.dtype != first.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {first.dtype}{list(first.shape)}"
    if got.dtype.kind in "biu":
        if any(difference(other, first) for other in references):
            raise Rejected("a whole number hangs on rounding")
        return difference(got, first)
    if not got.size:
        return ""
    exact = truth.astype(np.float64)
    errors = [np.abs(r.astype(np.float64) - exact).max() for r in references]
    error = np.abs(got.astype(np.float64) - exact).max()
    if not all(np.isfinite(errors)):
        raise Rejected("the reference is not finite")
    eps = 2.0**-22 if got.dtype.itemsize >= 4 else 2.0**-6
    allowed = 2 * max(errors) + eps * np.abs(exact).max()
    return "" if error <= allowed else f"an error of {error:.3g} where {allowed:.3g} is allowed"
