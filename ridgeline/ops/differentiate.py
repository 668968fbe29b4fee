"""Differentiation of graphs, forward and reverse, by the rules of the op table.

Nodes go in and nodes come out, so derivatives fuse and can be differentiated again. Nothing here
recurses: a chain of 100,000 ops is an ordinary input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from ridgeline.errors import GradientError
from ridgeline.graph.node import PROJ, Node, topological
from ridgeline.graph.origins import describe, inherit
from ridgeline.ops.elementwise import STOP_GRADIENT, full_like
from ridgeline.ops.tracking import CUSTOM, VARIABLE

Watcher = Callable[[Node, Node], Node]


def ends(node: Node) -> bool:
    """True if derivatives go no further down."""
    return node.op is STOP_GRADIENT or node.op is VARIABLE


def flowing(outputs: Iterable[Node]) -> list[Node]:
    """Every node that cotangents of `outputs` may reach, in topological order.

    What is detached, and what only decides (conditions, indices), is not included.
    """
    # as `topological(outputs, ends, _flows)`, without calls: every backward pass begins with it
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
            op, inputs = current.op, current.inputs
            if not inputs or op is STOP_GRADIENT or op is VARIABLE:
                order.append(current)
                continue
            stack += (current, None)
            if op is PROJ:
                stack.append(inputs[0])
                continue
            for source in reversed(inputs if op is not CUSTOM else sources(current)):
                if source not in seen and source.types[0].dtype.is_differentiable:
                    stack.append(source)
    return order


def sources(node: Node) -> tuple[Node, ...]:
    """The inputs by which a node has derivatives: how values with a rule were made is no way."""
    return node.inputs if node.op is not CUSTOM else node.inputs[node.attrs.first :]


def _flows(node: Node, source: Node) -> bool:
    """True where cotangents go from a node to its input: of several outputs, that which is read."""
    if node.op is CUSTOM and source not in sources(node):
        return False
    return (node if node.op is PROJ else source).types[0].dtype.is_differentiable


def leading_to(order: Iterable[Node], targets: Iterable[Node]) -> set[Node]:
    """The nodes of `order` through which derivatives by `targets` flow."""
    found = set(targets)
    for node in order:
        if node not in found and not ends(node):
            for source in node.inputs:
                if source in found and _flows(node, source):
                    found.add(node)
                    break
    return found


def passed_by(order: Iterable[Node], active: Set[Node]) -> set[Node]:
    """The nodes whose rules a pass runs: it stops at a target that leads to no other."""
    return {n for n in order if not ends(n) and any(source in active for source in sources(n))}


def reach(order: Iterable[Node], targets: Mapping[Node, int]) -> dict[Node, int]:
    """The nodes of a `flowing` order that lead to targets, each with the bits of these targets."""
    found = dict(targets)
    bits_of = found.get
    for node in order:
        op = node.op
        if node.inputs and op is not STOP_GRADIENT and op is not VARIABLE:
            bits = bits_of(node, 0)
            for source in node.inputs if op is not CUSTOM else sources(node):
                bits |= bits_of(source, 0)
            if bits:
                found[node] = bits
    return found


def reverse(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Sequence[Node],
    watch: Mapping[Node, Watcher] | None = None,
    order: Sequence[Node] | None = None,
    active: Set[Node] | None = None,
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
            reached.update(i for i in sources(current) if i in active)
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
    active: Set[Node],
    totals: dict[Node, list[Node | None]],
) -> None:
    """Run one node's rule and add its results to the totals of its inputs."""
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
    line = describe(node)
    which = "".join(f" by operand {i + 1}" for i in node.op.fixed)
    return GradientError(
        f"{node.op.name} has no gradient{which}",
        note=f"it was made at {line}" if line else "",
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
