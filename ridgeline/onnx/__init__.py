"""ONNX files: `load` makes a module of one, `save` writes one. The name is also torch.onnx.

A file is a graph of named operators. Reading it (`model.py`) gives a program of steps, each bound
to a row of one table (`operators/`), and a module runs the steps with public functions. So what is
loaded runs deferred, eagerly or under `jit`, and has gradients. See docs/onnx.md.

The package `onnx` reads the files and has the schemas; it is loaded when the first one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.data.optional import need
from ridgeline.errors import BadValueError
from ridgeline.module_paths import unknown as _unknown

if TYPE_CHECKING:
    from ridgeline.onnx.module import OnnxModule

__all__ = ["export", "is_in_onnx_export", "load", "save"]


def is_in_onnx_export() -> bool:
    """False: models are exported as they are, and need not know of it."""
    return False


def load(model: str | Path | bytes) -> OnnxModule:
    """A module that computes what an ONNX file says; its weights are parameters.

    >>> m = rl.onnx.load("model.onnx")  # doctest: +SKIP
    """
    need("onnx", "onnx", "reading ONNX files")
    from ridgeline.onnx.model import read_model
    from ridgeline.onnx.module import OnnxModule

    return OnnxModule(read_model(model))


def save(
    function: Callable[..., Any], path: str | Path, *args: Any,
    dynamic: Mapping[str, Mapping[int, str]] | None = None, opset: int = 18, **kwargs: Any,
) -> Path:  # fmt: skip
    """Write what a function or a module computes of some arguments as an ONNX file.

    `dynamic` names axes of arguments that may have any length. The file is checked, read again and
    compared with the function before it is written.

    >>> rl.onnx.save(model, "model.onnx", x, dynamic={"x": {0: "batch"}})  # doctest: +SKIP
    """
    need("onnx", "onnx", "writing ONNX files")
    from ridgeline.onnx.writing.save import save as write

    return write(function, path, args, kwargs, dynamic, opset)


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
    opset_version: int | None = None, dynamic_axes: Mapping[str, Any] | None = None, **others: Any,
) -> None:  # fmt: skip
    """torch.onnx.export: `save` with torch's arguments, to a path or an open file.

    Settings of torch's exporter that change nothing here (`dynamo`, `verbose`, `export_params`,
    `do_constant_folding` and their like) are taken and not used; `dynamic_shapes` is refused.
    """
    need("onnx", "onnx", "writing ONNX files")
    from ridgeline.onnx.writing.exporting import export as write

    if f is None or others.get("dynamic_shapes") is not None:
        raise BadValueError(
            "export writes a file, with the axes that vary in dynamic_axes=",
            help='rl.onnx.export(model, (x,), "model.onnx", dynamic_axes={"x": {0: "batch"}})',
        )
    given = args if isinstance(args, tuple) else (args,)
    write(
        model, given, f, kwargs or {}, opset_version, input_names or (), output_names or (),
        dynamic_axes or {},
    )  # fmt: skip


__getattr__ = _unknown(__name__)
