"""Hooks of modules: handles to remove them, and the gradients that backward hooks see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, repeat
from operator import call
from typing import TYPE_CHECKING, Any
from weakref import ref

from ridgeline.atomic import Block, apply, steps
from ridgeline.autograd.function import Function
from ridgeline.record import mutation
from ridgeline.record.modes import called, modes
from ridgeline.tensors.public import zeros_like
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.nn.module import Module

Gradients = tuple[Tensor | None, ...]

_numbers = count()
_NONES = repeat(None)


class RemovableHandle(Block):
    """Takes a hook out of the table it was put into; as a block, at its end.

    The hook is there from the call that gives the handle on, which is before the block begins.
    """

    def __init__(self, table: dict[int, Any], hook: Any, first: bool = False) -> None:
        number = next(_numbers)
        self._remove = partial(dict.pop, table, number, None)
        added = {number: hook}
        if first:
            clear = partial(dict.clear, table)
            apply(steps((clear, partial(dict.update, table, added | table)), ()))
        else:
            dict.update(table, added)
        remove = map(dict.pop, repeat(table), repeat(number), _NONES)
        super().__init__(map(call, repeat(ref(self))), zip(mutation.epoch.bumps(), remove))

    def remove(self) -> None:
        """Take the hook out; a second call does nothing. Jitted functions notice."""
        mutation.bump()
        self._remove()


class BackwardPass:
    """One call of a module whose backward hooks wait for the gradients of outputs and inputs.

    The hooks are those that the module has when it is called, whatever becomes of them.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.before = tuple(module._backward_pre_hooks.values())
        self.hooks = tuple(module._backward_hooks.values())
        self.arguments: tuple[Any, ...] = ()
        self.tracked: list[int] = []  # arguments that gradients flow to
        self.of_outputs: Gradients = ()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with tensors that need gradients watched."""
        self.arguments, self.tracked = args, _tracked(args)
        return _through(self._inputs, args, self.tracked, True)

    def leave(self, result: Any) -> Any:
        """The result, with its tensors watched."""
        parts = result if isinstance(result, tuple) else (result,)
        places = _tracked(parts)
        watch = partial(self._outputs, places, len(parts))
        watched = _through(watch, parts, places, False)
        return watched if isinstance(result, tuple) else watched[0]

    def _outputs(self, places: Sequence[int], count: int, known: Gradients) -> Gradients:
        """Gradients of the outputs are known: pre hooks may replace them."""
        gradients = _put([None] * count, places, known)
        for hook in self.before:
            gradients = _replaced(called(hook)(self.module, gradients), gradients)
        self.of_outputs = gradients
        if not self.tracked:
            self._tell((None,) * len(self.arguments))
        return tuple([gradients[place] for place in places])

    def _inputs(self, known: Gradients) -> Gradients:
        """Gradients of the inputs are known: hooks may replace them."""
        zeros = [zeros_like(a) if isinstance(a, Tensor) else None for a in self.arguments]
        gradients = self._tell(_put(zeros, self.tracked, known))
        return tuple([gradients[place] for place in self.tracked])

    def _tell(self, gradients: Gradients) -> Gradients:
        for hook in self.hooks:
            given = called(hook)(self.module, gradients, self.of_outputs)
            gradients = _replaced(given, gradients)
        return gradients


def _tracked(values: Sequence[Any]) -> list[int]:
    """The places of tensors that gradients flow through."""
    if not modes.gradients:
        return []
    return [n for n, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]


def _put(others: list[Tensor | None], places: Sequence[int], known: Gradients) -> Gradients:
    for place, gradient in zip(places, known):
        others[place] = gradient
    return tuple(others)


def _replaced(given: Any, gradients: Gradients) -> Gradients:
    if given is None:
        return gradients
    return given if isinstance(given, tuple) else (given,)


class _Gate(Function):
    """The identity; its backward hands gradients to a method of a `BackwardPass`."""

    @staticmethod
    def forward(
        ctx: Any, watch: Callable[[Gradients], Gradients], zeros: bool, *tensors: Tensor
    ) -> Any:
        ctx.watch = watch
        ctx.set_materialize_grads(zeros)
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None, None, *ctx.watch(gradients))


def _through(
    watch: Callable[[Gradients], Gradients], values: tuple[Any, ...], places: list[int], zeros: bool
) -> tuple[Any, ...]:
    """The values, those at some places passed through a gate; zeros for gradients that are none."""
    if not places:
        return values
    passed = _Gate.apply(watch, zeros, *(values[n] for n in places))
    found = dict(zip(places, passed if isinstance(passed, tuple) else (passed,)))
    return tuple(found.get(n, value) for n, value in enumerate(values))
