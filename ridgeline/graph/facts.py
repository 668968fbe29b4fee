"""Facts: comparisons of symbolic sizes that were decided by the values of one call.

While a function is traced or a graph is compiled with symbolic sizes, every question that the
bounds leave open is answered by the values at hand and written down. The result stands for all
values for which each answer is the same. A size that is used as a plain number is *pinned*: the
result then stands for that value only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ridgeline.atomic import Block
from ridgeline.graph.sizes import (
    Relation,
    SizeExpr,
    bounds,
    decide_from_now_on,
    deciding,
    evaluate,
    symbols,
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Whether `size relation 0`."""

    relation: Relation
    size: SizeExpr
    holds: bool

    def fits(self, values: Mapping[str, int]) -> bool:
        """True if the comparison has the same answer at these values."""
        value = evaluate(self.size, values)
        return (value == 0 if self.relation == "==" else value < 0) is self.holds

    @property
    def unknowns(self) -> set[str]:
        """The names of its unknowns."""
        return {unknown.name for unknown in symbols([self.size])}

    @property
    def code(self) -> str:
        """The fact as a Python expression over the unknowns."""
        relation = "== 0" if self.relation == "==" else "< 0"
        return f"(({self.size}) {relation}) is {self.holds}"

    def __str__(self) -> str:
        number = self.size.form.constant
        rest = self.size - number
        if bounds(rest)[1] <= 0:  # written with positive terms
            signs = {("==", True): "==", ("==", False): "!=", ("<", True): ">", ("<", False): "<="}
            return f"{-rest} {signs[self.relation, self.holds]} {number}"
        signs = {("==", True): "==", ("==", False): "!=", ("<", True): "<", ("<", False): ">="}
        return f"{rest} {signs[self.relation, self.holds]} {-number}"


def _always(**values: int) -> bool:
    return True


def _compiled(facts: Sequence[Fact]) -> Callable[..., bool]:
    """One function that checks all facts; it runs in every call."""
    names = [unknown.name for unknown in symbols([fact.size for fact in facts])]
    text = " and ".join(fact.code for fact in facts)
    made: Callable[..., bool] = eval(f"lambda {', '.join([*names, '**others'])}: {text}")
    return made


class SizeFacts:
    """The questions that were asked about some sizes, and the answers."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = dict(values)
        self._found: dict[tuple[Relation, str], Fact] = {}
        self.pinned: dict[str, int] = {}  # sizes that were used as plain numbers, by text
        self._all_fit: tuple[int, Callable[..., bool]] = 0, _always  # for so many facts

    def deciding(self) -> Block:
        """A block in which this object answers the questions of this thread."""
        return deciding(self._decide, self._number, self._at_hand)

    def decide_from_now_on(self) -> None:
        """Answer the questions of this thread until the block `undecided()` ends."""
        decide_from_now_on(self._decide, self._number, self._at_hand)

    def broken(self, values: Mapping[str, int]) -> Fact | None:
        """A fact that does not hold at these values, if there is one."""
        count, all_fit = self._all_fit
        if count != len(self._found):
            all_fit = _compiled(list(self._found.values()))
            self._all_fit = len(self._found), all_fit
        try:
            if all_fit(**values):
                return None
        except ZeroDivisionError:  # a quotient of sizes by zero is zero
            pass
        return next((fact for fact in self._found.values() if not fact.fits(values)), None)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._found.values())

    def _decide(self, relation: Relation, size: SizeExpr) -> bool:
        key = relation, size.text
        found = self._found.get(key)
        if found is None:
            value = evaluate(size, self.values)
            holds = value == 0 if relation == "==" else value < 0
            found = self._found[key] = Fact(relation, size, holds)
        return found.holds

    def _at_hand(self, size: SizeExpr) -> int:
        return evaluate(size, self.values)

    def _number(self, size: SizeExpr) -> int:
        value = evaluate(size, self.values)
        self.pinned[size.text] = value
        difference = size - value
        if isinstance(difference, SizeExpr):
            self._decide("==", difference)
        return value
