"""What Python makes while a function is traced and no guard can see: refused, with the reason.

`next(iterator)` and Python's or NumPy's random numbers give a value once, while tracing, and every
later call would use that value again.
"""

from __future__ import annotations

import dis
import io
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ridgeline.graph.origins import PACKAGE
from ridgeline.tensors.execute import CaptureError


class Hazards:
    """Collects what makes a trace unfit to be replayed; `check` raises for it."""

    def __init__(self) -> None:
        self._found: CaptureError | None = None
        self._streams: dict[int, tuple[Any, bytes, str]] = {}

    def check(self) -> None:
        """Raise for the first thing that a replay could not repeat."""
        for stream, before, text in self._streams.values():
            if _state(stream) != before:
                self._draw(text, "")
        if self._found is not None:
            raise self._found

    def value(self, value: Any, text: str) -> None:
        """Something that the function can reach."""
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            self._report(
                f"{text} is an iterator, which jit can advance only while it traces",
                help="take the next item outside and pass it as an argument",
            )
        elif _is_stream(value):
            self._streams.setdefault(id(value), (value, _state(value), text))

    def entered(self, code: types.CodeType) -> None:
        """The user's code runs: where it names `random`, NumPy's own stream is watched."""
        if "random" in code.co_names:
            self.value(np.random.mtrand._rand, "np.random")

    def called(self, frame: types.FrameType, function: Callable[..., Any]) -> None:
        """A built-in function is called: those of Python's random streams are refused."""
        if isinstance(getattr(function, "__self__", None), random.Random):
            caller: types.FrameType | None = frame
            while caller is not None and caller.f_code.co_filename == random.__file__:
                caller = caller.f_back
            if caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
                self._draw("the random module", f"{caller.f_code.co_filename}:{caller.f_lineno}")

    def _draw(self, text: str, place: str) -> None:
        self._report(
            f"{text} gives random numbers only while jit traces; every call would see the same",
            note=f"at {place}" if place else "",
            help="draw with ridgeline's own functions, such as rand(), or pass the number as an "
            "argument",
        )

    def _report(self, message: str, help: str, note: str = "") -> None:
        if self._found is None:
            self._found = CaptureError(message, note=note, help=help)


def _is_stream(value: Any) -> bool:
    """True for a random stream of NumPy, which loads them when one is first asked for."""
    loaded = sys.modules.get("numpy.random")
    return loaded is not None and isinstance(value, loaded.Generator | loaded.RandomState)


def _state(stream: Any) -> bytes:
    """Where a stream of random numbers stands."""
    held = stream.get_state() if hasattr(stream, "get_state") else stream.bit_generator.state
    return pickle.dumps(held)


def loads_global(code: types.CodeType, name: str) -> bool:
    """True where code reads a global of this name, not an attribute."""
    return any(
        i.argval == name and i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        for i in dis.get_instructions(code)
    )
