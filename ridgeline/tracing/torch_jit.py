"""torch.jit's names, as attributes of `jit`: scripts and traces are functions under jit.

There is no second language here: what torch compiles from the source of a function is captured
when it is called. So marks for that compiler leave a function as it is.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ridgeline.errors import RidgelineError
from ridgeline.record.modes import modes
from ridgeline.tracing.jit import JitFunction, jit as jit


def script(obj: Any, **options: Any) -> Any:
    """A function under jit; a class or a module as it is, to be called as before."""
    if isinstance(obj, type) or not callable(obj) or hasattr(obj, "named_parameters"):
        return obj
    return JitFunction(obj)


def trace(func: Any, example_inputs: Any = None, **options: Any) -> Any:
    """A function or a module as it is: it is captured when it is called with new types."""
    return func


def _kept(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function itself."""
    return fn if callable(fn) else lambda decorated: decorated


def is_scripting() -> bool:
    """False: no code is compiled from its source."""
    return False


def is_tracing() -> bool:
    """True while jit captures a function."""
    return modes.capture is not None


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


def isinstance_(value: Any, kinds: Any) -> bool:
    """Python's own question."""
    return isinstance(value, kinds)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, which records its work and waits for none."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    """What `fork` gave."""
    return future


def _no_files(*args: Any, **kwargs: Any) -> Any:
    raise RidgelineError(
        "there are no files of scripted modules here",
        help="save a state_dict with ridgeline.save, and make the module by its class",
    )


def _block(*args: Any) -> AbstractContextManager[None]:
    """A block that changes nothing."""
    return nullcontext()


class ScriptModule:
    """A class that no module here is of."""


class TracerWarning(UserWarning):
    """torch's warning of what a trace does not see; jit guards it or refuses."""


class _Annotations:
    """torch.jit.annotations: typing's names."""

    List, Dict, Tuple, Optional, Any = (
        typing.List, typing.Dict, typing.Tuple, typing.Optional, typing.Any,  # noqa: UP006
    )  # fmt: skip


NAMES: dict[str, Any] = {
    "Final": Final, "Attribute": annotate, "ScriptFunction": JitFunction,
    "ScriptModule": ScriptModule, "TracerWarning": TracerWarning,
    "annotate": annotate, "annotations": _Annotations,
    "export": _kept, "fork": fork, "freeze": _kept, "fuser": _block, "ignore": _kept,
    "interface": _kept, "is_scripting": is_scripting, "is_tracing": is_tracing,
    "isinstance": isinstance_, "load": _no_files, "optimize_for_inference": _kept,
    "optimized_execution": _block, "save": _no_files, "script": script,
    "script_if_tracing": _kept, "script_method": _kept, "trace": trace, "trace_module": trace,
    "unused": _kept, "wait": wait, "_script_if_tracing": _kept,
    "_overload": _kept, "_overload_method": _kept,
}  # fmt: skip
for _name, _value in NAMES.items():
    setattr(jit, _name, _value)
