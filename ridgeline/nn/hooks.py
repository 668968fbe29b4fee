"""Hooks of modules: handles to remove them, and the gradients that backward hooks see."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count, repeat
from operator import call
from typing import TYPE_CHECKING, Any
from weakref import ref

from ridgeline.atomic import Block, apply, steps
from ridgeline.autograd.function import Function
from ridgeline.record import mutation
from ridgeline.record.modes import called
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
        self._remove = partial(table.pop, number, None)
        added = {number: hook}
        if first:
            clear = partial(table.clear)
            apply(steps((clear, partial(table.update, added | table)), ()))
        else:
            table.update(added)
        remove = map(dict.pop, repeat(table), repeat(number), _NONES)
        super().__init__(map(call, repeat(ref(self))), zip(mutation.epoch.bumps(), remove))

    def remove(self) -> None:
        """Take the hook out; a second call does nothing. Jitted functions notice."""
        mutation.bump()
        self._remove()


class BackwardPass:
    """One call of a module whose backward hooks wait for the gradients of outputs and inputs."""

    def __init__(self, module: Module) -> None:
        self.module, self.waits_for_inputs = module, False
        self.of_outputs: Gradients = ()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with tensors that need gradients watched."""
        self.waits_for_inputs = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return _through(self.inputs, args) if self.waits_for_inputs else args

    def leave(self, result: Any) -> Any:
        """The result, with its tensors watched."""
        parts = result if isinstance(result, tuple) else (result,)
        watched = _through(self.outputs, parts)
        return watched if isinstance(result, tuple) else watched[0]

    def outputs(self, gradients: Gradients) -> Gradients:
        """Gradients of the outputs are known: pre hooks may replace them."""
        for hook in tuple(self.module._backward_pre_hooks.values()):
            gradients = _replaced(called(hook)(self.module, gradients), gradients)
        self.of_outputs = gradients
        if not self.waits_for_inputs:
            self.inputs((None,))
        return gradients

    def inputs(self, gradients: Gradients) -> Gradients:
        """Gradients of the inputs are known: hooks may replace them."""
        for hook in tuple(self.module._backward_hooks.values()):
            given = called(hook)(self.module, gradients, self.of_outputs)
            gradients = _replaced(given, gradients)
        return gradients


def _replaced(given: Any, gradients: Gradients) -> Gradients:
    if given is None:
        return gradients
    return given if isinstance(given, tuple) else (given,)


class _Gate(Function):
    """The identity; its backward hands gradients to a method of a `BackwardPass`."""

    @staticmethod
    def forward(ctx: Any, watch: Callable[[Gradients], Gradients], *tensors: Tensor) -> Any:
        ctx.watch = watch
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None, *ctx.watch(gradients))


def _through(watch: Callable[[Gradients], Gradients], values: tuple[Any, ...]) -> Any:
    """The values, tensors among them passed through a gate."""
    indices = [n for n, v in enumerate(values) if isinstance(v, Tensor)]
    passed = _Gate.apply(watch, *(values[n] for n in indices))
    found = dict(zip(indices, passed if isinstance(passed, tuple) else (passed,)))
    return tuple(found.get(n, value) for n, value in enumerate(values))
