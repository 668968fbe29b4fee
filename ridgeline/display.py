"""How tensors print: like torch's, plus the element type where it is not the default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes, execute
from ridgeline.modes import modes

if TYPE_CHECKING:
    from ridgeline.scalars import Array
    from ridgeline.tensor import Tensor

PRECISION, THRESHOLD, EDGE, WIDTH = 4, 1000, 3, 80
_QUIET = (dtypes.float32, dtypes.int64, dtypes.bool_)


def describe_tensor(source: Tensor) -> str:
    """The printed form."""
    if source._cell.capture not in (None, modes.capture):
        return f"tensor({source._type}, left over from a jit trace)"
    notes = []
    if source.dtype not in _QUIET or source.numel() == 0:
        if source.numel() == 0 and source.dim() != 1:
            notes.append(f"size={tuple(source.shape)}")
        if source.dtype is not dtypes.float32:
            notes.append(f"dtype={source.dtype!r}")
    if source.requires_grad:
        notes.append("requires_grad=True" if source.is_leaf else f"grad_fn=<{source.grad_fn}>")
    if modes.capture is not None:
        notes = [f"{source._type}", "traced by jit", *notes]
        return f"tensor({', '.join(notes)})"
    values = execute.read_array(source.detach(), "repr()")
    head = "tensor("
    body = format_array(values, len(head), source.dtype is dtypes.bool_)
    return head + ", ".join([body, *notes]) + ")"


def format_array(values: Array, indent: int, is_bool: bool) -> str:
    """An array as nested brackets; long ones are summarised."""
    if values.dtype.kind == "V" or (values.dtype.kind == "f" and values.dtype.itemsize < 4):
        values = values.astype(np.float32)
    shown = values if values.size <= THRESHOLD else _corners(values)
    texts = _element_texts(shown)
    if values.ndim == 0:
        return texts[()].strip() if values.dtype.kind != "f" else str(texts[()])
    return _nested(values, texts, indent, values.size > THRESHOLD)


def _corners(values: Array) -> Array:
    """The elements that a summary shows."""
    for axis, size in enumerate(values.shape):
        if size > 2 * EDGE:
            picks = [*range(EDGE), *range(size - EDGE, size)]
            values = np.take(values, picks, axis)
    return values


def _element_texts(shown: Array) -> Any:
    """Every element as text, padded to the width of the finite, non-zero ones, as torch does."""
    kind = shown.dtype.kind
    if kind == "f":
        write = _float_writer(shown)
    elif kind == "c":
        write = _write_complex
    else:
        write = str
    flat = shown.reshape(-1)
    texts = [write(v) for v in flat.tolist()]
    if shown.ndim:  # a scalar is not padded
        counts = np.isfinite(flat) & (flat != 0) if kind == "f" else np.ones(flat.shape, bool)
        width = max((len(t) for t, counted in zip(texts, counts) if counted), default=0)
        texts = [t.rjust(width) for t in texts]
    return np.array(texts, dtype=object).reshape(shown.shape)


def _write_complex(value: complex) -> str:
    return f"{value.real:.{PRECISION}f}{value.imag:+.{PRECISION}f}j"


def _float_writer(shown: Array) -> Callable[[float], str]:
    """Whole numbers as `1.`, moderate ones with four digits, a wide range in scientific form."""
    finite = np.abs(shown[np.isfinite(shown)].astype(np.float64))
    nonzero = finite[finite > 0]
    whole = bool(np.all(nonzero == np.rint(nonzero)))
    wide = False
    if nonzero.size:
        low, high = nonzero.min(), nonzero.max()
        wide = bool(high / low > 1000 or high > 1e8 or (not whole and low < 1e-4))
    if wide:
        return lambda v: f"{v:.{PRECISION}e}" if math.isfinite(v) else str(v)
    if whole:
        return lambda v: f"{v:.0f}." if math.isfinite(v) else str(v)
    return lambda v: f"{v:.{PRECISION}f}" if math.isfinite(v) else str(v)


def _nested(values: Array, texts: Any, indent: int, summarise: bool) -> str:
    """Brackets around rows; iterative over a list of blocks from the innermost axis outwards."""
    if 0 in values.shape:
        return "[]"
    rows = texts.reshape(-1, texts.shape[-1])
    cut = summarise and values.shape[-1] > 2 * EDGE
    blocks = [_row(list(row), indent + values.ndim, cut) for row in rows]
    for axis in range(values.ndim - 2, -1, -1):
        size = texts.shape[axis]
        cut = summarise and values.shape[axis] > 2 * EDGE
        joint = "," + "\n" * (values.ndim - 1 - axis) + " " * (indent + axis + 1)
        joined = []
        for start in range(0, len(blocks), size):
            group = blocks[start : start + size]
            if cut:
                group = [*group[:EDGE], "...", *group[EDGE:]]
            joined.append("[" + joint.join(group) + "]")
        blocks = joined
    return blocks[0]


def _row(texts: list[str], indent: int, cut: bool) -> str:
    if cut:
        texts = [*texts[:EDGE], " ...", *texts[EDGE:]]
    width = max(len(t) for t in texts) + 2
    per_line = max(1, (WIDTH - indent + 1) // width)
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * indent).join(lines) + "]"
