"""Predicates C5 to C8: compositions of ops that have a better form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.costs import CONVOLUTIONS, ITEM_BYTES, Cost, numel, product_sizes
from ridgeline.profile.model.kernels import changes_layout
from ridgeline.profile.rules.base import (
    EXACT,
    MODELLED,
    Evidence,
    Hit,
    Ledger,
    gib,
    per_step,
    percent,
)
from ridgeline.profile.rules.precision import floor_match, joined
from ridgeline.profile.trace.model import Ints

_BATCH_NORMS = ("batch_norm",)


def _time(facts: Facts, rows: Ints) -> float:
    return float(facts.gpu_time(rows).sum())


def layout_changes(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C5: convolutions that turn their tensors round before and after."""
    inside = [(op, rows) for op, rows in facts.device_ops if facts.op_name(op) in CONVOLUTIONS]
    kernels = ledger.free(joined([rows for _, rows in inside]))
    if not len(kernels):
        return None
    turned = np.array([changes_layout(facts.gpu_name(int(row))) for row in kernels])
    moves, whole = _time(facts, kernels[turned]), _time(facts, kernels)
    if whole <= 0 or moves / whole < limits["share"]:
        return None
    # Batch norm on NCHW has slower kernels too; all it takes above its floor may be saved.
    norms = [
        (op, rows, cost)
        for op, rows, cost, _ in facts.modelled
        if any(name in facts.op_name(op) for name in _BATCH_NORMS)
    ]
    beside, norm_rows, _ = floor_match(facts, ledger, norms, "float32")
    rows = np.concatenate((kernels[turned], norm_rows))
    evidence = (
        Evidence("layout kernels", f"{int(turned.sum()) / facts.steps.count:.0f} a step", EXACT),
        Evidence("time in them", f"{per_step(facts, moves)} a step"),
        Evidence("share of convolution time", percent(moves / whole)),
        Evidence("batch norm above its floor", f"{per_step(facts, beside)} a step", MODELLED),
    )
    grade = "badly " if moves / whole >= limits["bad"] else ""
    return Hit(
        moves + beside,
        evidence,
        {"share": percent(moves / whole), "grade": grade},
        rows=rows,
        places=tuple(facts.top_places(kernels[turned], facts.gpu_time(kernels[turned]))),
        spans=facts.spans(facts.trace.gpu, rows),
    )


def _conv_then_norm(facts: Facts) -> list[int]:
    """Convolutions with a bias whose result goes straight into a batch norm."""
    ops, found = facts.trace.ops, []
    norms = facts.ops_named("aten::batch_norm")
    between = facts.ops_named("aten::relu", "aten::add", "aten::add_", "aten::conv2d")
    # Batch norm itself counts its calls with an `add_` on a scalar.
    real = [bool(facts.arguments(int(row)).dims[:1] not in ((), ((),))) for row in between]
    started = ops.start[between[np.array(real, dtype=bool)]]
    for conv in facts.ops_named("aten::conv1d", "aten::conv2d", "aten::conv3d").tolist():
        dims = facts.arguments(conv).dims
        if len(dims) < 3 or len(dims[2]) != 1 or len(dims[1]) < 3:
            continue
        position = int(np.searchsorted(ops.start[norms], ops.end[conv]))
        if position >= len(norms):
            continue
        norm = int(norms[position])
        shape = facts.arguments(norm).dims
        same = bool(shape) and len(shape[0]) > 1 and shape[0][1] == dims[1][0]
        straight = not ((started > ops.end[conv]) & (started < ops.start[norm])).any()
        if same and straight and ops.thread[norm] == ops.thread[conv]:
            found.append(conv)
    return found


def bias_before_norm(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C6: a convolution's bias that the next batch norm subtracts again."""
    convs = _conv_then_norm(facts)
    if not convs:
        return None
    rows = []
    for op, kernels in facts.device_ops:
        chain = facts.links.ops.chain(op)
        names = [facts.op_name(row) for row in chain]
        forward = names[0] in ("aten::add_", "aten::add") and set(chain).intersection(convs)
        backward = names[0] == "aten::sum" and "aten::convolution_backward" in names
        if forward or backward:
            rows.append(ledger.free(kernels))
    claimed = joined(rows)
    spent = _time(facts, claimed)
    ops = np.array(convs)
    evidence = (
        Evidence("biases that cancel", f"{len(convs) / facts.steps.count:.0f} a step", EXACT),
        Evidence("adding and differentiating them", f"{per_step(facts, spent)} a step"),
    )
    return Hit(
        spent,
        evidence,
        {"count": f"{len(convs) / facts.steps.count:.0f}"},
        rows=claimed,
        places=tuple(facts.op_places(ops)),
        spans=facts.spans(facts.trace.gpu, claimed),
    )


def _score_sizes(facts: Facts) -> dict[int, tuple[int, ...]]:
    """Elements of score matrices: softmax inputs between two batched products, by size."""
    ops = facts.trace.ops
    products = facts.ops_named("aten::bmm", "aten::baddbmm")
    found: dict[int, tuple[int, ...]] = {}
    for soft in facts.ops_named("aten::_softmax").tolist():
        dims = facts.arguments(soft).dims[:1]
        if not dims or len(dims[0]) < 3 or min(dims[0][-2:]) < 16:
            continue
        size = numel(dims[0])
        thread = products[ops.thread[products] == ops.thread[soft]]
        position = int(np.searchsorted(ops.start[thread], ops.start[soft]))
        before = thread[max(0, position - 1) : position].tolist()
        after = thread[position : position + 1].tolist()
        if any(_makes(facts, op, size) for op in before) and any(
            _takes(facts, op, size) for op in after
        ):
            found[size] = dims[0]
    return found


def _makes(facts: Facts, op: int, size: int) -> bool:
    """Whether a product's result has that many elements."""
    sizes = product_sizes(facts.op_name(op), facts.arguments(op))
    return sizes is not None and sizes[0] * sizes[1] * sizes[2] == size


def _takes(facts: Facts, op: int, size: int) -> bool:
    """Whether an op reads a tensor of that many elements."""
    return any(dims and numel(dims) == size for dims in facts.arguments(op).dims)


def unfused_attention(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C7: scores are written out, normalised and read again."""
    scores = _score_sizes(facts)
    if not scores:
        return None
    size, shape = max(scores.items())
    if not facts.has_gpu:
        return _host_attention(facts, ledger, size, shape)
    rows, flops, item = [], 0.0, 2
    for op, kernels in facts.device_ops:
        if _takes(facts, op, size) or _makes(facts, op, size):
            rows.append(ledger.free(kernels))
            cost = facts.cost(op)
            if cost is not None and cost.family == "matmul":
                flops += cost.flops
                item = ITEM_BYTES.get(cost.type, 2)
    claimed = joined(rows)
    spent = _time(facts, claimed)
    # A causal mask halves the work of a fused kernel, so half is the safe lower bound.
    least = facts.floor(Cost("attention", flops / 2, 1.0, "c10::BFloat16"))
    evidence = (
        Evidence("score matrix", " × ".join(map(str, shape)) + f", {gib(size * item)}", EXACT),
        Evidence("kernels that touch it", f"{len(claimed) / facts.steps.count:.0f} a step", EXACT),
        Evidence("time in them", f"{per_step(facts, spent)} a step"),
        Evidence("least time when fused", f"{per_step(facts, least)} a step", MODELLED),
    )
    return Hit(
        max(0.0, spent - least),
        evidence,
        {"share": percent(facts.share(spent))},
        rows=claimed,
        places=tuple(facts.top_places(claimed, facts.gpu_time(claimed))),
        spans=facts.spans(facts.trace.gpu, claimed),
    )


def _host_attention(facts: Facts, ledger: Ledger, size: int, shape: tuple[int, ...]) -> Hit | None:
    """The same on a CPU, where ops are their own kernels."""
    involved = [
        row
        for row in facts.host_ops.tolist()
        if facts.op_name(row).startswith("aten::")
        and (_takes(facts, row, size) or _makes(facts, row, size))
    ]
    rows = np.array(involved, dtype=np.int64)
    spans = facts.spans(facts.trace.ops, rows)
    stake = ledger.take_idle(iv.measure(spans))
    evidence = (
        Evidence("score matrix", " × ".join(map(str, shape)), EXACT),
        Evidence("time in ops that touch it", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    return Hit(
        stake,
        evidence,
        {"share": percent(facts.share(stake))},
        idle=stake,
        places=tuple(facts.op_places(rows)),
        spans=spans,
    )


def _chains(
    facts: Facts, ledger: Ledger, least: int, shortest: float
) -> list[list[tuple[int, Ints, Cost]]]:
    """Neighbouring pointwise kernels over tensors of one size, in launch order."""
    pointwise = [
        (op, rows, cost)
        for op, rows, cost, _ in facts.modelled
        if cost.family == "pointwise" and cost.flops > 0
    ]
    owner = {op: (op, rows, cost) for op, rows, cost in pointwise}
    chains: list[list[tuple[int, Ints, Cost]]] = []
    current: list[tuple[int, Ints, Cost]] = []
    for row in ledger.free(facts.kernels).tolist():
        here = owner.get(int(facts.links.op_of_gpu[row]))
        fits = here is not None and (not current or here[2].flops == current[-1][2].flops)
        if here is not None and fits and facts.gpu_time(here[1]).sum() >= shortest:
            if not current or current[-1][0] != here[0]:
                current.append(here)
            continue
        if len(current) >= least:
            chains.append(current)
        current = [here] if here is not None and facts.gpu_time(here[1]).sum() >= shortest else []
    if len(current) >= least:
        chains.append(current)
    return chains


def pointwise_chain(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C8: each of several pointwise kernels reads what the one before wrote."""
    chains = _chains(facts, ledger, int(limits["kernels"]), limits["shortest"])
    if not chains:
        return None
    rows, lost, between = [], 0.0, 0.0
    for chain in chains:
        spent = sum(_time(facts, kernels) for _, kernels, _ in chain)
        item = ITEM_BYTES.get(chain[0][2].type, 4)
        size = chain[0][2].flops * item
        # One fused kernel still reads one tensor and writes one.
        lost += max(0.0, spent - facts.floor(Cost("pointwise", 0.0, 2 * size, chain[0][2].type)))
        between += 2 * size * (len(chain) - 1)
        rows += [kernels for _, kernels, _ in chain]
    claimed = ledger.free(joined(rows))
    longest = max(chains, key=len)
    names = "+".join(facts.op_name(op).removeprefix("aten::") for op, _, _ in longest[:6])
    evidence = (
        Evidence("chains", f"{len(chains) / facts.steps.count:.1f} a step", EXACT),
        Evidence("the longest", names, EXACT),
        Evidence("time in them", f"{per_step(facts, _time(facts, claimed))} a step"),
        Evidence(
            "traffic of the intermediates", f"{gib(between / facts.steps.count)} a step", MODELLED
        ),
    )
    if facts.share(lost) < limits["share"]:
        return None
    return Hit(
        lost,
        evidence,
        {"names": names, "count": len(longest)},
        rows=claimed,
        places=tuple(facts.top_places(claimed, facts.gpu_time(claimed))),
        spans=facts.spans(facts.trace.gpu, claimed),
        confidence="medium",
    )


CHECKS = {
    "C5": layout_changes,
    "C6": bias_before_norm,
    "C7": unfused_attention,
    "C8": pointwise_chain,
}
