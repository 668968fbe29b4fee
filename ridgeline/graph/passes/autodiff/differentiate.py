"""Differentiation of graphs, in both directions, by the rules of the op table.

Nodes go in and nodes come out, so derivatives fuse and can be differentiated again. Nothing here
recurses: a chain of 100,000 ops is an ordinary input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ridgeline.errors import GradientError
from ridgeline.graph.node import PROJ, Node, leaf, topological
from ridgeline.graph.origins import describe, inherit
from ridgeline.graph.passes.autodiff.rematerialize import cheapest_to_keep
from ridgeline.ops.elementwise import STOP_GRADIENT, full_like
from ridgeline.ops.tracking import CUSTOM, VARIABLE

Watcher = Callable[[Node, Node], Node]


def ends(node: Node) -> bool:
    """True where derivatives go no further down."""
    return node.op is STOP_GRADIENT or node.op is VARIABLE


def flowing(outputs: Iterable[Node]) -> list[Node]:
    """Every node that cotangents of `outputs` may reach, inputs before users.

    What is cut off, and what only decides (conditions, indices), is not among them.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[Node | None] = [*outputs]
    stack.reverse()
    while stack:
        current = stack.pop()
        if current is None:  # the inputs of the node below this mark are done
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif current not in seen:
            seen.add(current)
            if not current.inputs or ends(current):
                order.append(current)
                continue
            stack.append(current)
            stack.append(None)
            for source in reversed(current.inputs):
                # of several outputs, the one that is read decides
                read = current if current.op is PROJ else source
                if source not in seen and read.types[0].dtype.is_differentiable:
                    stack.append(source)
    return order


def leading_to(order: Iterable[Node], targets: Iterable[Node]) -> set[Node]:
    """The nodes of `order` through which derivatives by `targets` flow."""
    found = set(targets)
    for node in order:
        if node not in found and not ends(node):
            for source in node.inputs:
                # of several outputs, the one that is read decides
                read = node if node.op is PROJ else source
                if source in found and read.types[0].dtype.is_differentiable:
                    found.add(node)
                    break
    return found


def reverse(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Sequence[Node],
    watch: Mapping[Node, Watcher] | None = None,
    order: Sequence[Node] | None = None,
    active: set[Node] | None = None,
) -> list[Node | None]:
    """The cotangents of `targets`; None where no output depends on a target, and zeros where one
    does but its derivative is zero everywhere.

    `watch` maps nodes to functions that see a node's finished cotangent and may replace it;
    `order` and `active` spare a walk where they are known.
    """
    if order is None:
        order = topological(outputs)
    if active is None:
        active = leading_to(order, targets)
    wanted = set(targets)
    totals: dict[Node, list[Node | None]] = {}
    reached: set[Node] = set()
    for output, cotangent in zip(outputs, cotangents):
        if output in active:
            reached.add(output)
            _accumulate(totals, output, 0, cotangent)
    result: dict[Node, Node | None] = {}
    for current in reversed(order):
        if current not in reached:
            continue
        if not ends(current):
            reached.update(i for i in current.inputs if i in active)
        found = totals.pop(current, None)
        if found is None:
            if current in wanted:
                result[current] = full_like(current, 0)
            continue
        if watch is not None and current in watch and found[0] is not None:
            found[0] = watch[current](current, found[0])
        if current in wanted:
            result[current] = found[0]
        _pass_down(current, found, active, totals)
    return [result.get(target) for target in targets]


def _pass_down(
    current: Node,
    found: Sequence[Node | None],
    active: set[Node],
    totals: dict[Node, list[Node | None]],
) -> None:
    """Run one node's rule and add what it gives to the totals of its inputs."""
    if not current.inputs or ends(current) or not any(i in active for i in current.inputs):
        return
    if current.op is PROJ:
        if found[0] is not None:
            _accumulate(totals, current.inputs[0], current.attrs.output, found[0])
        return
    if current.op.vjp is None or any(current.inputs[i] in active for i in current.op.fixed):
        raise not_differentiable(current)
    for source, part in zip(current.inputs, current.op.vjp(current, found)):
        if part is not None and source in active:
            inherit(part, current.origins)
            _accumulate(totals, source, 0, part)


def _accumulate(totals: dict[Node, list[Node | None]], node: Node, output: int, part: Node) -> None:
    slots = totals.get(node)
    if slots is None:
        slots = totals[node] = [None] * len(node.types)
    before = slots[output]
    if before is None:
        slots[output] = part
    else:
        slots[output] = total = before + part
        inherit(total, node.origins)


def not_differentiable(node: Node) -> GradientError:
    """The error for an op without a gradient rule."""
    place = describe(node)
    which = "".join(f" by operand {i + 1}" for i in node.op.fixed)
    return GradientError(
        f"{node.op.name} has no gradient{which}",
        note=f"it was made at {place}" if place else "",
        help=node.op.hint
        or "detach() the tensor before this op if no gradient is meant to flow through it",
    )


def forward(
    outputs: Sequence[Node], sources: Sequence[Node], tangents: Sequence[Node]
) -> list[Node | None]:
    """The tangents of `outputs` when `sources` move along `tangents`; None stands for zero."""
    order = topological(outputs)
    active = leading_to(order, sources)
    known: dict[Node, Sequence[Node | None]] = {}
    for source, tangent in zip(sources, tangents):
        before = known.get(source)
        known[source] = [tangent if before is None or before[0] is None else before[0] + tangent]
    for current in order:
        if current not in active or current in known:
            continue
        if current.op is PROJ:
            parts = known.get(current.inputs[0])
            known[current] = [None if parts is None else parts[current.attrs.output]]
            continue
        moving = [known[i][0] if i in known else None for i in current.inputs]
        if current.op.jvp is None or any(moving[i] is not None for i in current.op.fixed):
            raise not_differentiable(current)
        known[current] = list(current.op.jvp(current, moving))
        for part in known[current]:
            if part is not None:
                inherit(part, current.origins)
    return [known[output][0] if output in known else None for output in outputs]


def ones_like(node: Node) -> Node:
    """The cotangent that a scalar starts from."""
    return full_like(node, 1)


def saved_for_backward(roots: Sequence[Node], is_known: Callable[[Node], bool]) -> list[Node]:
    """The nodes below `roots` whose values a backward pass will read.

    Every rule is run once with a placeholder for the cotangent, to see which forward nodes it
    refers to. Elementwise work may be repeated inside the kernels of the backward pass instead of
    being kept; a minimum cut decides.
    """
    # below a value that exists already, an earlier flush kept what is needed
    order = topological(roots, lambda n: n.buffer is not None)
    below = set(order)
    needed: dict[Node, None] = {}
    seen: set[Node] = set()  # shared by all rules, or a long chain would be walked again and again
    for current in order:
        differentiable = any(t.dtype.is_differentiable for t in current.types)
        if not current.inputs or not differentiable or current.op is PROJ or ends(current):
            continue
        if current.op.vjp is None or current.buffer is not None:
            continue
        stack = _gradient_of(current)
        while stack:
            node = stack.pop()
            if node in seen or node in needed:
                continue
            seen.add(node)
            another = node.op is PROJ and node.inputs[0] in below  # an output that no root reads
            if node in below or another:
                needed[node] = None
            else:
                stack += node.inputs
    kept = cheapest_to_keep(list(needed), is_known, _is_fixed)
    return [node for node in kept if not is_known(node) and len(node.types) == 1]


_REPEATED = ("pointwise", "movement")


def _is_fixed(node: Node) -> bool:
    """True for what is not computed again in the backward pass."""
    return node.op is PROJ or node.op.family not in _REPEATED


def _gradient_of(current: Node) -> list[Node]:
    """What one node's rule gives for a placeholder; a user's own rule is not run for this."""
    if current.op is CUSTOM:
        return list(current.attrs.rule.reads())
    placeholder: list[Node | None] = [
        leaf(t) if t.dtype.is_differentiable else None for t in current.types
    ]
    assert current.op.vjp is not None
    return [part for part in current.op.vjp(current, placeholder) if part is not None]
