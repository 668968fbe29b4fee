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
from ridgeline.graph.body import Body, body
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.placement import placed
from ridgeline.graph.sizes import remembered
from ridgeline.ops.control.loop import loop
from ridgeline.ops.elementwise import full_like, select, stop_gradient
from ridgeline.ops.math import exp, log
from ridgeline.ops.movement import broadcast, concat, reshape
from ridgeline.ops.reduce import reduce, sum_
from ridgeline.record.cells import known
from ridgeline.scalars import Array

_NEVER = -1e30  # the logarithm of an alignment that does not exist; finite, so gradients are too


def _lengths(lengths: Node | Sequence[int], batch: int, what: str) -> Array:
    found = concrete(lengths, "ctc_loss") if isinstance(lengths, Node) else np.asarray(lengths)
    if found.reshape(-1).shape != (batch,):
        raise ShapeError(f"ctc_loss needs {batch} {what}, got shape {list(found.shape)}")
    return found.reshape(-1).astype(np.int64)


def _rows(targets: Node, lengths: Array) -> Array:
    """The labels of each sequence, in rows as long as the longest."""
    values = concrete(targets, "ctc_loss").astype(np.int64)
    longest = int(lengths.max(initial=0))
    if values.ndim == 2:
        if values.shape[1] < longest:
            raise ShapeError(f"ctc_loss: targets {list(values.shape)} are shorter than {longest}")
        return values[:, :longest]
    if values.ndim != 1 or values.size < lengths.sum():
        raise ShapeError(f"ctc_loss: targets {list(values.shape)} do not hold all labels")
    rows = np.zeros((len(lengths), longest), np.int64)
    start = 0
    for row, length in enumerate(lengths):
        rows[row, :length] = values[start : start + length]
        start += length
    return rows


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
    times = _lengths(input_lengths, batch, "input_lengths")
    counts = _lengths(target_lengths, batch, "target_lengths")
    if times.max(initial=0) > steps:
        raise ShapeError(f"ctc_loss: an input length exceeds the {steps} steps")
    losses = -_log_likelihood(log_probs, _rows(targets, counts), times, counts, blank)
    losses = losses + _softmax_share(log_probs, times)
    impossible = full_like(losses, -_NEVER / 2) < losses
    infinity = full_like(losses, 0.0 if zero_infinity else math.inf)
    losses = select(impossible, infinity, losses)
    return _joined(losses, counts, reduction)


def _log_likelihood(
    log_probs: Node, labels: Array, times: Array, counts: Array, blank: int
) -> Node:
    """The sum over alignments, step by step: states are labels with blanks between and around."""
    steps, batch, _ = (known(s) for s in log_probs.shape)
    states = np.full((batch, 2 * labels.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    emitted = gather(
        log_probs, 2, _constant(np.broadcast_to(states, (steps, *states.shape)), dtypes.int64)
    )
    place = np.arange(states.shape[1])[None]
    may_skip = _constant(skips, dtypes.bool_)
    started = _constant(np.broadcast_to(place < 2, states.shape).copy(), dtypes.bool_)
    first = drop(cut(emitted, 0, 0, 1), 0)
    never = full_like(first, _NEVER)
    alpha = select(started, first, never)
    if steps > 1:
        running = _constant(np.arange(1, steps)[:, None] < times, dtypes.bool_)
        alpha = _advanced(alpha, cut(emitted, 0, 1, steps - 1), running, may_skip)
    last = (place == 2 * counts[:, None]) | (place == 2 * counts[:, None] - 1)
    ending = select(_constant(last, dtypes.bool_), alpha, never)
    return _log_sum(ending)


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


def _softmax_share(log_probs: Node, times: Array) -> Node:
    """Zero, with the gradient exp(log_probs): torch's rule takes them to come from log_softmax."""
    grown = exp(log_probs)
    nothing = grown - stop_gradient(grown)
    running = np.arange(known(log_probs.shape[0]))[:, None] < times[None]
    kept = broadcast(_constant(running, dtypes.bool_), log_probs.shape, (0, 1))
    return sum_(select(kept, nothing, full_like(nothing, 0)), (0, 2))


def _joined(losses: Node, counts: Array, reduction: str) -> Node:
    if reduction != "mean":
        return reduced(losses, reduction)
    lengths = _constant(np.maximum(counts, 1).astype(losses.dtype.numpy), losses.dtype)
    return reduced(losses / lengths, "mean")
