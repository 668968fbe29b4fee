"""Contractions as MatMul, Einsum or Conv, by how their operands are indexed."""

from __future__ import annotations

from math import prod
from string import ascii_lowercase
from typing import Any

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.onnx.writing.emitter import Emitter, OnnxExportError
from ridgeline.ops.contract import AxisMap, ContractAttrs

_NO_CONVOLUTION = "a contraction is indexed in a way that no convolution of ONNX is"


def write_contraction(emitter: Emitter, node: Node, left: str, right: str) -> str:
    """The result of a contraction of two named values."""
    attrs: ContractAttrs = node.attrs
    plain = all(_is_axis(index) for index in (*attrs.left, *attrs.right))
    if plain:
        return _product(emitter, attrs, left, right)
    if all(_is_axis(index) for index in attrs.right):
        return _convolution(emitter, attrs, attrs.left, attrs.right, left, right, node.inputs)
    if all(_is_axis(index) for index in attrs.left):
        swapped = (node.inputs[1], node.inputs[0])
        return _convolution(emitter, attrs, attrs.right, attrs.left, right, left, swapped)
    raise OnnxExportError("a contraction has windows in both operands, which ONNX has not")


def _is_axis(index: AxisMap) -> bool:
    return index.offset == 0 and len(index.terms) == 1 and index.terms[0][1] == 1


def _axes(indices: tuple[AxisMap, ...]) -> list[int]:
    return [index.terms[0][0] for index in indices]


def _product(emitter: Emitter, attrs: ContractAttrs, left: str, right: str) -> str:
    a, b, out = _axes(attrs.left), _axes(attrs.right), list(attrs.output)
    summed = [axis for axis in a if axis in b and axis not in out]
    batch = [axis for axis in a if axis in b and axis in out]
    rows = [axis for axis in a if axis not in b]
    columns = [axis for axis in b if axis not in a]
    distinct = len(set(a)) == len(a) and len(set(b)) == len(b)
    whole = distinct and len(summed) == 1 and set(out) == {*batch, *rows, *columns}
    if whole and not batch and len(columns) == 1 and out == [*rows, *columns] and rows:
        # rows of any rank times a matrix
        left = _ordered(emitter, left, a, [*rows, *summed])
        return emitter.add("MatMul", [left, _ordered(emitter, right, b, [*summed, *columns])])
    if whole and len(rows) == len(columns) == 1 and out == [*batch, *rows, *columns]:
        left = _ordered(emitter, left, a, [*batch, *rows, *summed])
        right = _ordered(emitter, right, b, [*batch, *summed, *columns])
        return emitter.add("MatMul", [left, right])
    names = dict(zip(sorted({*a, *b, *out}), ascii_lowercase))
    texts = ["".join(names[axis] for axis in axes) for axes in (a, b, out)]
    return emitter.add("Einsum", [left, right], equation=f"{texts[0]},{texts[1]}->{texts[2]}")


def _ordered(emitter: Emitter, name: str, axes: list[int], order: list[int]) -> str:
    if axes == order:
        return name
    return emitter.add("Transpose", [name], perm=[axes.index(axis) for axis in order])


def _convolution(
    emitter: Emitter, attrs: ContractAttrs, image_maps: tuple[AxisMap, ...],
    kernel_maps: tuple[AxisMap, ...], image: str, kernel: str, operands: Any,
) -> str:  # fmt: skip
    """A contraction whose image is read through windows that the kernel's axes span."""
    extents, out, kernel_axes = attrs.extents, list(attrs.output), _axes(kernel_maps)
    starts: list[int] = []
    windows: list[tuple[int, int, int, int | None, int]] = []  # place, axis, stride, tap, dilation
    plain: dict[int, int] = {}  # axis: place in the image
    for place, index in enumerate(image_maps):
        if _is_axis(index):
            plain[index.terms[0][0]] = place
            continue
        moving = [(axis, factor) for axis, factor in index.terms if axis in out]
        taps = [(axis, factor) for axis, factor in index.terms if axis not in out]
        known = len(moving) == 1 and len(taps) <= 1 and moving[0][1] >= 1
        if not known or moving[0][0] in kernel_axes or any(a not in kernel_axes for a, _ in taps):
            raise OnnxExportError(_NO_CONVOLUTION)
        offset: Size = index.offset
        tap, dilation = taps[0] if taps else (None, 1)
        if tap is not None and dilation < 0:  # backwards through the window: the kernel is turned
            kernel = _turned(emitter, kernel, kernel_axes.index(tap))
            offset += dilation * (extents[tap] - 1)
            dilation = -dilation
        if not isinstance(offset, int) or offset < 0:
            raise OnnxExportError(_NO_CONVOLUTION)
        if offset:
            image = _from(emitter, image, place, offset)
        windows.append((place, moving[0][0], moving[0][1], tap, dilation))
        starts.append(offset)
    taps_used = [tap for _, _, _, tap, _ in windows if tap is not None]
    batch = [a for a in plain if a not in kernel_axes]
    group = [a for a in plain if a in kernel_axes and a in out]
    channels = [a for a in plain if a in kernel_axes and a not in out]
    filters = [a for a in kernel_axes if a not in plain and a in out]
    if set(taps_used) | set(group) | set(channels) | set(filters) != set(kernel_axes):
        raise OnnxExportError(_NO_CONVOLUTION)

    def count(axes: list[int]) -> Size:
        return prod((extents[a] for a in axes), start=1)

    groups = count(group)
    if not isinstance(groups, int) or not isinstance(count(channels), int):
        raise OnnxExportError("a convolution with as many channels as a size has no form in ONNX")
    order = [plain[a] for a in (*batch, *group, *channels)] + [w[0] for w in windows]
    whole = operands[0].types[0].shape
    spatial = [whole[w[0]] - start for w, start in zip(windows, starts)]
    image = _laid(emitter, image, order, [count(batch), count([*group, *channels]), *spatial])
    sizes = [1 if w[3] is None else extents[w[3]] for w in windows]
    kernel_order = [kernel_axes.index(a) for a in (*group, *filters, *channels, *taps_used)]
    kernel = _laid(
        emitter, kernel, kernel_order, [count([*group, *filters]), count(channels), *sizes]
    )
    made = emitter.add(
        "Conv", [image, kernel], group=groups, strides=[w[2] for w in windows],
        dilations=[w[4] for w in windows], kernel_shape=[int(size) for size in sizes],
    )  # fmt: skip
    made = _cut(emitter, made, spatial, sizes, windows, extents)
    found = [*batch, *group, *filters, *(w[1] for w in windows)]
    shape = [extents[a] for a in found]
    if [count(batch), count([*group, *filters]), *(extents[w[1]] for w in windows)] != shape:
        made = emitter.add("Reshape", [made, emitter.shape(shape)])
    return _ordered(emitter, made, found, out)


def _turned(emitter: Emitter, name: str, axis: int) -> str:
    """A value with one axis the other way round."""
    last, before, step = (emitter.integers([n]) for n in (-1, -(1 << 62), -1))
    return emitter.add("Slice", [name, last, before, emitter.integers([axis]), step])


def _from(emitter: Emitter, name: str, axis: int, start: int) -> str:
    """A value without its first elements along an axis."""
    ends = emitter.integers([(1 << 62)])
    return emitter.add("Slice", [name, emitter.integers([start]), ends, emitter.integers([axis])])


def _laid(emitter: Emitter, name: str, order: list[int], shape: list[Size]) -> str:
    """A value with its axes in an order, and some of them merged."""
    if order != list(range(len(order))):
        name = emitter.add("Transpose", [name], perm=order)
    if len(order) != len(shape):
        name = emitter.add("Reshape", [name, emitter.shape(shape)])
    return name


def _cut(
    emitter: Emitter, name: str, spatial: list[Size], sizes: list[Size], windows: Any,
    extents: tuple[Size, ...],
) -> str:  # fmt: skip
    """Without the windows that the contraction does not compute."""
    wanted = [extents[w[1]] for w in windows]
    found = [
        (length - ((size - 1) * w[4] + 1)) // w[2] + 1
        for length, size, w in zip(spatial, sizes, windows)
    ]
    if wanted == found:
        return name
    axes = list(range(2, 2 + len(windows)))
    starts = emitter.integers([0] * len(axes))
    return emitter.add("Slice", [name, starts, emitter.shape(wanted), emitter.integers(axes)])
