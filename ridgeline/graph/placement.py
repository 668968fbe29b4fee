"""Device placement: explicit copies, and how the operands of a node come to one device.

A node computes on the device of its operands. What has no operands (literals, ramps) can be made
anywhere, so where it meets values of another device it is made there. A value without axes is
copied; anything else on another device is a user's mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ridgeline.devices import is_mesh
from ridgeline.errors import DeviceError
from ridgeline.graph.node import (
    PROJ,
    Attrs,
    Node,
    Op,
    TensorType,
    devices,
    node,
    proj,
    topological,
)
from ridgeline.scalars import Array
from ridgeline.weak import WeakSet

# Leaves whose values the host found out, such as the places that a mask picks: they may move.
movable: WeakSet[Node] = WeakSet()
_SMALL = 64  # nodes of an expression that is made anew rather than copied


@dataclass(frozen=True, slots=True)
class TransferAttrs(Attrs):
    """The device to copy to."""

    device: str


def _infer(types: Sequence[TensorType], attrs: TransferAttrs) -> tuple[TensorType, ...]:
    return (replace(types[0], device=attrs.device),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (inputs[0],)


def _back(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else transfer(ct, current.inputs[0].type.device)]


def _along(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    return [None if tangent is None else transfer(tangent, current.attrs.device)]


def _batched(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: object
) -> list[Node]:
    return [transfer(inputs[0], current.attrs.device)]


TRANSFER = Op("transfer", "movement", _infer, _value, _back, _along, _batched)


def transfer(source: Node, device: str) -> Node:
    """A value on another device; the node itself if it is there already."""
    return (
        source if source.type.device == device else node(TRANSFER, (source,), TransferAttrs(device))
    )


def placed(source: Node, device: str) -> Node:
    """A value on a device: recomputed there if it depends on literals alone, copied otherwise."""
    if source.type.device == device:
        return source
    order = _free(source)
    return transfer(source, device) if order is None else _made_on(order, device)


def _free(source: Node) -> list[Node] | None:
    """The nodes of an expression over literals, ramps and scalars; None for other expressions.

    It is expanded down to literals where possible. A scalar may come from anything and need not be
    computed yet.
    """
    order = topological([source], _is_given)
    if _makes_all(order, _is_given):
        return order
    order = topological([source], _is_number)
    return order if _makes_all(order, _is_number) else None


def _makes_all(order: Sequence[Node], stop: Callable[[Node], bool]) -> bool:
    """True if the nodes of an expression can be made on any device."""
    if len(order) > _SMALL:
        return False
    for current in order:
        begins = stop(current)
        given = begins or (not current.inputs and not _names_device(current))
        if given and current.shape and current not in movable:
            return False
        if current.op.family == "control" and not begins:  # its bodies compute where it does
            return False
    return True


def _is_number(current: Node) -> bool:
    """True for a scalar, computed or not, and for every other input."""
    return (len(current.types) == 1 and not current.shape) or _is_given(current)


def _is_given(current: Node) -> bool:
    """True for a value that cannot be made anew: it was computed, and not from literals alone.

    Everyone who uses a literal shares its node, so it may have been computed for somebody else.
    """
    if current.buffer is None:
        return False
    stack, seen = [current], {current}
    while stack and len(seen) <= _SMALL:
        found = stack.pop()
        if not found.inputs and not _names_device(found):
            return True
        new = [i for i in found.inputs if i not in seen]
        seen.update(new)
        stack += new
    return bool(stack)


def _names_device(current: Node) -> bool:
    return not current.inputs and hasattr(current.attrs, "device")


def _made_on(order: Sequence[Node], device: str) -> Node:
    """The last of some free nodes, made on another device."""
    new: dict[Node, Node] = {}
    for current in order:
        attrs = current.attrs
        if _names_device(current):
            made = node(current.op, (), replace(attrs, device=device))
        elif _is_given(current) or any(i not in new for i in current.inputs) or not current.inputs:
            made = transfer(current, device)
        elif current.op is TRANSFER:
            made = transfer(new[current.inputs[0]], device)
        elif current.op is PROJ:
            made = proj(new[current.inputs[0]], attrs.output)
        else:
            made = node(current.op, [new[i] for i in current.inputs], attrs)
        made.origins = made.origins or current.origins
        new[current] = made
    return new[order[-1]]


def together(name: str, operands: Sequence[Node]) -> list[Node]:
    """Operands on one device: free ones on the host move to the device of the others."""
    homes = {n.type.device for n in operands if n.type.device != "cpu" or _free(n) is None}
    meshes = [home for home in homes if is_mesh(home)]
    if len(meshes) == 1:  # what is not on the mesh is the same on all ranks, and whole
        homes = set(meshes)
    if len(homes) > 1:
        devices = " and ".join(n.type.device for n in operands)
        raise DeviceError(
            f"{name} needs operands on one device, got {devices}",
            help='copy one of them, such as with .to("cuda") or .cpu()',
        )
    home = homes.pop() if homes else "cpu"
    return [placed(n, home) for n in operands]


devices.together = together
