"""Whose code and whose objects: this package's, a large library's, or the user's."""

from __future__ import annotations

import operator
import types
from functools import lru_cache
from typing import Any

from ridgeline.graph.origins import PACKAGE
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.numbers import Lifted
from ridgeline.tensors.tensor import Tensor

HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or by C code that could be one
# Packages whose functions compute from what they are given: their arguments count, not their text.
LIBRARIES = frozenset((
    "PIL", "_pytest", "hypothesis", "jax", "jaxlib", "llvmlite", "matplotlib", "ml_dtypes",
    "mpmath", "networkx", "numba", "numpy", "pandas", "pytest", "rich", "safetensors", "scipy",
    "sklearn", "sympy", "torch", "transformers",
))  # fmt: skip
# Functions of theirs that read files, or the frames of who calls them.
WORLDLY = frozenset((
    "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "read_csv", "imread", "getsource",
    "getsourcelines", "findsource", "currentframe", "stack", "trace", "extract_stack",
    "format_stack", "print_stack", "print_exc", "format_exc",
))  # fmt: skip
# Modules of the standard library of which the same is true.
PURE_MODULES = frozenset((
    "__future__", "_py_abc", "_pydecimal", "abc",
    "annotationlib", "ast", "base64", "bisect", "copy", "copyreg",
    "dataclasses", "decimal", "dis", "enum", "fractions", "hashlib", "heapq", "inspect", "json",
    "keyword", "numbers", "operator", "pprint", "re", "reprlib", "statistics",
    "string", "struct", "textwrap", "traceback", "types", "typing", "warnings",
))  # fmt: skip


_FIXED = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range)


def is_a(value: Any, kinds: Any) -> Any:
    """`isinstance` by the type alone: an object's `__class__` may be code of the user's, or lie."""
    return issubclass(type(value), kinds)


def plain_number(value: Any) -> Any:
    """An unknown size as the number that it is now, for code that would take it for a number.

    So it is where it is a key, part of a text, stored in an object or given to code in C: the trace
    then stands for this number alone. In tuples too, which are keys as well.
    """
    if type(value) is SizeExpr:
        return value.__index__()
    if type(value) is tuple and any(type(part) in (SizeExpr, tuple) for part in value):
        return tuple([plain_number(part) for part in value])
    return value


def shown_number(value: Any) -> Any:
    """A number to ask for its class, which calls with other numbers have in common."""
    return value.value if type(value) is Lifted else plain_number(value)


def kept_value(value: Any, seen: tuple[Any, ...] = ()) -> Any:
    """A value that is left in an object: numbers which calls to come would change are plain ones.

    Lists and dicts that the function made are mended where they are.
    """
    if type(value) is Lifted:
        return value.plain()
    if type(value) is tuple:
        parts = [kept_value(part, seen) for part in value]
        return value if all(map(operator.is_, parts, value)) else tuple(parts)
    if type(value) in (list, dict) and not any(value is other for other in seen):
        for key, part in [*(enumerate(value) if type(value) is list else value.items())]:
            kept = kept_value(part, (*seen, value))
            if kept is not part:
                value[key] = kept
    return plain_number(value)


@lru_cache(maxsize=4096)
def _top(module: str) -> str:
    return module.partition(".")[0]


# Those that look at functions and classes, or write methods for them, and run none.
DESCRIBING = frozenset((
    "abc", "copy", "copyreg", "dataclasses", "dis", "enum", "functools", "inspect", "pprint",
    "types", "typing", "_abc", "_functools",
))  # fmt: skip


def is_ours(function: types.FunctionType) -> bool:
    """True for a function of this package."""
    return function.__code__.co_filename.startswith(PACKAGE)


def is_from_library(module: Any) -> bool:
    """True for the name of a module of a large library."""
    return isinstance(module, str) and _top(module) in LIBRARIES


def is_library(function: types.FunctionType) -> bool:
    """True for a function that computes from its arguments and has no state worth a guard."""
    module = function.__globals__.get("__name__")
    if not isinstance(module, str):
        return False
    return module in PURE_MODULES or _top(module) in LIBRARIES


def written_by_users(kind: type) -> list[types.FunctionType]:
    """The methods of a class and its bases that are neither a library's nor generated."""
    stored = [getattr(v, "__func__", v) for base in kind.__mro__ for v in vars(base).values()]
    return [
        f for f in stored
        if type(f) is types.FunctionType and not f.__code__.co_filename.startswith("<")
        and not is_library(f) and not is_ours(f)
    ]  # fmt: skip


def is_our_type(kind: type) -> bool:
    """True for a class of this package."""
    module = kind.__dict__.get("__module__")
    return isinstance(module, str) and (module == "ridgeline" or module.startswith("ridgeline."))


def is_large(kind: type) -> bool:
    """True for a class of a large library, whose objects may hold anything."""
    return is_from_library(kind.__module__)


def is_library_type(kind: type) -> bool:
    """True for a class of a large library or of a module whose objects are values."""
    module = kind.__module__
    if not isinstance(module, str):
        return False
    return module in PURE_MODULES or _top(module) in LIBRARIES


def is_watched(value: Any) -> bool:
    """True for modules and optimizers, whose changes move the epoch."""
    kind = type(value)
    return hasattr(kind, "_guard_state") or hasattr(kind, "register_parameter")


def is_compared(kind: type) -> bool:
    """True for classes of this package whose objects are the sum of their attributes."""
    return getattr(kind, "_compared_by_jit", False) is True


def is_fixed(value: Any) -> bool:
    """True for a value that nobody can change, so that it may stand for an equal one."""
    kind = type(value)
    if kind is slice:
        return all(map(is_fixed, (value.start, value.stop, value.step)))
    if is_a(value, tuple | frozenset) and not getattr(value, "__dict__", None):
        return all(map(is_fixed, value))
    if is_our_type(kind):  # such as a device or an element type
        return not (is_a(value, Tensor) or is_watched(value) or is_compared(kind))
    return kind in _FIXED


def python_method(kind: type, name: str) -> types.FunctionType | None:
    """A special method that a class has in Python, if it is not this package's."""
    for base in kind.__mro__:
        found = base.__dict__.get(name)
        if found is not None:
            if isinstance(found, types.FunctionType) and not is_ours(found):
                return found
            return None
    return None
