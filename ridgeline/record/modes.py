"""The modes of the calling thread: gradients on or off, eager, inside a jit capture.

Everything that records work reads this one thread-local object, so a mode set in one thread
never leaks into another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import wraps
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any

from ridgeline.atomic import Block, Switch, sealed

if TYPE_CHECKING:
    from ridgeline.dtypes import DType
    from ridgeline.graph.anomaly import Anomaly
    from ridgeline.record.captures import CallObserver, RunningCapture


class RankState:
    """State of a simulated rank that must not be shared, since it holds it while it waits."""

    def __init__(self) -> None:
        self.flushing = threading.RLock()  # instead of the lock of all threads
        # functions that were jitted outside of it, with traces over its own state
        self.jitted: dict[Any, Any] = {}


class Modes(threading.local):
    """Per-thread modes; class attributes are the defaults every thread starts with."""

    gradients: bool = True  # do results of tracked operands require gradients
    eager: bool = False  # compute every op as soon as it is recorded
    on_read: bool = False  # leave what is recorded out of flushes until somebody reads it
    reading: bool = False  # what is computed now is computed for somebody who looks at it
    capture: RunningCapture | None = None  # the jit capture that this thread is inside of
    call_recorder: CallObserver | None = None  # told of what the function that jit traces reads
    anomaly: Anomaly | None = None  # looks for the op that makes a NaN
    rank: RankState | None = None  # the simulated rank that this thread is
    autocast: tuple[tuple[str, DType], ...] = ()  # narrow types by kind of device, see autocast.py


modes = Modes()


def called(function: Any) -> Any:
    """A user's function as the package calls it: while jit traces, a copy reporting its reads."""
    recorder = modes.call_recorder
    return function if recorder is None else recorder.called(function)


def called_method(owner: Any, name: str) -> Any:
    """`called` for a method that a user may have overridden."""
    recorder = modes.call_recorder
    return recorder.called_method(owner, name) if recorder is not None else getattr(owner, name)


class Mode(Block):
    """A context manager and a decorator: each call of a decorated function is a block."""

    __slots__ = ()

    def _another(self) -> Mode:
        """A block like this one."""
        raise NotImplementedError

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._another():
                return called(function)(*args, **kwargs)

        return run


class GradientMode(Mode):
    """Switches gradients on or off."""

    __slots__ = ("_before", "_enabled")

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before: tuple[bool, Any] | None = None  # what was before each block entered with it

    # there is no call in either: see atomic.py

    def __enter__(self) -> GradientMode:
        self._before = modes.gradients, self._before
        modes.gradients = self._enabled
        return self

    @sealed
    def __exit__(self, *raised: object) -> None:
        modes.gradients, self._before = self._before  # type: ignore[misc]

    def _another(self) -> GradientMode:
        return GradientMode(self._enabled)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not isgeneratorfunction(function):
            return super().__call__(function)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _in_blocks(self._another, called(function)(*args, **kwargs))

        return run


def _in_blocks(block: Callable[[], Mode], steps: Generator[Any, Any, Any]) -> Any:
    """A generator that is inside a block only while it runs."""
    resume: Callable[[Any], Any] = steps.send
    given: Any = None
    while True:
        try:
            with block():
                found = resume(given)
        except StopIteration as ended:
            return ended.value
        try:
            given, resume = (yield found), steps.send
        except GeneratorExit:
            with block():
                steps.close()
            raise
        except BaseException as raised:
            given, resume = raised, steps.throw


def no_grad(function: Callable[..., Any] | None = None) -> Any:
    """Inside, results require no gradient: `with no_grad():`, `@no_grad()` or `@no_grad`."""
    mode = GradientMode(False)
    return mode if function is None else mode(function)


def enable_grad(function: Callable[..., Any] | None = None) -> Any:
    """Inside, gradients are tracked again, also within `no_grad`."""
    mode = GradientMode(True)
    return mode if function is None else mode(function)


def inference_mode(mode: Any = True) -> Any:
    """`no_grad` under torch's other name for it, also as `@inference_mode`."""
    if callable(mode):
        return GradientMode(False)(mode)
    return GradientMode(not mode)


def set_grad_enabled(mode: bool) -> GradientMode:
    """Switch gradients from here on; used as a context manager, for a block."""
    switched = _Switched(bool(mode))
    switched._before = modes.gradients, None
    modes.gradients = switched._enabled  # after this nothing looks for signals until the block
    return switched


class _Switched(GradientMode):
    """A mode that is already on; leaving the block restores the one before the call."""

    __slots__ = ()

    @sealed
    def __enter__(self) -> GradientMode:
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        assert self._before is not None
        modes.gradients = self._before[0]  # only the function's calls are to be switched
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """True where results of tracked operands require gradients."""
    return modes.gradients


class eager(Mode, Switch):
    """Inside, every op is computed at once, in program order; for debugging."""

    __slots__ = ("_enabled",)

    def __init__(self, enabled: bool = True) -> None:
        Switch.__init__(self, modes, eager=enabled)
        self._enabled = enabled

    def _another(self) -> eager:
        return eager(self._enabled)
