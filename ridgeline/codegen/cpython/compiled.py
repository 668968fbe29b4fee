"""Compiled functions as functions of Python's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from ridgeline.codegen.cpython.translate import OBJECTS, FunctionSet
from ridgeline.codegen.llvm.machine_code import Library, compile_cached, python_function


def compiled(
    module: FunctionSet,
    functions: Mapping[str, FunctionType],
    bailed: object,
    broken: Callable[..., Any],
) -> dict[str, Callable[..., Any]]:
    """Some functions in compiled form, by name; where one bails out it gives `bailed`.

    `broken` is called with the same arguments where one cannot go on after it changed something,
    as when memory runs out.
    """
    library = Library.load(compile_cached(module.translated(functions, bailed, broken)))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module.objects))  # for good, as the code
    table = (ctypes.c_size_t * len(module.objects)).from_address(library.address(OBJECTS))
    table[:] = [id(value) for value in module.objects]
    return {name: python_function(name, library.address(f"ridgeline_{name}")) for name in functions}
