"""The autograd methods of tensors: variables, gradients, hooks, backward()."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from ridgeline.errors import BadTypeError, GradientError
from ridgeline.graph.node import Node
from ridgeline.record.cells import CUT, GRAPH, LEAF, PLAIN, Track, rare, unfolded
from ridgeline.record.modes import modes
from ridgeline.record.mutation import bump
from ridgeline.record.recorder import exchange, lose, settle
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import Handle, nodes_of, read
from ridgeline.tensors.handle import Described
from ridgeline.weak import WeakSet

if TYPE_CHECKING:
    from ridgeline.tensors.tensor import Tensor


class HookHandle:
    """Takes a hook away again."""

    _numbers = count(1)
    added = 0  # the number of the last one

    def __init__(self, table: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._table, self._number = table, next(self._numbers)
        HookHandle.added = self._number
        lose("a hook was registered")
        bump()
        table[self._number] = hook

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        bump()
        self._table.pop(self._number, None)


class Extra:
    """What only some tensors have: a gradient, hooks, a retained gradient."""

    __slots__ = ("after", "grad", "hooks", "retains", "shared")
    grad: Tensor | None
    hooks: dict[int, Callable[[Tensor], Tensor | None]]
    after: dict[int, Callable[[Tensor], None]]  # called once .grad is there
    retains: bool
    shared: Joins | None  # how ranks join gradients when a pass has ended

    def __init__(self) -> None:
        self.grad, self.retains, self.shared = None, False, None
        self.hooks, self.after = {}, {}


class Joins(Protocol):
    """What joins the gradients of some variables."""

    def join(self) -> bool:
        """Do so, if it is due; True where that takes all ranks, now."""


class Watch:
    """A hook on a tensor inside a graph, and the handle, without which it stays.

    It is one on the value that the tensor had: what is written to it later has hooks of its own.
    """

    __slots__ = ("hooks", "owner")

    def __init__(self, owner: Tensor) -> None:
        self.owner = weakref.ref(owner)
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] = {}


# Nodes whose `watches` backward() has to look at, and tensors inside graphs that keep a gradient.
observed: WeakSet[Node] = WeakSet()
retaining: WeakSet[Tensor] = WeakSet()


class Differentiable(Described):
    """Base of Tensor: what concerns gradients."""

    __slots__ = ()

    _extra: Extra | None

    @property
    def _tensor(self) -> Tensor:
        """This handle: every one that is made is a tensor."""
        return cast("Tensor", self)

    @property
    def requires_grad(self) -> bool:
        """True where gradients flow to or through this tensor."""
        return self._resolved()[1].mode >= GRAPH

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """True unless the tensor is the result of a tracked operation."""
        track = self._resolved()[1]
        if track.mode != LEAF:
            return track.mode != GRAPH
        return len(self._steps) == len(rare(track).steps)

    @property
    def grad_fn(self) -> Any:
        """The op whose gradient rule leads on, or None for leaves."""
        return None if self.is_leaf else unfolded(read(self)).op

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make this tensor a variable, or stop it from being one."""
        if not self._cell.computed:
            exchange(self._cell)
        return self._require_grad(requires_grad)

    def _require_grad(self, requires_grad: bool = True) -> Self:
        if not isinstance(requires_grad, bool):
            raise BadTypeError(f"requires_grad is True or False, not {requires_grad!r:.40}")
        settle(self._cell)
        track = self._resolved()[1]
        if not requires_grad:
            if track.mode == GRAPH:
                raise GradientError(
                    "only a leaf tensor can stop requiring gradients",
                    help="use detach() to get a tensor without a gradient",
                )
            track.mode = CUT if track.mode == LEAF else track.mode
            return self
        if not self.dtype.is_differentiable:
            raise GradientError(
                f"only floating tensors can require gradients, this one is {self.dtype.name}",
                help="convert it first, such as with .float()",
            )
        if track.mode >= GRAPH:
            return self
        if self._steps:  # the view alone is a variable, not the memory under it
            capture = modes.capture
            if capture is not None and self._track.capture is None:
                capture.cut(self)
            self._track = track = Track(PLAIN, capture)
        track.mode = LEAF
        details = rare(track)
        details.owner, details.key, details.steps = weakref.ref(self), None, self._steps
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward() left, or None."""
        if modes.capture is not None:
            traced: Tensor | None = modes.capture.read_grad(self._tensor)
            return traced
        return self._extra.grad if self._extra is not None else None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Handle):
                raise BadTypeError(f"a gradient is a tensor or None, not {type(value).__name__}")
            if value.shape != self.shape or value.dtype is not self.dtype:
                raise GradientError(
                    f"the gradient of {self._type} cannot be {value._type}",
                    help="shapes and element types must be equal",
                )
        if modes.capture is not None:
            modes.capture.write_grad(self._tensor, value)
        elif value is not None or self._extra is not None:
            self._details().grad = value

    def _details(self) -> Extra:
        if self._extra is None:
            self._extra = Extra()
        return self._extra

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf."""
        if not self.requires_grad:
            raise GradientError("retain_grad() needs a tensor that requires gradients")
        if not self.is_leaf:
            self._details().retains = True
            lose("a gradient is retained")
            retaining.add(self._tensor)

    @property
    def retains_grad(self) -> bool:
        """True where backward() keeps the gradient of a tensor that is not a leaf."""
        return self._extra is not None and self._extra.retains

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call `hook(gradient)` in every backward pass; what it returns replaces the gradient."""
        if not self.requires_grad:
            raise GradientError("a hook needs a tensor that requires gradients")
        return HookHandle(self._details().hooks if self.is_leaf else observe(self), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call `hook(tensor)` whenever a backward pass has added to the `.grad` of this leaf."""
        if not (self.is_leaf and self.requires_grad):
            raise GradientError("this hook needs a leaf that requires gradients")
        return HookHandle(self._details().after, hook)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this tensor to the `.grad` of the leaves it depends on."""
        upcalls.backward(self._tensor, gradient, retain_graph, create_graph, inputs=inputs)


def observe(source: Differentiable) -> dict[int, Callable[[Tensor], Tensor | None]]:
    """A table for hooks that backward() calls with the gradient of a tensor inside the graph."""
    lose("a hook watches a tensor inside a graph")
    watch = Watch(source._tensor)
    unfolded(source._cell.node)  # its own node, and not the leaf that stands before it
    for node in nodes_of(source):
        if node not in observed:
            observed.add(node)
            node.watches = []
        node.watches.append(watch)
    return watch.hooks
