"""`torch.onnx.export`: what `save` writes, by the names that torch's programs give it."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from ridgeline.errors import BadValueError
from ridgeline.files import write_atomic
from ridgeline.onnx.writing.save import LOWEST, save

Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


def export(
    model: Any, args: tuple[Any, ...], f: Any, kwargs: Mapping[str, Any], opset: int | None,
    input_names: Sequence[str], output_names: Sequence[str], dynamic_axes: Axes,
) -> None:  # fmt: skip
    """Write what `model` computes of `args` to a path or an open file."""
    if opset is not None and opset < LOWEST:
        warnings.warn(f"opset {LOWEST} is written, not {opset}", UserWarning, stacklevel=3)
        opset = LOWEST
    own = list(inspect.signature(getattr(model, "forward", model)).parameters)
    theirs = dict(zip(input_names, own, strict=False))
    dynamic = {
        theirs.get(name, name): _named(name, axes)
        for name, axes in dynamic_axes.items()
        if name not in output_names
    }
    with tempfile.TemporaryDirectory() as folder:
        path = save(model, Path(folder) / "model.onnx", args, dict(kwargs), dynamic, opset or 18)
        proto = onnx.load(path)
    _rename(proto.graph, proto.graph.input, input_names, "input_names")
    _rename(proto.graph, proto.graph.output, output_names, "output_names")
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    if hasattr(f, "write"):
        f.write(content)
    else:
        write_atomic(Path(f), content)


def _named(name: str, axes: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    """Axes with names, which a list of them has not."""
    if isinstance(axes, Mapping):
        return dict(axes)
    return {axis: f"{name}_dynamic_axes_{number + 1}" for number, axis in enumerate(axes)}


def _rename(graph: Any, values: Any, names: Sequence[str], what: str) -> None:
    """Give the inputs or outputs of a graph other names, wherever they are used."""
    if len(names) > len(values):
        raise BadValueError(f"{what} has {len(names)} names for {len(values)} tensors")
    new = {value.name: name for value, name in zip(values, names, strict=False)}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} - set(new)
    if clash := taken & set(new.values()):
        raise BadValueError(f"{what}: {sorted(clash)[0]!r} is the name of another value")
    for value in values:
        value.name = new.get(value.name, value.name)
    for node in graph.node:
        for part in (node.input, node.output):
            part[:] = [new.get(name, name) for name in part]
