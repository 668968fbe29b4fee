"""`autograd.Function`: an op with a gradient rule written by the user, as in torch.

The forward runs without tracking; its results are tied to the inputs by a node that differentiation
sees and the compiler does not. The backward is called with tensors whenever a graph is
differentiated, so it works under jit and, being made of ordinary ops, to any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

from ridgeline.autograd.written_rules import WrittenRule, known_code, left_by, tied
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node, proj
from ridgeline.graph.origins import here, stamp
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.tracking import custom
from ridgeline.record.cells import CUT, GRAPH
from ridgeline.record.modes import GradientMode, called_method, modes, no_grad
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, alias, wrap


class FunctionContext:
    """What forward hands to backward: saved tensors and any attributes."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._not_differentiable: set[int] = set()
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the backward."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` kept."""
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Outputs through which no gradient flows."""
        self._not_differentiable.update(id(t) for t in tensors)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Inputs that forward wrote to; writes go through by themselves here."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing gradients reach backward as zeros (the default) or as None."""
        self._materialize = value


class _Rule:
    """A user's backward as a rule over nodes."""

    def __init__(
        self, function: type[Function], context: FunctionContext, indices: list[int]
    ) -> None:
        self.function, self.context, self.indices = function, context, indices

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        return _backward(self.function, self.context, self.indices, current, cotangents)

    def reads(self, current: Node) -> Sequence[Node]:
        return [read(saved) for saved in self.context._saved if saved is not None]

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        if not hasattr(self.function, "jvp"):
            raise GradientError(
                f"{self.function.__name__} has no jvp", help="define a static method jvp(ctx, ...)"
            )
        given: list[Tensor | None] = [None] * len(self.context.needs_input_grad)
        for index, tangent in zip(self.indices, tangents):
            given[index] = None if tangent is None else wrap(tangent, GRAPH)
        result = called_method(self.function, "jvp")(self.context, *given)
        parts = result if isinstance(result, tuple) else (result,)
        return [None if part is None else read(part) for part in parts]


def _backward(
    function: type, context: FunctionContext, indices: Sequence[int], current: Node,
    cotangents: Sequence[Node | None],
) -> list[Node | None]:  # fmt: skip
    """What the backward of a user gives for the inputs that need gradients, as nodes."""
    outputs = current.inputs[: current.attrs.outputs]
    given = []
    for output, cotangent in zip(outputs, cotangents):
        if cotangent is None and context._materialize:
            cotangent = full_like(output, 0)
        given.append(None if cotangent is None else wrap(cotangent, GRAPH))
    with GradientMode(True):
        result = called_method(function, "backward")(context, *given)
    parts = result if isinstance(result, tuple) else (result,)
    name, expected = function.__name__, len(context.needs_input_grad)
    if len(parts) < expected or any(p is not None for p in parts[expected:]):
        raise GradientError(
            f"{name}.backward gave {len(parts)} gradients for {expected} inputs of forward"
        )
    found: list[Node | None] = []
    for index, source in zip(indices, current.inputs[current.attrs.first :]):
        part = parts[index]
        if part is not None and tuple(part.shape) != source.shape:
            raise GradientError(
                f"{name}.backward gave a gradient of shape {list(part.shape)} for input "
                f"{index}, which has shape {list(source.shape)}"
            )
        found.append(None if part is None else read(part.to(source.dtype)))
    return found


def _written(
    rule: WrittenRule, current: Node, cotangents: Sequence[Node | None], left: Mapping[str, Any]
) -> list[Node | None]:
    """The same for a rule that is a value: the context is made anew of what forward left in it."""
    context = FunctionContext(())
    vars(context).update(left)
    return _backward(rule.function, context, rule.indices, current, cotangents)


class Function:
    """Base of user-defined differentiable functions: define static `forward` and `backward`."""

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; `ctx.save_for_backward` keeps what backward needs."""
        raise NotImplementedError("a Function defines a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient (or None) per input of forward, from one per output."""
        raise NotImplementedError("a Function defines a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and tie its outputs to the inputs by backward."""
        tensors = [isinstance(a, Tensor) for a in args]
        needs = tuple(bool(t and a.requires_grad) for t, a in zip(tensors, args))
        context = FunctionContext(needs)
        with GradientMode(False):
            result = cls._run(context, args, kwargs)
        if not any(needs) or not modes.gradients:
            return result
        outputs = list(result) if isinstance(result, tuple) else [result]
        indices = [i for i, needed in enumerate(needs) if needed]
        made = cls._tied_by_value(context, outputs, args, indices)
        if made is None:
            made = cls._tied(context, outputs, args, indices)
        return tuple(made) if isinstance(result, tuple) else made[0]

    @classmethod
    def _tied(
        cls,
        context: FunctionContext,
        outputs: list[Tensor],
        args: Sequence[Any],
        indices: list[int],
    ) -> list[Tensor]:
        """The outputs, tied to the inputs by a rule that belongs to this call."""
        rule = _Rule(cls, context, indices)
        tie = custom([read(o) for o in outputs], [read(args[i]) for i in indices], rule)
        stamp(tie, here())
        made = [
            wrap(proj(tie, number), _mode(output, context)) for number, output in enumerate(outputs)
        ]
        context._saved = tuple(_replaced(t, outputs, made) for t in context._saved)
        return made

    @classmethod
    def _tied_by_value(
        cls,
        context: FunctionContext,
        outputs: list[Tensor],
        args: Sequence[Any],
        indices: list[int],
    ) -> Sequence[Tensor] | None:
        """The same by a rule that any other call may have, where forward and backward allow it."""
        code = known_code(cls) if modes.capture is None else None
        if code is None:
            return None
        flows = tuple([_mode(output, context) == GRAPH for output in outputs])
        state = {n: v for n, v in vars(context).items() if n != "_not_differentiable"}
        left = left_by(state, outputs, flows)
        if left is None:
            return None
        rule = WrittenRule(cls, code.code.function, left[0], tuple(indices), flows, _written)
        return tied(rule, outputs, left[1], [args[i] for i in indices])

    @classmethod
    def _run(cls, context: FunctionContext, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        forward = called_method(cls, "forward")
        if not hasattr(cls, "setup_context"):
            return forward(context, *args, **kwargs)
        output = forward(*args, **kwargs)
        called_method(cls, "setup_context")(context, tuple(args), output)
        return output


def _mode(output: Tensor, context: FunctionContext) -> int:
    flows = output.dtype.is_differentiable and id(output) not in context._not_differentiable
    return GRAPH if flows else CUT


def _replaced(saved: Tensor | None, before: list[Tensor], after: list[Tensor]) -> Tensor | None:
    """A saved output stands for the tracked one, so that backward can be differentiated."""
    for old, new in zip(before, after):
        if saved is old:
            return alias(new)
    return saved


def once_differentiable(fn: Any) -> Any:
    """A backward that is not differentiated itself: what it gives does not lead further back."""

    @wraps(fn)
    def detached(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            return fn(ctx, *gradients)

    return detached


FunctionCtx = BackwardCFunction = FunctionContext  # torch's names for it
