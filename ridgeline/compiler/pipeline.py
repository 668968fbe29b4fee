"""The pipeline: every pass of the compiler, in order.

    recorded graph ── PREPARE ── looked up by structure ── CHECK ── OPTIMIZE ── LOWER ── memory plan
                                                                                 └─ LEGALIZE ── code

Deferred work, jit, `rl.loops` and bodies of control flow take this one way, on every device. What
differs between them is which passes have work (`when`). `jit(f).explain(stages=True)` prints the
list, `explain(after="fuse")` what there is after a pass, and `config.passes_until = "fuse"` leaves
out what comes later, as far as code can be made without it: so a wrong result is bisected.

Add a pass by writing it as a function from a graph to a graph and naming it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, TypeAlias

from ridgeline.compiler import lowering
from ridgeline.compiler.backend import Backend, backend
from ridgeline.compiler.hoisting import hoist, steady_nodes
from ridgeline.compiler.memory_plan import HeldBytes, Layout, held_by, lay_out
from ridgeline.compiler.passes import Compilation, Observer, Pass, Recorded, run_passes
from ridgeline.compiler.recurrences import fuse_iterations
from ridgeline.compiler.stages import Stages
from ridgeline.compiler.weight_packing import multiply_less, pack_weights
from ridgeline.config import ConfigError, config
from ridgeline.devices import is_mesh
from ridgeline.fusion.groups import Fusion
from ridgeline.fusion.kept_memory import Crossing
from ridgeline.graph.body import Body, bodies, body, in_bodies
from ridgeline.graph.graph import Graph, nbytes, substitute
from ridgeline.graph.node import DEVICE, LEAF, leaf
from ridgeline.graph.passes.canonicalize.dead_control_flow import CONTROL_FLOW, prune_control_flow
from ridgeline.graph.passes.canonicalize.simplify import simplify
from ridgeline.graph.passes.contractions.batch_norm_folding import fold_batch_norms
from ridgeline.graph.passes.contractions.narrow_windows import fit_windows, narrow_windows
from ridgeline.graph.passes.contractions.one_pass_moments import one_pass_moments
from ridgeline.graph.passes.contractions.precise_moments import precise_moments
from ridgeline.graph.passes.legalize.complex_pairs import split_complex
from ridgeline.graph.passes.legalize.decompose import (
    DECOMPOSED,
    decompose,
    join_updates,
    strip_autograd,
    tile_sorts,
    widen_sums,
)
from ridgeline.graph.passes.legalize.index_flag import FLAGGED, add_index_flag
from ridgeline.graph.passes.libraries.attention import call_attention, lay_out_heads
from ridgeline.graph.passes.libraries.channels_last import to_channels_last
from ridgeline.graph.passes.libraries.collectives import split_collectives
from ridgeline.graph.passes.libraries.dequantize_epilogue import scale_results
from ridgeline.graph.passes.libraries.narrow_products import narrow_products
from ridgeline.graph.passes.libraries.product_calls import call_products, fuse_bias
from ridgeline.graph.passes.libraries.relu_epilogue import fuse_relu
from ridgeline.graph.sizes import remembered
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.ops.collectives import COLLECTIVES
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.elementwise import CAST
from ridgeline.ops.gather import SCATTER
from ridgeline.ops.movement import PAD
from ridgeline.ops.radix import RADIX, SMALLEST
from ridgeline.ops.reduce import REDUCE
from ridgeline.ops.started import WAIT
from ridgeline.ops.tracking import ERASED

Prepare: TypeAlias = Pass[Graph, Recorded]
Optimize: TypeAlias = Pass[Graph, Compilation]
Lower: TypeAlias = Pass[Stages, Compilation]


def _on_gpu(setting: Compilation) -> bool:
    return setting.has_blocks


def _on_cpu(setting: Compilation) -> bool:
    return not setting.has_blocks


def _for_jit(setting: Compilation) -> bool:
    """False for `rl.loops`, whose user schedules the kernel."""
    return not setting.own


def _joins_launches(setting: Compilation) -> bool:
    return not setting.own and setting.target.horizontal_fusion() is not None


def _at_inference(recorded: Recorded) -> bool:
    return bool(recorded.steady)


def _alone(run: Callable[[Graph], Graph]) -> Callable[[Graph, Any], Graph]:
    """A pass that reads nothing but the graph."""
    return lambda graph, setting: run(graph)


def _for_library(
    library: str, name: str, doc: str, run: Callable[[Graph, Any], Graph], **rest: Any
) -> Optimize:
    """A pass for devices with a certain library; it is given that library's `matches`."""

    def has_library(to: Compilation) -> bool:
        return getattr(to.libraries, library) is not None

    def with_library(graph: Graph, to: Compilation) -> Graph:
        return run(graph, getattr(to.libraries, library))

    return Pass(name, doc, with_library, when=has_library, **rest)


# ---- graph to graph, before it is looked up ------------------------------------------------------

PREPARE: tuple[Prepare, ...] = (
    Pass("strip_autograd", "drop gradient tags, variables and custom rules, read by autodiff alone",
         _alone(strip_autograd), required=True, ops=ERASED),
    Pass("decompose", "write random bits, sorts and attention in ops that kernels implement",
         lambda graph, how: decompose(graph, how.is_library_call), required=True, ops=DECOMPOSED),
    Pass("scale_results", "move dequantization scales from a product's operand to its result",
         _alone(scale_results), ops={CAST}),
    Pass("lay_out_heads", "let a fused attention write its results in the layout of its queries",
         _alone(lay_out_heads), ops={ATTENTION, ATTENTION_GRADIENT}),
    Pass("prune_control_flow", "drop unread results, carried values and inputs of control flow",
         _alone(prune_control_flow), ops=CONTROL_FLOW),
    Pass("prepare_bodies", "run these passes over the bodies of control flow",
         lambda graph, how: in_bodies(graph, _prepared_body), required=True, ops=CONTROL_FLOW),
    Pass("fold_batch_norms", "inference: fold batch normalisation into the weights before it",
         lambda graph, how: fold_batch_norms(graph, steady_nodes(graph, how.steady).__contains__),
         when=_at_inference),
    Pass("winograd", "inference: compute 3x3 convolutions by Winograd's method where it pays",
         lambda graph, how: _with_kept(multiply_less, graph, how), when=_at_inference),
    Pass("pack_weights", "inference: store weights in the order in which register tiles read them",
         lambda graph, how: _with_kept(pack_weights, graph, how), when=_at_inference),
    Pass("hoist", "inference: compute what depends on weights alone once, as an input",
         lambda graph, how: hoist(graph, how.steady, how.packed), when=_at_inference),
)  # fmt: skip

# ---- graph to graph, for one device --------------------------------------------------------------

CHECK: tuple[Optimize, ...] = (
    Pass("check_indices", "add an output that flags an index out of range",
         _alone(add_index_flag), required=True, when=_for_jit, ops=FLAGGED),
)  # fmt: skip

OPTIMIZE: tuple[Optimize, ...] = (
    Pass("split_complex", "write complex arithmetic in real and imaginary parts",
         _alone(split_complex), required=True, kinds={"complex"}),
    Pass("widen_sums", "accumulate scattered float sums in double precision, round once",
         _alone(widen_sums), when=_on_gpu, required=True, ops={SCATTER}),
    Pass("simplify", "fold constants, apply exact identities, combine movement ops",
         _alone(simplify)),
    Pass("narrow_products", "compute a product in 16 bits if all readers round it to 16 bits",
         _alone(narrow_products), ops={CAST}),
    Pass("narrow_windows", "shrink contractions to the part of their result that is used",
         _alone(narrow_windows), ops={PAD}),
    Pass("one_pass_moments", "compute mean and variance in one reading of memory",
         _alone(one_pass_moments), when=_on_gpu, ops={REDUCE}),
    Pass("precise_moments", "compute means and variances of float32 in double precision",
         _alone(precise_moments), when=_on_cpu, ops={REDUCE}),
    Pass("join_updates", "compute last-write-wins scatters as a maximum over update numbers",
         _alone(join_updates), when=_on_gpu, ops={SCATTER}),
    Pass("tile_sorts", "split radix passes and selections into tiles, one per thread block",
         lambda graph, to: tile_sorts(graph, to.target.shared_memory_bytes()),
         when=_on_gpu, ops={RADIX, SMALLEST}),
    _for_library("convolution", "channels_last",
                 "give cuDNN convolutions, and the ops between them, channels-last layout",
                 to_channels_last),
    _for_library("convolution_with_relu", "fuse_relu",
                 "fuse a ReLU into the cuDNN convolution before it",
                 fuse_relu),
    _for_library("attention", "call_attention",
                 "call cuDNN for the attention that it implements",
                 call_attention),
    _for_library("product_with_bias", "fuse_bias",
                 "fuse a bias into the cuBLASLt product before it",
                 fuse_bias),
    Pass("simplify_again", "simplify what the library passes left",
         _alone(simplify), since="narrow_windows"),
    Pass("fit_windows", "drop padding that no index of a contraction reaches",
         _alone(fit_windows), ops={PAD}),
    Pass("split_collectives", "split a collective into its start and a wait at its first reader",
         _alone(split_collectives), ops=COLLECTIVES),
    _for_library("product", "call_products",
                 "call cuBLASLt for contractions that are matrix products",
                 call_products, ops={CONTRACT}),
)  # fmt: skip

# ---- program to program --------------------------------------------------------------------------

LOWER: tuple[Lower, ...] = (
    Pass("materialize", "choose which values are written to memory",
         lowering.materialize, required=True),
    Pass("rematerialize", "recompute operands that the backward pass multiplies a second time",
         lowering.rematerialize),
    Pass("overwrite", "choose outputs that may reuse the memory of the inputs they replace",
         lowering.overwrite, when=lambda to: bool(to.pairs)),
    Pass("group", "lower each stored value to a kernel of its own, as loops",
         lowering.group, required=True),
    Pass("fuse", "merge kernels while the roofline model says that it saves time",
         lowering.fuse),
    Pass("recompute", "drop stored values that their readers recompute in less time",
         lowering.recompute, when=lambda to: to.roofline.recompute),
    Pass("order_kernels", "sort kernels topologically",
         lowering.order_kernels, required=True),
    Pass("overlap", "start collectives early and wait late, behind other kernels",
         lowering.overlap, ops={WAIT}),
    Pass("schedule", "tile, vectorise and parallelise the loops",
         lowering.schedule, otherwise=lowering.leave_unscheduled, when=_for_jit),
    Pass("lower_bodies", "lower the bodies of control flow that runs natively",
         lambda stages, to: _with_bodies(stages, to), required=True),
    Pass("fit_memory", "rerun kernels for late readers until the memory budget is kept",
         lambda stages, to: _within_budget(stages, to), required=True,
         when=attrgetter("budget")),
    Pass("fuse_iterations", "run a loop inside the kernel of its iteration, where rows run alone",
         fuse_iterations, when=lambda to: _on_gpu(to) and _for_jit(to), ops={LOOP}),
    Pass("join_launches", "launch independent kernels together (horizontal fusion)",
         lowering.join_launches, when=_joins_launches),
    Pass("reuse_memory", "at the memory peak, let results reuse the buffers of their operands",
         lowering.reuse_memory, when=_for_jit),
)  # fmt: skip

PIPELINE: tuple[Pass[Any, Any], ...] = (*PREPARE, *CHECK, *OPTIMIZE, *LOWER)


# ---- the way through -----------------------------------------------------------------------------


def prepare(graph: Graph, how: Recorded, observe: Observer | None = None) -> Graph:
    """Bring a recorded graph into the form that the compiler takes.

    Work on a mesh is prepared later, when a rank's share of it is written down.
    """
    if any(map(is_mesh, map(DEVICE, graph.order))):
        return prune_control_flow(strip_autograd(graph))
    return run_passes(PREPARE, graph, how, left_out(config.passes_until), observe)


def compilation(graph: Graph, target: Backend | None = None, **settings: Any) -> Compilation:
    """The settings to compile a graph, by default for its own device and this machine."""
    target = target or backend(graph.device)
    facts = settings.pop("facts", None) or target.facts()
    return Compilation(target, facts, left_out=left_out(config.passes_until), **settings)


def check(graph: Graph, to: Compilation, observe: Observer | None = None) -> tuple[Graph, bool]:
    """The graph with an index flag as its last output, and whether it needs one."""
    checked = run_passes(CHECK, graph, to, to.left_out, observe)
    return checked, len(checked.outputs) > len(graph.outputs)


def optimize(graph: Graph, to: Compilation, observe: Observer | None = None) -> Graph:
    """The graph in the form that kernels and library calls are made of.

    A pass must not look through an input that is itself computed, so leaves replace those.
    """
    computed = [n for n in graph.inputs if n.op is not LEAF]
    if not computed:
        return run_passes(OPTIMIZE, graph, to, to.left_out, observe)
    stand_ins = {n: leaf(n.type) for n in computed}
    inputs = [stand_ins.get(n, n) for n in graph.inputs]
    sealed = Graph(substitute(graph.outputs, stand_ins), inputs)
    made = run_passes(OPTIMIZE, sealed, to, to.left_out, observe)
    return graph.giving(
        substitute(made.outputs, {stand_in: n for n, stand_in in stand_ins.items()})
    )


def lower(graph: Graph, to: Compilation, observe: Observer | None = None) -> Stages:
    """Lower an optimized graph to scheduled kernels."""
    return run_passes(LOWER, Stages(graph), to, to.left_out, observe)


def write_out(stages: Stages, to: Compilation, observe: Observer) -> None:
    """Show the loops as the target's code generator takes them (`Backend.legalize`)."""
    for legal in to.target.legalize():
        kernels = [
            replace(k, kernel=replace(k.kernel, body=legal.run(k.kernel.body)))
            for k in stages.all_kernels()
        ]
        stages = replace(stages, kernels=tuple(kernels), inner={})
        observe(Pass(legal.name, legal.doc, lambda state, to: state), stages)


def lower_graph(graph: Graph, facts: Any = None, **settings: Any) -> Stages:
    """Lower a graph to scheduled kernels, by default for this machine (see `Compilation`)."""
    to = compilation(graph, facts=facts, **settings)
    return lower(optimize(graph, to), to)


@lru_cache(maxsize=64)
def left_out(until: str) -> frozenset[str]:
    """The passes after the named one; none if no name is given."""
    names = [each.name for each in PIPELINE]
    if not until:
        return frozenset()
    if until not in names:
        raise ConfigError(
            f"passes_until names the last pass to run, and {until!r} is none that can be the last",
            help=f"one of {', '.join(names)}; those of LEGALIZE come after them, and always run",
        )
    return frozenset(names[names.index(until) + 1 :])


# ---- bodies, and passes with something to keep ---------------------------------------------------


@remembered
def _prepared_body(part: Body) -> Body:
    return body(part.inputs, prepare(part.graph, Recorded("body")).outputs)


def _with_bodies(stages: Stages, to: Compilation) -> Stages:
    """Lower the bodies of control flow that runs natively."""
    inside = replace(to, pairs=(), checked=False, ahead=False, budget=0)

    def lowered(part: Body) -> Stages:
        return lower(optimize(part.graph, inside), inside)

    native = to.target.control_flow()
    if native is None:
        return stages
    alone = [g.apart for g in stages.fusion.groups if g.apart is not None]
    flows = [flow for flow in alone if native.runs(flow)]
    inner = {flow: tuple(map(lowered, bodies(flow))) for flow in flows}
    return replace(stages, inner=inner) if inner else stages


def planned(stages: Stages, to: Compilation) -> HeldBytes:
    """The bytes that a call holds after the last passes."""
    names = [each.name for each in LOWER]
    rest = LOWER[names.index("fit_memory") + 1 :]
    done = run_passes(rest, stages, to, to.left_out)
    return held(replace(lay_out(done, to.target), exact=True), done.graph, to.target)


def held(layout: Layout, graph: Graph, target: Backend) -> HeldBytes:
    """The bytes that a call of a program holds."""
    inputs = list(map(nbytes, graph.inputs))
    return held_by(layout, inputs, target.block_bytes, target.workspace(layout))


def merged_again(stages: Stages, to: Compilation, crossing: Crossing) -> Stages:
    """Merge the kernels of the same stored values again, but not where that raises the peak."""
    names = [each.name for each in LOWER]
    some = LOWER[names.index("group") : names.index("lower_bodies")]
    fresh = replace(stages, fusion=Fusion([], []), kernels=(), in_place={})
    made = run_passes(some, fresh, replace(to, crossing=crossing), to.left_out)
    return replace(made, begun={**stages.begun, **made.begun})


def _within_budget(stages: Stages, to: Compilation) -> Stages:
    from ridgeline.compiler.budget.fit import fit  # for `jit(memory=)`

    return fit(stages, to, lambda made: planned(made, to), partial(merged_again, stages, to))


def _with_kept(run: Any, graph: Graph, how: Recorded) -> Graph:
    """A pass that also marks views among its values as worth keeping."""
    made: Graph
    made, kept = run(graph, steady_nodes(graph, how.steady).__contains__)
    how.packed.update(kept)
    return made
