"""Connectionist temporal classification: the loss over all alignments of a label sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.concrete import concrete, given
from ridgeline.functions.gathering import gather
from ridgeline.functions.losses import reduced
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.registry import public
from ridgeline.functions.scanning import cumsum
from ridgeline.graph.body import Body, body
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.placement import placed
from ridgeline.graph.sizes import product, remembered
from ridgeline.ops.checked import within
from ridgeline.ops.control.loop import loop
from ridgeline.ops.elementwise import cast, full_like, iota, select, stop_gradient
from ridgeline.ops.math import exp, log
from ridgeline.ops.movement import broadcast, concat, reshape
from ridgeline.ops.reduce import reduce, sum_
from ridgeline.record.cells import known
from ridgeline.record.modes import modes
from ridgeline.scalars import Array

_TOO_FEW = "ctc_loss: the place of a label"
_ALL = "ctc_loss: the sum of target_lengths, for as many labels"
_NEVER = -1e30  # the logarithm of an alignment that does not exist; finite, so gradients are too


def _lengths(lengths: Node | Sequence[int], batch: int, most: int, what: str) -> Node:
    """How long each sequence is, checked: at once where the numbers are there, else as it runs."""
    if isinstance(lengths, Node):
        found = cast(lengths, dtypes.int64)
    else:
        found = _constant(np.asarray(lengths), dtypes.int64)
    if product(found.shape) != batch:
        raise ShapeError(f"ctc_loss needs {batch} {what}, got shape {list(found.shape)}")
    return within(reshape(found, (batch,)), 0, most, f"ctc_loss: a number of {what}")


def _longest(targets: Node, lengths: Node | Sequence[int]) -> int:
    """The most labels of a sequence, or what is no less where jit traces and has no numbers."""
    if not isinstance(lengths, Node):
        return max((int(length) for length in lengths), default=0)
    listed = len(targets.shape) == 1  # one after the other: rows are made of them
    if listed and not (modes.capture is not None and modes.capture.depends(lengths)):
        return int(concrete(lengths, "ctc_loss").max(initial=0))
    return known(targets.shape[-1])


def _rows(targets: Node, counts: Node, longest: int, blank: int) -> Node:
    """The labels of each sequence, in rows of one length that end in blanks."""
    batch, held = known(counts.shape[0]), known(targets.shape[-1])
    shape = (batch, longest)
    labels = cast(targets, dtypes.int64)
    positions = iota(shape, 1, dtypes.int64, counts.type.device)
    inside = positions < broadcast(counts, shape, (0,))
    if len(targets.shape) == 2:
        labels = cut(labels, 1, 0, longest)
    elif len(targets.shape) == 1:
        ends = cumsum(counts, 0)
        if batch:  # all labels are somebody's
            rest = within(cut(ends, 0, batch - 1, 1), held, held, _ALL) - held
            ends = ends + broadcast(rest, ends.shape, (0,))
        start = broadcast(ends - counts, shape, (0,)) + positions
        start = within(select(inside, start, full_like(start, 0)), 0, held - 1, _TOO_FEW)
        labels = reshape(gather(labels, 0, reshape(start, (batch * longest,))), shape)
    return select(inside, labels, full_like(labels, blank))


def _constant(array: Array, dtype: dtypes.DType) -> Node:
    return given(array, TensorType(array.shape, dtype))


def _shifted(alpha: Node, by: int) -> Node:
    """States moved up by some places; what comes in does not exist."""
    count = known(alpha.shape[1])
    empty = full_like(cut(alpha, 1, 0, min(by, count)), _NEVER)
    return concat([empty, cut(alpha, 1, 0, count - by)], 1) if count > by else empty


def _log_sum(terms: Node) -> Node:
    """The logarithm of the sum of exponentials along the last axis."""
    last = len(terms.shape) - 1
    top = stop_gradient(reduce(terms, "max", (last,)))
    away = terms - broadcast(top, terms.shape, tuple(range(last)))
    return log(sum_(exp(away), (last,))) + top


@public(method=False)
def ctc_loss(
    log_probs: Node,
    targets: Node,
    input_lengths: Node | Sequence[int],
    target_lengths: Node | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Node:
    """The negative log-probability of all alignments of the targets to [time, batch, classes]."""
    if len(log_probs.shape) == 2:
        whole = reshape(log_probs, (log_probs.shape[0], 1, log_probs.shape[1]))
        rows = reshape(targets, (1, *targets.shape)) if len(targets.shape) == 1 else targets
        found = ctc_loss(whole, rows, input_lengths, target_lengths, blank, reduction,
                         zero_infinity)  # fmt: skip
        return reshape(found, ()) if reduction == "none" else found
    if len(log_probs.shape) != 3:
        raise ShapeError(f"ctc_loss needs [time, batch, classes], got {list(log_probs.shape)}")
    steps, batch, classes = (known(s) for s in log_probs.shape)
    if not 0 <= blank < classes:
        raise BadValueError(f"ctc_loss: blank {blank} is not one of {classes} classes")
    longest = _longest(targets, target_lengths)
    if len(targets.shape) not in (1, 2) or (longest and known(targets.shape[-1]) < longest):
        raise ShapeError(f"ctc_loss: targets {list(targets.shape)} do not hold {longest} labels")
    home = log_probs.type.device
    times = placed(_lengths(input_lengths, batch, steps, "input_lengths"), home)
    counts = placed(_lengths(target_lengths, batch, longest, "target_lengths"), home)
    labels = _rows(placed(targets, home), counts, longest, blank)
    losses = -_log_likelihood(log_probs, labels, times, counts, blank)
    losses = losses + _softmax_share(log_probs, times)
    impossible = full_like(losses, -_NEVER / 2) < losses
    infinity = full_like(losses, 0.0 if zero_infinity else math.inf)
    losses = select(impossible, infinity, losses)
    return _joined(losses, counts, reduction)


def _log_likelihood(log_probs: Node, labels: Node, times: Node, counts: Node, blank: int) -> Node:
    """The sum over alignments, step by step: states are labels with blanks between and around."""
    steps, batch, _ = (known(s) for s in log_probs.shape)
    longest = known(labels.shape[1])
    shape = (batch, 2 * longest + 1)
    pairs = reshape(labels, (batch, longest, 1))
    between = reshape(concat([full_like(pairs, blank), pairs], 2), (batch, 2 * longest))
    one = full_like(reshape(counts, (batch, 1)), blank)
    states = concat([between, one], 1) if longest else one
    before = cut(concat([one, one, states], 1), 1, 0, 2 * longest + 1)
    positions = iota(shape, 1, dtypes.int64, labels.type.device)
    may_skip = states.ne(blank) & states.ne(before)
    emitted = gather(log_probs, 2, broadcast(states, (steps, *shape), (1, 2)))
    first = drop(cut(emitted, 0, 0, 1), 0)
    never = full_like(first, _NEVER)
    alpha = select(positions < 2, first, never)
    if steps > 1:
        later = (steps - 1, batch)
        number = iota(later, 0, dtypes.int64, times.type.device) + 1
        running = number < broadcast(times, later, (1,))
        alpha = _advanced(alpha, cut(emitted, 0, 1, steps - 1), running, may_skip)
    ends = broadcast(counts * 2, shape, (0,))
    return _log_sum(select(positions.eq(ends) | positions.eq(ends - 1), alpha, never))


def _advanced(alpha: Node, emitted: Node, running: Node, may_skip: Node) -> Node:
    """The states after all further steps; a sequence that has ended keeps its own."""
    home = alpha.type.device
    now, goes_on = (TensorType(n.shape[1:], n.dtype, home) for n in (emitted, running))
    step = _step(alpha.types[0], now, goes_on, replace(may_skip.types[0], device=home))
    scanned = [emitted, placed(running, home)]
    return loop(step, [alpha], scanned, [placed(may_skip, home)], emitted.shape[0])[0]


@remembered
def _step(alpha: TensorType, emitted: TensorType, running: TensorType, skip: TensorType) -> Body:
    """One step of the recursion."""
    state, now, goes_on, skips = map(leaf, (alpha, emitted, running, skip))
    jumped = select(skips, _shifted(state, 2), full_like(state, _NEVER))
    ways = [state, _shifted(state, 1), jumped]
    moved = _log_sum(concat([reshape(w, (*w.shape, 1)) for w in ways], 2)) + now
    after = select(broadcast(goes_on, state.shape, (0,)), moved, state)
    return body([state, now, goes_on, skips], [after])


def _softmax_share(log_probs: Node, times: Node) -> Node:
    """Zero, with the gradient exp(log_probs): torch's rule takes them to come from log_softmax."""
    grown = exp(log_probs)
    nothing = grown - stop_gradient(grown)
    number = iota(log_probs.shape, 0, dtypes.int64, times.type.device)
    kept = number < broadcast(times, log_probs.shape, (1,))
    return sum_(select(kept, nothing, full_like(nothing, 0)), (0, 2))


def _joined(losses: Node, counts: Node, reduction: str) -> Node:
    if reduction != "mean":
        return reduced(losses, reduction)
    lengths = select(counts < 1, full_like(counts, 1), counts)
    return reduced(losses / cast(lengths, losses.dtype), "mean")
