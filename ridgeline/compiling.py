"""`compile` and torch.compiler's names: jit for programs written for torch.

As in torch a compiled module is a module around the first one, and code that cannot be captured
runs undecorated, unless `fullgraph=True` asks for an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from ridgeline.module_paths import unknown as _unknown
from ridgeline.nn.module import Module
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import modes
from ridgeline.tracing.jit import JitFunction

__path__: list[str] = []  # as `torch._dynamo` it has modules inside: see module_paths.py


class _Compiled:
    """A jitted function that runs undecorated from the first call on that cannot be captured."""

    def __init__(self, function: Callable[..., Any], dynamic: bool | None, fullgraph: bool) -> None:
        self._run: Callable[..., Any] = JitFunction(function, dynamic=dynamic)
        self._plain, self._fullgraph = function, fullgraph
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._run(*args, **kwargs)
        except CaptureError:
            if self._fullgraph or self._run is self._plain or modes.capture is not None:
                raise
            self._run = self._plain
        return self._run(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _Compiled(self._plain.__get__(instance, owner), False, self._fullgraph)


class OptimizedModule(Module):
    """A compiled module: what it is asked for besides calls is answered by the first one."""

    _orig_mod: Module

    def __init__(self, module: Module, dynamic: bool | None, fullgraph: bool) -> None:
        super().__init__()
        self._orig_mod = module
        self.training = module.training
        object.__setattr__(self, "_compiled", _Compiled(module, dynamic, fullgraph))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the compiled module computes."""
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """A function or a module that runs as compiled code; `jit` under torch's name for it.

    `backend`, `mode` and `options` choose between compilers of torch's and change nothing here.
    """
    if model is None:
        return partial(compile, fullgraph=fullgraph, dynamic=dynamic, disable=disable)
    if disable:
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, dynamic, fullgraph)
    return _Compiled(model, dynamic, fullgraph)


def is_compiling() -> bool:
    """True while a function is captured."""
    return modes.capture is not None


is_dynamo_compiling = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself: what runs inside a captured function is captured with it."""
    return fn if fn is not None else partial(disable, recursive=recursive)


def allow_in_graph(fn: Any) -> Any:
    """The function itself: every function is allowed."""
    return fn


assume_constant_result = allow_in_graph


def reset() -> None:
    """Nothing: what was compiled is found by what it computes, and is never wrong."""


cudagraph_mark_step_begin = reset


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The one compiler there is."""
    return ["ridgeline"]


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: tensors that a captured function reads and writes stay where they are."""


mark_static = mark_dynamic = maybe_mark_dynamic = mark_unbacked = mark_static_address


def graph_break(msg: str = "") -> None:
    """Nothing: what cannot be captured says so itself."""


class _Settings:
    """Settings of torch's own compiler: kept and read back, and of no effect here."""

    suppress_errors = False
    cache_size_limit = recompile_limit = 8

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _Settings())
        return vars(self)[name]


config = _Settings()
__getattr__ = _unknown(__name__)
