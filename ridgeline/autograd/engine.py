"""backward() and grad(): gradients of recorded work, added up in leaves or returned."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeVar

from ridgeline.atomic import apply
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe, here, stamp
from ridgeline.graph.passes.autodiff.backward_pass import awaited, gradients
from ridgeline.graph.passes.autodiff.saved_values import lets_go
from ridgeline.ops.differentiate import (
    Watcher,
    flowing,
    leading_to,
    ones_like,
    reverse,
)
from ridgeline.ops.elementwise import add as add_nodes, full_like
from ridgeline.ops.movement import stretch
from ridgeline.record import mutation, recorder
from ridgeline.record.cells import CUT, GRAPH, LEAF, Behind, LetGo, rare
from ridgeline.record.modes import (
    called,
    modes,
    no_grad,
)
from ridgeline.record.turns import claimed, in_turn
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import owned, read, write
from ridgeline.tensors.differentiable import (
    Extra,
    HookHandle as HookHandle,  # pickles name it as a member of this module
    Watch,
    observed,
)
from ridgeline.tensors.snapshot import Snapshot
from ridgeline.tensors.tensor import Tensor, wrap

T = TypeVar("T")


class _Hooks:
    """The hooks of variables that a traced backward pass goes to, for its capture to watch."""

    def __init__(self, variables: Iterable[Tensor]) -> None:
        self._variables = list(variables)

    def _guard_state(self, attributes: dict[str, Any]) -> dict[str, Any]:
        extras = [variable._extra for variable in self._variables]
        tables = [[] if e is None else [*e.hooks.values(), *e.after.values()] for e in extras]
        return {"hooks of variables": tables}


def _many(value: Any) -> list[Any]:
    return [value] if value is None or isinstance(value, Tensor) else list(value)


def _start(root: Tensor, gradient: Tensor | None) -> Node:
    """The cotangent of a root, checked."""
    value = read(root)
    if gradient is None:
        if root.numel() != 1:
            raise GradientError(
                f"backward() of a tensor with {root.numel()} elements needs a gradient to start "
                f"from; this one is {root._type}",
                help="reduce it first, such as with .sum() or .mean(), or pass gradient=",
            )
        return ones_like(value)
    if not isinstance(gradient, Tensor):
        raise GradientError(f"a gradient is a tensor, not {type(gradient).__name__}")
    if gradient.shape != root.shape:
        raise GradientError(
            f"the gradient has shape {list(gradient.shape)}, the tensor {list(root.shape)}"
        )
    return read(gradient.to(root.dtype))


def _check_root(root: Tensor, wanted: Sequence[Tensor] | None) -> None:
    if not root.dtype.is_differentiable:
        raise GradientError(
            f"{root.dtype.name} tensors have no gradients", help="use a floating tensor"
        )
    if not root.requires_grad:
        place = describe(read(root))
        raise GradientError(
            "this tensor does not depend on anything that requires gradients",
            note=f"it was made at {place}" if place else "",
            help="set requires_grad=True on the leaves; look for no_grad or detach() on the way",
        )
    track = root._resolved()[1]
    if track.rare is not None and track.rare.spent and _is_behind(wanted, track.rare.behind):
        raise GradientError(
            "backward() ran through this tensor before, and its graph was let go",
            help="pass retain_graph=True to the first call, or compute the tensor again",
        )


def _spend(roots: Sequence[Tensor], passed: Set[Node], variables: Iterable[Tensor]) -> None:
    """A pass to some variables went through nodes of the graph above these roots: let it go."""
    free: set[Node] = set()
    behind = tuple(weakref.ref(variable) for variable in variables)
    for root in roots:
        track = root._resolved()[1]
        if track.mode == GRAPH and lets_go(read(root), passed, free):
            details = rare(track)
            details.spent, details.behind = True, behind
    for node in passed if observed else ():
        if node in observed:  # the same expression recorded again has nothing to do with old hooks
            node.watches = [watch for watch in node.watches if watch.owner() is not None]
    if modes.capture is None:
        recorder.spend(passed, lambda node: lets_go(node, passed, free), behind)


def _variables(order: Sequence[Node]) -> list[Tensor]:
    """The variables that a graph leads to."""
    owners = [node.owner() for node in order if node.owner is not None]
    return [owner for owner in owners if owner is not None]


def _is_behind(wanted: Sequence[Tensor] | None, behind: Behind) -> bool:
    """True where a way to one of the wanted variables, or to any, was let go."""
    if wanted is None or behind is None or not all(tensor.is_leaf for tensor in wanted):
        return True
    known = [variable() for variable in behind]
    return any(tensor is variable for tensor in wanted for variable in known)


def _check_history(order: Sequence[Node], wanted: Sequence[Tensor] | None) -> None:
    """Raise where the way to a wanted variable leads through a tensor whose graph was let go."""
    for node in order:
        if isinstance(node.attrs, LetGo) and _is_behind(wanted, node.attrs.behind):
            place = describe(node)
            raise GradientError(
                "the graph behind one of the tensors was let go by an earlier backward()",
                note=f"the tensor is {node.types[0]}" + (f", made at {place}" if place else ""),
                help="pass retain_graph=True to the earlier call, or compute the tensor again",
            )


def _watchers(order: Sequence[Node], mode: int) -> dict[Node, Watcher]:
    """Hooks and retained gradients of tensors inside the graph, by node."""
    found: dict[Node, Watcher] = {}
    if not observed:
        return found
    for node in order:
        if node in observed:
            found[node] = _watcher(list(node.watches), mode)
    return found


def _watcher(watches: Sequence[Watch], mode: int) -> Watcher:
    def see(node: Node, cotangent: Node) -> Node:
        for watch in watches:
            cotangent = _hooked(watch, cotangent, mode)
            owner = watch.owner()
            if owner is not None and owner.retains_grad:
                _add_gradient(owner, cotangent, mode == GRAPH)
        return cotangent

    return see


def _hooked(hooked: Watch | Extra | None, cotangent: Node, mode: int) -> Node:
    """A gradient after the hooks of a tensor."""
    for hook in list(hooked.hooks.values()) if hooked is not None else ():
        replaced = called(hook)(wrap(cotangent, mode))
        if replaced is not None:
            cotangent = read(replaced)
    return cotangent


def _look(tensors: Sequence[Tensor], phase: str) -> None:
    """While anomalies are looked for: compute these tensors now, as part of a pass."""
    if modes.anomaly is None or modes.capture is not None:
        return
    modes.anomaly.phase = phase
    recorder.realize([tensor._resolved()[0] for tensor in tensors])
    modes.anomaly.phase = "forward"


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves they depend on."""
    roots = _many(tensors)
    given = _many(grad_tensors) if grad_tensors is not None else [None] * len(roots)
    wanted = None if inputs is None else _many(inputs)
    for root in roots:
        _check_root(root, wanted)
    mark = here()
    _look(roots, "forward")
    outputs = [read(root) for root in roots]
    cotangents = [_start(root, gradient) for root, gradient in zip(roots, given)]
    for cotangent in cotangents:
        stamp(cotangent, mark)
    order = flowing(outputs)
    _check_history(order, wanted)
    if modes.capture is not None:
        modes.capture.check_backward(order)
    owners = _leaves(order, wanted)
    active = leading_to(order, owners)
    if modes.capture is not None:
        mutation.watch(_Hooks(owners.values()))
        totals = _accumulate(order, active, outputs, cotangents, owners, create_graph)
    else:
        turns = claimed([owner._cell for owner in owners.values()])
        what = partial(_accumulate, order, active, outputs, cotangents, owners, create_graph)
        totals = in_turn(turns, partial(_whole, what, owners.values()))
    _look([owner.grad for owner, _ in totals.values() if owner.grad is not None], "backward")
    if not (create_graph if retain_graph is None else retain_graph):
        _spend(roots, active, owners.values())


upcalls.backward = backward


def _whole(change: Callable[[], T], owners: Iterable[Tensor]) -> T:
    """Add to the gradients of some tensors, or to none if that does not succeed."""
    before = Snapshot()
    for owner in owners:
        before.gradient(owner)
    back = before.back()
    try:
        return change()
    except BaseException:
        apply(back)
        raise


def _accumulate(
    order: Sequence[Node],
    active: set[Node],
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    owners: Mapping[Node, Tensor],
    create_graph: bool,
) -> dict[int, tuple[Tensor, Node]]:
    """Add gradients to the `.grad` of their owners, with their hooks; the gradients by owner."""
    mode = GRAPH if create_graph else CUT
    watchers = _watchers(order, mode)
    made_now = create_graph or watchers or modes.capture is not None or modes.anomaly is not None
    ready = None if made_now else awaited(order, outputs, list(owners), active)
    if ready is None:
        parts = reverse(outputs, cotangents, list(owners), watchers, order, active)
    else:
        found = gradients(outputs, cotangents, ready)
        parts = [found.get(target) for target in owners]
    totals: dict[int, tuple[Tensor, Node]] = {}
    for (key, owner), part in zip(owners.items(), parts):
        if part is not None:
            before = totals.get(id(owner))
            totals[id(owner)] = (owner, part if before is None else add_nodes(before[1], part))
        del key
    for owner, total in totals.values():
        final = _hooked(owner._extra, total, mode) if owner.is_leaf else total
        _add_gradient(owner, final, create_graph)
        for hook in list(owner._extra.after.values()) if owner._extra is not None else ():
            called(hook)(owner)
    return totals


def _leaves(order: Sequence[Node], inputs: Sequence[Tensor] | None) -> dict[Node, Tensor]:
    """The nodes whose gradients are accumulated, and the tensors that receive them."""
    if inputs is not None and not all(t.is_leaf for t in inputs):
        return {read(t): t for t in inputs}
    wanted = None if inputs is None else {id(t) for t in inputs}
    owners: dict[Node, Tensor] = {}
    for node in order:
        if node.owner is not None:
            owner: Tensor | None = node.owner()
            if owner is not None and (wanted is None or id(owner) in wanted):
                owners[node] = owner
    return owners


def _add_gradient(owner: Tensor, gradient: Node, create_graph: bool) -> None:
    """Accumulate into `.grad`: in place where there is one, as torch does."""
    before = owner.grad
    if before is None:
        owner.grad = wrap(gradient, GRAPH) if create_graph else wrap(owned(gradient), CUT)
    elif create_graph:
        owner.grad = wrap(add_nodes(read(before), gradient), GRAPH)
    else:
        with no_grad():
            write(before, add_nodes(read(before), gradient), CUT, "accumulating a gradient")


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` by `inputs`, without touching `.grad`."""
    roots, wanted = _many(outputs), _many(inputs)
    given = _many(grad_outputs) if grad_outputs is not None else [None] * len(roots)
    for root in roots:
        _check_root(root, wanted)
    for tensor in wanted:
        if not tensor.requires_grad:
            raise GradientError(
                "an input does not require gradients", note=f"it is {tensor._type}",
                help="call requires_grad_() on it before the computation",
            )  # fmt: skip
    _look(roots, "forward")
    nodes = [read(root) for root in roots]
    cotangents = [_start(root, gradient) for root, gradient in zip(roots, given)]
    order = flowing(nodes)
    _check_history(order, wanted)
    mode = GRAPH if create_graph else CUT
    keys = [_keys_of(tensor, order) for tensor in wanted]
    flat = [key for group in keys for key in group]
    active = leading_to(order, flat)
    parts = iter(reverse(nodes, cotangents, flat, _watchers(order, mode), order, active))
    results: list[Tensor | None] = []
    for tensor, group in zip(wanted, keys):
        found = [part for _ in group if (part := next(parts)) is not None]
        results.append(_joined(tensor, found, mode, bool(allow_unused), materialize_grads))
    _look([result for result in results if result is not None], "backward")
    if not (create_graph if retain_graph is None else retain_graph):
        _spend(roots, active, _variables(order))
    return tuple(results)


def _keys_of(tensor: Tensor, order: Sequence[Node]) -> list[Node]:
    """The nodes that stand for a tensor: one, or several if a leaf was written to in between."""
    own = read(tensor)
    if tensor._resolved()[1].mode != LEAF or not tensor.is_leaf:
        return [own]
    keys = [node for node in order if node.owner is not None and node.owner() is tensor]
    return keys or [own]


def _joined(
    tensor: Tensor, parts: Sequence[Node], mode: int, allow_unused: bool, materialize: bool
) -> Tensor | None:
    if not parts:
        if materialize:
            return wrap(stretch(full_like(read(tensor), 0), read(tensor).shape), CUT)
        if not allow_unused:
            raise GradientError(
                "an output does not depend on one of the inputs", note=f"it is {tensor._type}",
                help="pass allow_unused=True to get None for it",
            )  # fmt: skip
        return None
    total = parts[0]
    for part in parts[1:]:
        total = add_nodes(total, part)
    if tensor._resolved()[1].mode == LEAF:
        total = _hooked(tensor._extra, total, mode)
    return wrap(total, mode)
