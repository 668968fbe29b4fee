"""The table of names: what a function of torch is here.

Functions are found by where torch keeps them: `torch.nn.functional.relu` and `torch._C._nn.gelu`
are `ridgeline.nn.functional.relu` and `gelu`. So what this package has under torch's name is mapped
without being listed; `SPECIAL` has those that are called in another way.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch.fx import Node

import ridgeline as rl
from ridgeline.torch_backend.aten import ATEN
from ridgeline.torch_backend.aten_layers import LAYERS
from ridgeline.torch_backend.aten_others import ATEN_OTHERS, OTHERS
from ridgeline.torch_backend.aten_recurrent import RECURRENT
from ridgeline.torch_backend.higher_order import HIGHER_ORDER
from ridgeline.torch_backend.special import SPECIAL

# where torch keeps functions, what their names begin with there, and where they are here
_HOMES = (
    ("torch.nn.functional", "", "ridgeline.nn.functional"),
    ("torch._C._nn", "", "ridgeline.nn.functional"),
    ("torch._C._linalg", "linalg_", "ridgeline.linalg"),
    ("torch._C._special", "special_", "ridgeline.special"),
    ("torch._C._fft", "fft_", "ridgeline.fft"),
    ("torch.linalg", "", "ridgeline.linalg"),
    ("torch.special", "", "ridgeline.special"),
    ("torch.fft", "", "ridgeline.fft"),
    ("torch.nn.init", "", "ridgeline.nn.init"),
    ("torch.signal.windows.windows", "", "ridgeline.signal.windows"),
    ("torch.functional", "", "ridgeline"),
    ("torch._VF", "", "ridgeline"),
    ("torch", "", "ridgeline"),
)
# what Python itself computes with our tensors and sizes
_PYTHON = (operator, builtins, math)
_ATEN_HOMES = ("ridgeline", "ridgeline.nn.functional", "ridgeline.linalg", "ridgeline.special",
               "ridgeline.fft")  # fmt: skip


class UnmappedError(LookupError):
    """A call of torch that has no counterpart here."""


@lru_cache(maxsize=1)
def _paths() -> dict[Any, list[tuple[str, str]]]:
    """The functions of torch, and under which names to look for each here."""
    found: dict[Any, list[tuple[str, str]]] = {}
    for home, prefix, ours in _HOMES:
        owner: Any = torch
        for part in home.split(".")[1:]:
            owner = getattr(owner, part)
        for name in dir(owner):
            if not name.startswith(prefix):
                continue
            value = getattr(owner, name, None)
            if callable(value) and not isinstance(value, type):
                found.setdefault(value, []).append((ours, name.removeprefix(prefix)))
    return found


def name_of(target: Any) -> str:
    """What people call a target of a graph."""
    if isinstance(target, str):
        return f"Tensor.{target}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(target)
    paths = _paths().get(target) if _is_hashable(target) else None
    if paths:
        home, name = paths[0]
        return ".".join(["torch", *home.split(".")[1:], name])
    module = getattr(target, "__module__", None) or "torch"
    return f"{module}.{getattr(target, '__name__', repr(target))}".removeprefix("_")


def called(node: Node) -> str:
    """The name of a call in a graph, for people."""
    return str(node.target) if node.op == "call_module" else name_of(node.target)


def function_for(target: Any) -> Callable[..., Any]:
    """Our function for one of torch's, or an error that names it."""
    name = name_of(target)
    special = SPECIAL.get(name) or HIGHER_ORDER.get(name) or OTHERS.get(name)
    if special is not None:
        return special
    if isinstance(target, torch._ops.OpOverload):
        return _aten(target._schema.name, target._overloadname)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return _aten(target._qualified_op_name, "default")
    if getattr(target, "__module__", None) in _PYTHON_NAMES:
        function: Callable[..., Any] = target
        return function
    for home, own in _paths().get(target, ()) if _is_hashable(target) else ():
        found = getattr(import_module(home), own, None)
        if callable(found):
            return found  # type: ignore[no-any-return]  # a public function
    method = getattr(target, "__name__", "")
    if getattr(target, "__objclass__", None) is not None and hasattr(rl.Tensor, method):
        return method_for(method)
    raise UnmappedError(f"{name} is not here")


def method_for(name: str) -> Callable[..., Any]:
    """Our method for one of torch's tensors, as a function of the tensor."""
    special = SPECIAL.get(f"Tensor.{name}") or OTHERS.get(f"Tensor.{name}")
    if special is not None:
        return special
    if not hasattr(rl.Tensor, name):
        raise UnmappedError(f"Tensor.{name} is not here")

    if isinstance(getattr(rl.Tensor, name), property):
        return operator.attrgetter(name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    return call


def _aten(full: str, overload: str) -> Callable[..., Any]:
    """Our function for an operator of torch's registry, by its name without the overload."""
    space, _, name = full.partition("::")
    if space != "aten":
        raise UnmappedError(f"{full} is not here")
    tables = (ATEN, LAYERS, RECURRENT, ATEN_OTHERS)
    found = [table.get(f"{name}.{overload}") or table.get(name) for table in tables]
    special = next(filter(None, found), None)
    if special is not None:
        return special
    for home in _ATEN_HOMES:
        public = getattr(import_module(home), name, None)
        if callable(public):
            return public  # type: ignore[no-any-return]  # a public function
    if hasattr(rl.Tensor, name):
        return method_for(name)
    for prefix in ("linalg_", "special_", "fft_"):
        if name.startswith(prefix):
            module = import_module(f"ridgeline.{prefix[:-1]}")
            public = getattr(module, name.removeprefix(prefix), None)
            if callable(public):
                return public  # type: ignore[no-any-return]  # a public function
    raise UnmappedError(f"{full} is not here")


_PYTHON_NAMES = {module.__name__ for module in _PYTHON} | {"_operator"}


def _is_hashable(target: Any) -> bool:
    return getattr(type(target), "__hash__", None) is not None
