"""How tensors print: like torch's, plus the element type where it is not the default."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.functions.operands import default_complex, defaults
from ridgeline.record.captures import tracer
from ridgeline.record.modes import modes
from ridgeline.record.values import read_array

if TYPE_CHECKING:
    from ridgeline.scalars import Array
    from ridgeline.tensors.tensor import Tensor

# what `set_printoptions` sets
PRECISION: int = 4
THRESHOLD: float = 1000
EDGE: int = 3
WIDTH: int = 80
SCIENTIFIC: bool | None = None  # in scientific form, or not; None: where the range is wide
_HTML_LIMIT = 4000  # characters of a notebook's cell


@dataclass(frozen=True, slots=True)
class Texts:
    """The shown elements as text, and how wide torch counts one."""

    elements: Any  # an object array of strings
    width: int


def describe_tensor(source: Tensor) -> str:
    """The printed form."""
    if source._cell.capture not in (None, modes.capture):
        left_by = tracer(source._cell, source._track)
        return f"tensor({source._type}, left over from a trace by {left_by})"
    notes = _notes(source)
    if modes.capture is not None:
        if modes.call_recorder is not None and not modes.call_recorder.prints:
            read_array(source.detach(), "the text of a tensor")  # refused, on its line
        notes = [f"{source._type}", f"traced by {modes.capture.name}", *notes]
        return f"tensor({', '.join(notes)})"
    values = read_array(source.detach(), "repr()")
    head = "tensor("
    body = format_array(values, len(head))
    return _with_notes(head + body, notes, len(head)) + ")"


def html(source: Tensor) -> str:
    """The printed form for a notebook: escaped, and cut where it is long."""
    text = repr(source)
    if len(text) > _HTML_LIMIT:
        text = text[:_HTML_LIMIT] + " …"
    about = f"{source.dtype.name} {list(source.shape)} on {source.device}"
    return f'<pre title="{escape(about, quote=True)}">{escape(text)}</pre>'


def _notes(source: Tensor) -> list[str]:
    """What stands behind the numbers: device and element type where not plain, gradients."""
    notes = [] if source.device == CPU else [f"device='{source.device}'"]
    quiet: tuple[dtypes.DType, ...] = (
        defaults.dtype, default_complex(), dtypes.int64, dtypes.bool_,
    )  # fmt: skip
    if source.numel() == 0:
        if source.dim() != 1:
            notes.append(f"size={tuple(source.shape)}")
        quiet = (defaults.dtype,)
    if source.dtype not in quiet:
        notes.append(f"dtype={source.dtype!r}")
    if source.requires_grad:
        notes.append("requires_grad=True" if source.is_leaf else _grad_note(source))
    return notes


def _grad_note(source: Tensor) -> str:
    words = re.split(r"[^0-9A-Za-z]+", source.grad_fn.name)
    return f"grad_fn=<{''.join(w[:1].upper() + w[1:] for w in words)}Backward0>"


def _with_notes(text: str, notes: list[str], indent: int) -> str:
    """Notes behind the text; one that would pass the margin begins a line."""
    length = len(text) - text.rfind("\n") - 1
    for note in notes:
        if length + len(note) + 2 > WIDTH:
            text += ",\n" + " " * indent + note
            length = indent + len(note)
        else:
            text += ", " + note
            length += len(note) + 2
    return text


def format_array(values: Array, indent: int) -> str:
    """An array as nested brackets; long ones are summarised."""
    if values.dtype.kind == "V" or (values.dtype.kind == "f" and values.dtype.itemsize < 4):
        values = values.astype(np.float32)
    shown = values if values.size <= THRESHOLD else _corners(values)
    texts = _complex_texts(shown) if shown.dtype.kind == "c" else _real_texts(shown)
    if values.ndim == 0:
        return str(texts.elements[()])
    return _nested(values, texts, indent, values.size > THRESHOLD)


def _corners(values: Array) -> Array:
    """The elements that a summary shows."""
    for axis, size in enumerate(values.shape):
        if size > 2 * EDGE:
            picks = [*range(EDGE), *range(size - EDGE, size)]
            values = np.take(values, picks, axis)
    return values


def _real_texts(shown: Array) -> Texts:
    """Every element as text, padded to the width of the finite, non-zero ones, as torch does."""
    is_float = shown.dtype.kind == "f"
    write = _float_writer(shown) if is_float else str
    flat = shown.reshape(-1)
    texts = [write(v) for v in flat.tolist()]
    counts = np.isfinite(flat) & (flat != 0) if is_float else np.ones(flat.shape, bool)
    width = max((len(t) for t, counted in zip(texts, counts) if counted), default=1)
    if shown.ndim:  # a scalar is not padded
        texts = [t.rjust(width) for t in texts]
    return Texts(np.array(texts, dtype=object).reshape(shown.shape), width)


def _complex_texts(shown: Array) -> Texts:
    """Real and imaginary parts, each written in its own form."""
    real, imaginary = _real_texts(shown.real), _real_texts(shown.imag)
    joined = []
    parts = zip(real.elements.flat, imaginary.elements.flat, np.asarray(shown.imag).flat)
    for left, right, value in parts:
        sign = "" if np.signbit(value) and not np.isnan(value) else "+"
        joined.append(f"{left}{sign}{right.lstrip()}j")
    elements = np.array(joined, dtype=object).reshape(shown.shape)
    return Texts(elements, real.width + imaginary.width + 1)


def _float_writer(shown: Array) -> Callable[[float], str]:
    """Whole numbers as `1.`, moderate ones with four digits, a wide range in scientific form."""
    finite = np.abs(shown[np.isfinite(shown)].astype(np.float64))
    nonzero = finite[finite > 0]
    whole = bool(np.all(nonzero == np.rint(nonzero)))
    wide = False
    if nonzero.size:
        low, high = nonzero.min(), nonzero.max()
        wide = bool(high / low > 1000 or high > 1e8 or (not whole and low < 1e-4))
    if wide if SCIENTIFIC is None else SCIENTIFIC:
        return lambda v: f"{v:.{PRECISION}e}" if math.isfinite(v) else str(v)
    if whole:
        return lambda v: f"{v:.0f}." if math.isfinite(v) else str(v)
    return lambda v: f"{v:.{PRECISION}f}" if math.isfinite(v) else str(v)


def _nested(values: Array, texts: Texts, indent: int, summarise: bool) -> str:
    """Brackets around rows; iterative over a list of blocks from the innermost axis outwards."""
    if 0 in values.shape:
        return "[]"
    shape = texts.elements.shape
    rows = texts.elements.reshape(-1, shape[-1])
    cut = summarise and values.shape[-1] > 2 * EDGE
    blocks = [_row(list(row), texts.width, indent + values.ndim, cut) for row in rows]
    for axis in range(values.ndim - 2, -1, -1):
        size = shape[axis]
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


def _row(texts: list[str], width: int, indent: int, cut: bool) -> str:
    if cut:
        texts = [*texts[:EDGE], " ...", *texts[EDGE:]]
    per_line = max(1, (WIDTH - indent + 1) // (width + 2))
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * indent).join(lines) + "]"
