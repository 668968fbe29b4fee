"""The SPMD partitioner: the graph of one rank's share, by the rule of each op."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ridgeline.errors import PlacementError
from ridgeline.graph.graph import Graph, elements, nbytes
from ridgeline.graph.node import PROJ, Node, Op, TensorType, leaf, proj
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.ops.collectives import COLLECTIVES, GroupName
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.elementwise import CONSTANT, IOTA, ROWS
from ridgeline.ops.experts import (
    EXPERT_COUNTS,
    FROM_EXPERTS,
    GROUPED_OUTER,
    GROUPED_PRODUCT,
    TO_EXPERTS,
)
from ridgeline.ops.gather import GATHER, SCATTER
from ridgeline.ops.local_parts import FROM_PARTS, LOCAL_PART
from ridgeline.ops.movement import BROADCAST, CONCAT, PAD, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.placed import (
    PLACED,
    PLACED_AS_STATE,
    PLACED_LIKE,
    Dispatched,
    OnStage,
    Partial,
    Replicate,
    Shard,
)
from ridgeline.ops.random import RANDOM_BITS
from ridgeline.ops.reduce import ARG_REDUCE, REDUCE
from ridgeline.ops.scan import LINEAR_SCAN, SCAN
from ridgeline.ops.sort import SORT
from ridgeline.sharding.hints import hints
from ridgeline.sharding.mesh_shapes import REPLICATE, MeshShape, Spec, Stages, fits, state_spec
from ridgeline.sharding.pipeline_levels import Level, after_all
from ridgeline.sharding.rules import (
    attention,
    contraction,
    experts,
    free,
    indexed,
    movement,
    pointwise,
)
from ridgeline.sharding.share import RankShare

Rule = Callable[[RankShare, Node], None]


@dataclass(frozen=True, slots=True)
class LocalGraph:
    """What one rank computes: a graph over its own device, and how inputs and outputs lie."""

    graph: Graph
    specs: tuple[Spec, ...]  # of the outputs
    stages: tuple[Stages, ...]  # that have them
    results: tuple[Node | None, ...]  # the outputs; None for what this rank's stage does not have
    given: tuple[int, ...]  # the numbers of the inputs that it reads
    collectives: Mapping[Node, tuple[int, int]]  # with the order in which they start
    levels: Mapping[Node, Level]  # of its values, where it is a step in microbatches


def partition(
    graph: Graph,
    shape: MeshShape,
    place: Sequence[int],
    device: str,
    given: Sequence[Spec],
    pairs: Sequence[tuple[int, int]] = (),
    homes: Sequence[Stages] = (),
    groups: Mapping[str, GroupName] = MappingProxyType({}),
    levels: Mapping[Node, Level] = MappingProxyType({}),
) -> LocalGraph:
    """The share of a rank; `pairs` are numbers of outputs that take the place of inputs."""
    specs = dict(zip(graph.inputs, given))
    taken = {graph.outputs[o]: graph.inputs[i] for o, i in pairs if i >= 0}
    wishes = hints(graph, shape, specs, taken)
    share = RankShare(graph, shape, place, device, wishes, write, groups)
    share.levels = levels
    share.homes = {n: stages for n, stages in zip(graph.inputs, homes) if stages is not None}
    inputs = []
    for source, spec in specs.items():
        kind = source.types[0]
        local = leaf(TensorType(share.local_shape(source, spec), kind.dtype, device))
        share.set(source, local, spec)
        inputs.append(local)
    outputs = set(graph.outputs)
    for node in graph.order:
        if not graph.is_input(node):
            write(share, node)
            if _is_wanted_everywhere(share, node, outputs):
                share.bring(node)
    results, placements, stages = list[Node | None](), list[Spec](), list[Stages]()
    for output in graph.outputs:
        spec = _resting(share, output, specs.get(taken.get(output, output)))
        share.asked = None
        local = share.at(output, spec)
        results.append(local if share.is_here(output) else None)
        placements.append(spec)
        stages.append(share.home(output))
    wanted = dict.fromkeys([*(r for r in results if r is not None), *share.exchanges])
    read = set(Graph(wanted, inputs).order)
    used = tuple(n for n, local in enumerate(inputs) if local in read)
    own = Graph(wanted, [inputs[n] for n in used])
    return LocalGraph(
        own,
        tuple(placements),
        tuple(stages),
        tuple(results),
        used,
        share.collectives,
        share.local_levels,
    )


def _is_wanted_everywhere(share: RankShare, node: Node, outputs: Container[Node]) -> bool:
    """True for a number that some stages have: a norm, a loss; not for that of a microbatch."""
    if share.home(node) is None or len(node.types) != 1 or elements(node) != 1:
        return False
    level = share.levels.get(node)
    return level is None or node in outputs or level == after_all(share.shape.parts)


def write(share: RankShare, node: Node) -> None:
    """Write a node down by its rule, for the stages of a pipeline that have its operands."""
    if share.homes:
        _at_home(share, node)
    if node.op is PROJ:
        source, output = node.inputs[0], node.attrs.output
        made, specs = share.several[source]
        known = share.results.get((source, output))
        local = proj(made, output) if known is None else known
        share.set(node, local, specs[output])
        return
    rule = RULES.get(node.op)
    if rule not in _OF_EXPERTS and node.op.family != "pointwise":
        _refuse_dispatched(share, node)
    if rule is None:
        same = node.op.family == "movement" and len(node.inputs) == 1
        elementwise = node.op.family == "pointwise" or (same and node.shape == node.inputs[0].shape)
        rule = pointwise.pointwise if elementwise else movement.whole_operands
    rule(share, node)


def _at_home(share: RankShare, node: Node) -> None:
    """A node belongs to the stages that have all its operands; where none has, one is sent them."""
    if node.op in (PLACED_LIKE, PLACED_AS_STATE):
        value, memory = node.inputs
        home, wanted = share.home(value), share.home(memory)
        if home is not None and wanted is None:
            share.bring(value)
        for stage in wanted or ():
            if home is not None and stage not in (share.home(value) or ()):
                share.send(value, stage)
        if wanted is not None:
            share.homes[node] = wanted
        return
    wish = dict(node.attrs.forward).get("pp") if node.op is PLACED else None
    if isinstance(wish, OnStage):
        home = share.home(node.inputs[0])
        if home is not None and wish.stage not in home:
            share.send(node.inputs[0], wish.stage)
        share.homes[node] = (wish.stage,)
        return
    if isinstance(wish, Replicate):
        if share.home(node.inputs[0]) is not None:
            share.bring(node.inputs[0])
        return
    apart = [source for source in node.inputs if share.home(source) is not None]
    if not apart:
        return
    common = set.intersection(*(set(share.home(source) or ()) for source in apart))
    if not common:
        stage = _cheapest(share, apart)
        for source in apart:
            if stage not in (share.home(source) or ()):
                share.send(source, stage)
        common = {stage}
    share.homes[node] = tuple(sorted(common))


def _cheapest(share: RankShare, sources: Sequence[Node]) -> int:
    """The stage to which least has to be sent for all of some values to be there."""
    costs: dict[int, int] = {}
    for stage in sorted({s for source in sources for s in share.home(source) or ()}):
        missing = [n for n in sources if stage not in (share.home(n) or ())]
        costs[stage] = sum(nbytes(n) for n in missing)
    return min(costs, key=lambda stage: (costs[stage], -stage))


def _resting(share: RankShare, output: Node, memory: Spec | None) -> Spec:
    """How a result lies in memory: as what it replaces, and a number whole on every rank."""
    if memory is not None:
        return memory
    spec = share.spec(output)
    if all(size == 1 for size in share.sizes(output)):
        return share.shape.replicated()
    return spec


def _placed(share: RankShare, node: Node) -> None:
    wishes, (source,) = dict(node.attrs.forward), node.inputs
    have, sizes = share.spec(source), share.sizes(source)
    wished = [wishes.get(name, p) for name, p in zip(share.shape.names, have)]
    spec = tuple(REPLICATE if isinstance(p, OnStage) else p for p in wished)
    spec = tuple(
        p if not isinstance(p, Shard) or fits(share.shape, spec, p.dim, sizes[p.dim]) else REPLICATE
        for p in spec
    )
    share.asked = None
    share.set(node, share.at(source, spec), spec)


def _placed_like(share: RankShare, node: Node) -> None:
    value, memory = node.inputs
    share.asked = None
    spec = share.spec(memory)
    if any(isinstance(p, Partial) for p in spec):  # gradients that are added up
        spec = share.spec(value)
    share.set(node, share.at(value, spec), spec)


def _placed_as_state(share: RankShare, node: Node) -> None:
    value, parameter = node.inputs
    share.asked = None
    if node.attrs.gradient and share.shape.zero < 2:  # sums stay apart until they are used
        spec = share.spec(value)
    else:
        spec = state_spec(share.shape, share.spec(parameter), share.sizes(parameter))
    share.set(node, share.at(value, spec), spec)


def _local_part(share: RankShare, node: Node) -> None:
    """A rank's part counts as a value that all have: what is made of it, each makes of its own."""
    share.asked = None
    local = share.at(node.inputs[0], share.shape.spec({n: p for n, _, p in node.attrs.axes}))
    share.set(node, local, share.shape.replicated())


def _from_parts(share: RankShare, node: Node) -> None:
    local = share.at(node.inputs[0], share.shape.replicated())
    share.set(node, local, share.shape.spec({n: p for n, _, p in node.attrs.axes}))


def _by_hand(share: RankShare, node: Node) -> None:
    """A collective that the program asks for itself, over ranks' own values."""
    whole = share.shape.replicated()
    local = share.at(node.inputs[0], whole)
    share.set(node, share.called(node, local), whole)


RULES: Mapping[Op, Rule] = {
    LOCAL_PART: _local_part,
    FROM_PARTS: _from_parts,
    **dict.fromkeys(COLLECTIVES, _by_hand),
    CONSTANT: free.literal,
    ROWS["after"]: pointwise.after_rule,
    IOTA: free.ramp,
    RANDOM_BITS: free.random_bits,
    RESHAPE: movement.reshape_rule,
    PERMUTE: movement.permute_rule,
    BROADCAST: movement.broadcast_rule,
    SLICE: movement.slice_rule,
    PAD: movement.pad_rule,
    CONCAT: movement.concat_rule,
    SORT: movement.along_axis,
    SCAN: movement.along_axis,
    LINEAR_SCAN: movement.along_axis,
    REDUCE: contraction.reduce_rule,
    ARG_REDUCE: contraction.arg_reduce_rule,
    CONTRACT: contraction.contract_rule,
    GATHER: indexed.gather_rule,
    SCATTER: indexed.scatter_rule,
    EXPERT_COUNTS: experts.counts_rule,
    TO_EXPERTS: experts.to_rule,
    FROM_EXPERTS: experts.from_rule,
    GROUPED_PRODUCT: experts.product_rule,
    GROUPED_OUTER: experts.outer_rule,
    ATTENTION: attention.attention_rule,
    ATTENTION_GRADIENT: attention.attention_rule,
    PLACED: _placed,
    PLACED_LIKE: _placed_like,
    PLACED_AS_STATE: _placed_as_state,
}
_OF_EXPERTS = (
    experts.to_rule,
    experts.from_rule,
    experts.product_rule,
    experts.outer_rule,
)


def _refuse_dispatched(share: RankShare, node: Node) -> None:
    """Which rows a rank has of a dispatched value is not known: few ops can be computed of it."""
    for source in node.inputs:
        several = source in share.several
        if not several and any(isinstance(p, Dispatched) for p in share.spec(source)):
            raise PlacementError(
                f"{node.op.name} cannot be computed of rows on their way to experts",
                help="between experts' layers, compute elementwise",
            )
