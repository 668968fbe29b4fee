"""Objects of any class as parts of a pickle: how they are made again, as `pickle` writes it."""

from __future__ import annotations

import copyreg
import sys
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from ridgeline.errors import ArgumentError
from ridgeline.serialization.allowed import name_in_file

if TYPE_CHECKING:
    from ridgeline.serialization.writing import TorchPickler

_NAMED = (type, FunctionType, BuiltinFunctionType)


def put_object(pickler: TorchPickler, obj: Any) -> None:
    """Write an object by its class and its state, a class or a function by its name."""
    if isinstance(obj, _NAMED):
        pickler.name(*_found_again(obj))
        return
    kind = type(obj).__name__
    try:
        reduced = obj.__reduce_ex__(2)
    except Exception as error:
        raise ArgumentError(f"save: a {kind} cannot be written: {error!s:.100}") from error
    if isinstance(reduced, str):
        pickler.name(type(obj).__module__, reduced)
        return
    make, arguments, state, elements, items = (*reduced, None, None, None)[:5]
    if make is getattr(copyreg, "__newobj__", None):
        kind_of, *arguments = arguments
        pickler.name(*_found_again(kind_of))
        pickler.put(tuple(arguments))
        pickler.write(b"\x81")
    else:
        pickler.name(*_found_again(make))
        pickler.put(tuple(arguments))
        pickler.write(b"R")
    pickler.keep(obj)
    if elements is not None:
        pickler.elements(list(elements))
    if items is not None:
        pickler.items(dict(items))
    if state is not None:
        pickler.put(state)
        pickler.write(b"b")


def _found_again(value: Any) -> tuple[str, str]:
    """The name of a class or a function, if whoever reads the file can find it by that."""
    module, name = name_in_file(value)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise ArgumentError(
            f"save: {module}.{name} cannot be written: it is not found under that name",
            help="define it at the top of a module, or save a state_dict() and plain values",
        )
    return module, name
