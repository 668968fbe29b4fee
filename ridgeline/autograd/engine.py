"""backward() and grad(): gradients of recorded work, accumulated in leaves or returned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

from ridgeline.atomic import Switch, apply
from ridgeline.autograd.joints import (
    Gradients,
    WayBack,
    are_watched,
    computed,
    joints_in,
    joints_let_go,
    opened,
    pass_back,
)
from ridgeline.autograd.letting_go import (
    Variables,
    check_history,
    check_root,
    let_go,
    owners_in,
    variables_of,
)
from ridgeline.devices import is_mesh
from ridgeline.errors import GradientError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe, here, stamp
from ridgeline.graph.passes.autodiff.backward_pass import awaited, gradients
from ridgeline.ops.collectives import holds_collectives
from ridgeline.ops.differentiate import (
    Watcher,
    flowing,
    leading_to,
    ones_like,
    passed_by,
    reach,
    reverse,
)
from ridgeline.ops.elementwise import add as add_nodes, full_like
from ridgeline.ops.movement import stretch
from ridgeline.ops.placed import MICROBATCH, Replicate, placed, placed_as_state
from ridgeline.ops.tracking import must_run
from ridgeline.record import mutation, recorder
from ridgeline.record.cells import CUT, GRAPH, LEAF, Unsupported
from ridgeline.record.memory import reads_shared
from ridgeline.record.modes import (
    called,
    modes,
    no_grad,
)
from ridgeline.record.turns import claimed, in_turn
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import nodes_of, owned, read, write
from ridgeline.tensors.differentiable import (
    Extra,
    HookHandle as HookHandle,  # pickles name it as a member of this module
    Watch,
    observed,
    retaining,
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
        return _marked(ones_like(value))
    if not isinstance(gradient, Tensor):
        raise GradientError(f"a gradient is a tensor, not {type(gradient).__name__}")
    if gradient.shape != root.shape:
        raise GradientError(
            f"the gradient has shape {list(gradient.shape)}, the tensor {list(root.shape)}"
        )
    return _marked(read(gradient.to(root.dtype)))


def _marked(cotangent: Node) -> Node:
    """On a mesh, who shares work out over stages wants to know where a backward pass begins."""
    if not is_mesh(cotangent.types[0].device):
        return cotangent
    return placed(cotangent, ((MICROBATCH, Replicate()),))


def _check_root(root: Tensor, wanted: Sequence[Tensor] | None) -> None:
    recorder.starts_from(root)
    if not root.dtype.is_differentiable:
        raise GradientError(
            f"{root.dtype.name} tensors have no gradients", help="use a floating tensor"
        )
    if not root.requires_grad:
        line = describe(read(root))
        raise GradientError(
            "this tensor does not depend on anything that requires gradients",
            note=f"it was made at {line}" if line else "",
            help="set requires_grad=True on the leaves; look for no_grad or detach() on the way",
        )
    check_root(root, wanted)


def _watchers(order: Sequence[Node], mode: int) -> dict[Node, Watcher]:
    """Hooks and retained gradients of tensors inside the graph, by node."""
    if not observed and not retaining:
        return {}
    inside, kept = set(order), dict[Node, list[Tensor]]()
    for tensor in retaining:
        if tensor._cell.types is not None:
            continue  # it has no node yet, so none of these is its own
        if tensor._cell.capture is modes.capture and not tensor.is_leaf:
            for node in nodes_of(tensor):
                if node in inside:
                    kept.setdefault(node, []).append(tensor)
    return {
        node: _watcher(list(node.watches) if node in observed else [], kept.get(node, []), mode)
        for node in order
        if node in observed or node in kept
    }


def _watcher(watches: Sequence[Watch], kept_by: Sequence[Tensor], mode: int) -> Watcher:
    def see(node: Node, cotangent: Node) -> Node:
        for watch in watches:
            cotangent = _hooked(watch, cotangent, mode)
        for tensor in kept_by:
            _add_gradient(tensor, cotangent, mode == GRAPH)
        return cotangent

    return see


def _hooked(hooked: Watch | Extra | None, cotangent: Node, mode: int) -> Node:
    """A gradient after the hooks of a tensor."""
    for hook in list(hooked.hooks.values()) if hooked is not None else ():
        recorder.lose("a hook is called")
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


@recorder.taped
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
    if joints := joints_in(order):
        retain = create_graph if retain_graph is None else retain_graph
        plain = wanted is None and not create_graph and modes.anomaly is None
        if plain and _over_joints(roots, outputs, cotangents, order, joints, retain):
            return
        order = opened(outputs)
    check_history(order, wanted)
    if modes.capture is not None:
        modes.capture.check_backward(order)
    owners = _leaves(order, wanted)
    variables = variables_of(order, owners)
    active: Set[Node] = variables.reach.keys()
    if modes.capture is not None:
        mutation.watch(_Hooks(owners.values()))
        totals = _accumulate(order, active, outputs, cotangents, owners, create_graph)
    else:
        turns = claimed([owner._cell for owner in owners.values()])
        what = partial(_accumulate, order, active, outputs, cotangents, owners, create_graph)
        totals = in_turn(turns, partial(_whole, what, owners.values()))
    _look([owner.grad for owner, _ in totals if owner.grad is not None], "backward")
    _compute_if_due(order, outputs)
    if not (create_graph if retain_graph is None else retain_graph):
        if wanted is not None:  # others may be behind what these are reached through
            active, variables = passed_by(order, active), variables_of(order)
        let_go(roots, active, variables)


upcalls.backward = backward


def _over_joints(
    roots: Sequence[Tensor],
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    order: Sequence[Node],
    joints: Sequence[Node],
    retain: bool,
) -> bool:
    """Go backward through nodes and then through segments; False, and nothing is changed, where
    gradients are watched or a segment has no program for it.
    """
    way, owners = WayBack(joints), owners_in(order)
    variables = {**way.variables, **{id(owner): owner for owner in owners.values()}}
    if way.is_retained() or are_watched(variables.values()):
        return False
    if _watchers([*order, *way.nodes], CUT):
        return False
    if any(map(must_run, order)):
        return False
    check_history(order, None)
    targets = [*owners, *joints]
    active = leading_to(order, targets)

    def go() -> bool:
        parts = _parts(order, active, outputs, cotangents, targets, made_now=len(order) < 2)
        found, behind = Gradients(), dict(zip(joints, parts[len(owners) :]))
        totals = _summed(owners, parts)
        try:
            nodes = [found.added(owner, part) for owner, part in totals]
            given = [part for part in behind.values() if part is not None]
            buffers = iter(computed([*nodes, *given]))
            for owner, _ in totals:
                found.keep(owner, next(buffers))
            reached = [joint for joint, part in behind.items() if part is not None]
            lost = pass_back(dict(zip(reached, buffers)), found)
            changes = [*found.changes(), *([] if retain else joints_let_go(lost))]
        except Unsupported:
            return False
        apply(starmap(setattr, changes))
        return True

    if not in_turn(claimed([owner._cell for owner in variables.values()]), go):
        return False
    if not retain:
        let_go(roots, active, Variables([], reach(order, dict.fromkeys(targets, 1))), known=False)
    return True


def _parts(
    order: Sequence[Node],
    active: Set[Node],
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Sequence[Node],
    watchers: Mapping[Node, Watcher] | None = None,
    made_now: bool = False,
) -> list[Node | None]:
    """The gradients of targets; None where there is none."""
    ready = None if made_now else awaited(order, outputs, targets, active)
    if ready is None:
        return reverse(outputs, cotangents, targets, watchers, order, active)
    known = gradients(outputs, cotangents, ready)
    return [known.get(target) for target in targets]


def _summed(
    owners: Mapping[Node, Tensor], parts: Sequence[Node | None]
) -> Collection[tuple[Tensor, Node]]:
    """The gradient of each variable, which may be several nodes of a graph."""
    totals: dict[int, tuple[Tensor, Node]] = {}
    for owner, part in zip(owners.values(), parts):
        if part is not None:
            before = totals.get(id(owner))
            totals[id(owner)] = (owner, part if before is None else add_nodes(before[1], part))
    return totals.values()


def _compute_if_due(order: Sequence[Node], outputs: Sequence[Node]) -> None:
    """Compute gradients now where ranks are all here, or foreign memory may change later."""
    if modes.capture is None and (reads_shared(order) or holds_collectives(order)):
        recorder.flush()
        if any(is_mesh(output.types[0].device) for output in outputs):
            recorder.flush_mesh()


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
    active: Set[Node],
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    owners: Mapping[Node, Tensor],
    create_graph: bool,
) -> Collection[tuple[Tensor, Node]]:
    """Add gradients to the `.grad` of their owners, with their hooks; these with gradients."""
    mode = GRAPH if create_graph else CUT
    watchers = _watchers(order, mode)
    made_now = (
        create_graph or bool(watchers) or modes.capture is not None or modes.anomaly is not None
    )
    parts = _parts(order, active, outputs, cotangents, list(owners), watchers, made_now)
    totals = _summed(owners, parts)
    hooked = _have_hooks([owner for owner, _ in totals])
    together = modes.eager and not hooked
    added = [*totals]
    if hooked:  # what was used last is told of its gradient first, as in torch
        added.reverse()
    with Switch(modes, eager=False) if together else nullcontext():
        for owner, total in added:
            final = _hooked(owner._extra, total, mode) if owner.is_leaf else total
            _add_gradient(owner, final, create_graph)
            _after(owner)
    if together:  # one by one they would compute anew what they share
        grads = [owner.grad for owner, _ in totals]
        recorder.realize([grad._cell for grad in grads if grad is not None])
    _join([owner for owner, _ in totals])
    return totals


def _join(owners: Iterable[Tensor]) -> None:
    """Join gradients of variables that ranks share."""
    extras = [owner._extra for owner in owners if owner._extra is not None]
    for shared in dict.fromkeys(extra.shared for extra in extras if extra.shared is not None):
        recorder.lose("ranks join gradients")
        shared.join()


def _have_hooks(tensors: Iterable[Tensor]) -> bool:
    extras = [tensor._extra for tensor in tensors if tensor._extra is not None]
    return any(extra.hooks or extra.after for extra in extras)


def _after(owner: Tensor) -> None:
    """Call the hooks of a variable whose gradient was added."""
    for hook in list(owner._extra.after.values()) if owner._extra is not None else ():
        recorder.lose("a hook is called")
        if called(hook)(owner) is not None:
            raise GradientError("a hook that is called after a gradient was added returns None")


def _leaves(order: Sequence[Node], inputs: Sequence[Tensor] | None) -> dict[Node, Tensor]:
    """The nodes whose gradients are accumulated, and the tensors that receive them."""
    if inputs is not None and not all(t.is_leaf for t in inputs):
        return {node: t for t in inputs for node in nodes_of(t)}
    owners = owners_in(order)
    if inputs is None:
        return owners
    wanted = {id(t) for t in inputs}
    return {node: owner for node, owner in owners.items() if id(owner) in wanted}


def _add_gradient(owner: Tensor, gradient: Node, create_graph: bool) -> None:
    """Accumulate into `.grad`: in place where there is one, as torch does."""
    before = owner.grad
    recorder.accumulating(owner, before)
    if is_mesh(gradient.types[0].device):
        gradient = placed_as_state(gradient, read(owner), gradient=True)
    if before is None:
        owner.grad = wrap(gradient, GRAPH) if create_graph else wrap(owned(gradient), CUT)
    elif create_graph:
        owner.grad = wrap(add_nodes(read(before), gradient), GRAPH)
    else:
        with no_grad():
            write(before, add_nodes(read(before), gradient), CUT, "accumulating a gradient")


@recorder.taped
def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` by `inputs`, without touching `.grad`.

    `only_inputs` is an argument that torch keeps for old programs; it changes nothing.
    """
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
    order = opened(nodes)
    check_history(order, wanted)
    mode = GRAPH if create_graph else CUT
    keys = [_keys_of(tensor, order) for tensor in wanted]
    flat = [key for group in keys for key in group]
    active = leading_to(order, flat)
    if modes.capture is not None:
        mutation.watch(_Hooks(wanted))
    parts = iter(reverse(nodes, cotangents, flat, _watchers(order, mode), order, active))
    results: list[Tensor | None] = []
    together = modes.eager and not _have_hooks(wanted)
    with Switch(modes, eager=False) if together else nullcontext():
        for tensor, group in zip(wanted, keys):
            found = [part for _ in group if (part := next(parts)) is not None]
            results.append(_joined(tensor, found, mode, bool(allow_unused), materialize_grads))
    if together:  # one by one they would compute anew what they share
        recorder.realize([result._cell for result in results if result is not None])
    _look([result for result in results if result is not None], "backward")
    _compute_if_due(order, nodes)
    if not (create_graph if retain_graph is None else retain_graph):
        let_go(roots, passed_by(order, active), variables_of(order))
    return tuple(results)


def _keys_of(tensor: Tensor, order: Sequence[Node]) -> list[Node]:
    """The nodes that stand for a tensor: one, or several if it was written to in between."""
    own = nodes_of(tensor)
    if tensor._resolved()[1].mode != LEAF or not tensor.is_leaf:
        return own
    keys = [node for node in order if node.owner is not None and node.owner() is tensor]
    return keys or own


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
