"""Operators of torch's that take bodies: control flow, checkpoints, hooks, attention by rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ridgeline as rl

F = rl.nn.functional


def _checkpoint(body: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return rl.checkpoint(body, *args)


def _wrapped(body: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return body(*args)


def _cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]
) -> Any:
    if isinstance(pred, bool):
        return (true_fn if pred else false_fn)(*operands)
    return rl.cond(pred, true_fn, false_fn, *operands)


def _while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any],
    read: Sequence[Any] = (),
) -> Any:  # fmt: skip
    """A loop over what it carries; a condition may come as the only part of a tuple."""

    def holds(values: Any) -> Any:
        found = cond_fn(*values, *read)
        return found[0] if isinstance(found, tuple | list) else found

    return rl.while_loop(holds, lambda values: tuple(body_fn(*values, *read)), tuple(carried))


def _scan(
    body: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any], read: Sequence[Any] = ()
) -> Any:
    """A scan whose body gives what is carried, then what is gathered, as one list."""
    count = len(init)

    def step(carried: Any, row: Any) -> Any:
        found = tuple(body(*carried, *row, *read))
        return found[:count], found[count:]

    carried, gathered = rl.scan(step, tuple(init), tuple(xs))
    return (*carried, *gathered)


def _autograd_function(
    forward: Callable[..., Any], backward: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """A `torch.autograd.Function` of the user's: his own backward pass, as bodies."""
    if options.get("dirty_idx") or "args_tensor_mask" in options:
        raise NotImplementedError("an autograd.Function that writes to its arguments")
    constant = set(options.get("non_differentiable_idx", ()))

    class Applied(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            made, saved = forward(*given)
            results = tuple(made) if isinstance(made, tuple | list) else (made,)
            ctx.mark_non_differentiable(*[r for n, r in enumerate(results) if n in constant])
            ctx.others = [None if isinstance(value, rl.Tensor) else value for value in saved]
            ctx.save_for_backward(*[v if isinstance(v, rl.Tensor) else None for v in saved])
            return results if isinstance(made, tuple | list) else made

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            tensors = zip(ctx.saved_tensors, ctx.others, strict=True)
            found = backward(*cotangents, *[b if a is None else a for a, b in tensors])
            return tuple(found) if isinstance(found, tuple | list) else found

    return Applied.apply(*args)


def _associative_scan(body: Callable[..., Any], xs: Sequence[Any], read: Sequence[Any] = ()) -> Any:
    """Running results of a function that joins two rows, one row after the other."""

    def step(carried: Any, row: Any) -> Any:
        found = tuple(body(*carried, *row, *read))
        return found, found

    first = tuple(x[0] for x in xs)
    _, gathered = rl.scan(step, first, tuple(x[1:] for x in xs))
    return tuple(rl.cat([x[:1], rest]) for x, rest in zip(xs, gathered, strict=True))


def _map(body: Callable[..., Any], xs: Sequence[Any], read: Sequence[Any] = ()) -> Any:
    """The results of a body for every row."""
    _, gathered = rl.scan(lambda carried, row: (carried, tuple(body(*row, *read))), (), tuple(xs))
    return gathered


def _subgraph(body: Callable[..., Any], name: str | None, *args: Any) -> Any:
    """A part of the graph that torch compiles once for all its uses."""
    return body(*args)


def _with_hints(body: Callable[..., Any], args: Any, kwargs: Any, hints: Any = None) -> Any:
    return body(*args, **kwargs)


def _hooked(x: Any, hook: Callable[..., Any]) -> Any:
    """A tensor whose gradient goes through a body."""

    class Hooked(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            found = hook(gradient)
            return found[0] if isinstance(found, tuple | list) else found

    return Hooked.apply(x)


def _flex_attention(
    query: Any, key: Any, value: Any, score_mod: Callable[..., Any], block_mask: Sequence[Any],
    scale: float, options: Any, read_by_scores: Sequence[Any] = (),
    read_by_mask: Sequence[Any] = (),
) -> Any:  # fmt: skip
    """Attention whose scores go through a body, as do the places that are looked at.

    The logarithms are those to the base of 2.
    """
    heads = query.shape[1] // key.shape[1]
    key, value = (_for_queries(x, query, heads) for x in (key, value))
    wide = rl.float64 if query.dtype == rl.float64 else rl.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    places = [rl.arange(n, dtype=rl.int32, device=query.device) for n in scores.shape]
    scores = _over_places(score_mod, scores, places, read_by_scores).to(wide)
    seen = _over_places(block_mask[-1], None, places, read_by_mask)
    scores = rl.where(seen, scores, -math.inf)
    nothing = (scores == -math.inf).all(-1)
    sums = rl.where(nothing, -math.inf, scores.logsumexp(-1))
    weights = rl.where(nothing.unsqueeze(-1), 0.0, scores.softmax(-1)).to(query.dtype)
    highest = scores.amax(-1)
    return weights @ value.to(query.dtype), sums / math.log(2), highest / math.log(2)


def _for_queries(x: Any, query: Any, heads: int) -> Any:
    """Keys or values for all batches and heads of the queries."""
    shared = x if heads == 1 else x.repeat_interleave(heads, 1)
    return shared.expand(query.shape[0], *shared.shape[1:])


def _over_places(
    body: Callable[..., Any], scores: Any, places: Sequence[Any], read: Sequence[Any]
) -> Any:
    """A body for one place of a matrix of scores, at all places of all heads and batches."""

    def one(*args: Any) -> Any:
        found = body(*args)
        return found[0] if isinstance(found, tuple | list) else found

    given = [] if scores is None else [scores]
    for axis in reversed(range(4)):
        along = [0 if number == axis else None for number in range(4)]
        one = rl.vmap(one, (*[0 for _ in given], *along, *[None for _ in read]))
    return one(*given, *places, *read)


def _with_gradients(enabled: bool, body: Callable[..., Any], *args: Any) -> Any:
    with rl.set_grad_enabled(enabled):
        return body(*args)


def _with_autocast(
    device: str, dtype: Any, enabled: bool, cache: Any, body: Callable[..., Any], *args: Any
) -> Any:
    with rl.autocast(device, dtype=dtype, enabled=enabled):
        return body(*args)


_BODIES: dict[str, Callable[..., Any]] = {
    "tag_activation_checkpoint": _checkpoint, "wrap": _wrapped,
    "autograd_function_apply": _autograd_function, "cond": _cond, "while_loop": _while_loop,
    "scan": _scan, "associative_scan": _associative_scan, "map_impl": _map,
    "invoke_subgraph": _subgraph, "hints_wrapper": _with_hints, "register_hook": _hooked,
    "flex_attention": _flex_attention, "wrap_with_set_grad_enabled": _with_gradients,
    "wrap_with_autocast": _with_autocast,
}  # fmt: skip
# by the names that `names.name_of` gives
HIGHER_ORDER = {f"torch.ops.higher_order.{name}": call for name, call in _BODIES.items()}
