"""User-written gradient rules as values: what a settled `backward` returns.

Where the code of a `backward` is settled (`settled_code.py`), and forward left constants and
tensors to it, a call of the function is known by these: the rule holds no tensor, and reads what
was saved from the node that it belongs to. Two calls with equal rules record the same, so that a
tape can match them and the backward pass through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ClassVar

from ridgeline.autograd.settled_code import SettledCode, is_constant, is_same, settled
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node, proj
from ridgeline.graph.origins import here, stamp
from ridgeline.ops.tracking import custom
from ridgeline.record import recorder
from ridgeline.record.cells import CUT, GRAPH
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, wrap

Apply = Callable[["WrittenRule", Node, Sequence[Node | None], Mapping[str, Any]], list[Node | None]]
MOST_KNOWN = 256  # functions whose code was looked into: classes may be made in every step
_settled: dict[FunctionType, SettledCode] = {}


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor that forward left: one of those that the node keeps, or an output of forward."""

    place: int
    output: bool
    tracked: bool

    def node(self, current: Node) -> Node:
        """Its value, and how that came about."""
        if self.output:
            return proj(current, self.place)
        kept: Node = current.inputs[current.attrs.outputs + self.place]
        return kept


@dataclass(frozen=True)
class WrittenRule(recorder.ConstantArgument):
    """The rule of one call: the class, its backward, and what forward left to that."""

    settled: ClassVar[bool] = True
    function: type
    rule: FunctionType
    given: tuple[tuple[str, Any], ...]  # attributes of the context: constants, and `Kept`
    indices: tuple[int, ...]  # the inputs that have gradients
    flows: tuple[bool, ...]  # by output: do gradients go through
    run: Apply = field(compare=False)  # calls the backward over nodes

    def __eq__(self, other: object) -> bool:
        if type(other) is not WrittenRule or self._fixed != other._fixed:
            return False
        pairs = zip(self.given, other.given, strict=True)
        return all(name == known and _is_alike(v, w) for (name, v), (known, w) in pairs)

    __hash__ = None  # type: ignore[assignment]

    @property
    def _fixed(self) -> Any:
        return self.function, self.rule, self.indices, self.flows, len(self.given)

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Reverse mode: what the user's backward gives."""
        left = {name: _rebuilt(value, current) for name, value in self.given}
        found = self.run(self, current, cotangents, left)
        for value in left.values():
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor) and tensor._cell.version:
                    raise GradientError(
                        f"{self.function.__name__}.backward writes to a tensor that forward saved",
                        help="write to a clone() of it",
                    )
        now = known_code(self.function)
        if now is None:
            recorder.lose("a gradient rule of a user's is called")
        else:
            recorder.ran_rule(now)
        return found

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """There is no such rule."""
        raise GradientError(
            f"{self.function.__name__} has no jvp", help="define a static method jvp(ctx, ...)"
        )

    def reads(self, current: Node) -> Sequence[Node]:
        """What forward saved."""
        values = [v for _, value in self.given for v in _parts(value) if isinstance(v, Kept)]
        return [value.node(current) for value in dict.fromkeys(values)]


@dataclass(frozen=True, slots=True)
class RuleCode:
    """The backward of a class, and what it reads besides its arguments."""

    function: type
    code: SettledCode

    def holds(self) -> bool:
        """True where the class has the same backward, which would read the same now."""
        return getattr(self.function, "backward", None) is self.code.function and self.code.holds()


def known_code(function: type) -> RuleCode | None:
    """The backward of a class, where its code is settled."""
    own = getattr(function, "backward", None)
    if type(own) is not FunctionType or hasattr(function, "jvp") or hasattr(function, "vmap"):
        return None
    found = _settled.get(own)
    if found is None or not found.holds():
        found = settled(own)
        if found is None:
            return None
        if len(_settled) >= MOST_KNOWN:
            _settled.clear()
        _settled[own] = found
    return RuleCode(function, found)


def left_by(
    context: Mapping[str, Any], outputs: Sequence[Tensor], flows: Sequence[bool]
) -> tuple[tuple[tuple[str, Any], ...], list[Tensor]] | None:
    """What forward left in a context, with its tensors apart; None where that is something else."""
    tensors: list[Tensor] = []
    try:
        left = [(name, _kept(v, outputs, flows, tensors)) for name, v in context.items()]
    except TypeError:
        return None
    return tuple(left), tensors


def _kept(
    value: Any, outputs: Sequence[Tensor], flows: Sequence[bool], tensors: list[Tensor]
) -> Any:
    """A value that forward left; a tensor is told by its place, and added to those apart."""
    if isinstance(value, Tensor):
        for place, output in enumerate(outputs):
            if output is value:
                return Kept(place, True, flows[place])
        tensors.append(value)
        return Kept(len(tensors) - 1, False, value.requires_grad)
    if type(value) is tuple:
        return tuple([_kept(part, outputs, flows, tensors) for part in value])
    if not is_constant(value):
        raise TypeError
    return value


@recorder.taped
def tied(
    rule: WrittenRule, outputs: Sequence[Tensor], kept: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """What forward gave, tied to its inputs by a rule."""
    made = custom([*map(read, outputs)], [*map(read, inputs)], rule, [*map(read, kept)])
    stamp(made, here())
    modes = [GRAPH if flows else CUT for flows in rule.flows]
    return tuple([wrap(proj(made, number), mode) for number, mode in enumerate(modes)])


def _parts(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)


def _rebuilt(value: Any, current: Node) -> Any:
    if type(value) is tuple:
        return tuple([_rebuilt(part, current) for part in value])
    if isinstance(value, Kept):
        return wrap(value.node(current), GRAPH if value.tracked else CUT)
    return value


def _is_alike(value: Any, other: Any) -> bool:
    if type(value) is tuple and type(other) is tuple:
        return len(value) == len(other) and all(map(_is_alike, value, other))
    return value == other if isinstance(value, Kept) else is_same(value, other)
