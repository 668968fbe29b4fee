"""Blocks that change something for a while give it back wherever an interrupt comes.

CPython raises what a signal's handler raises where a Python function begins, unless it is sealed,
and where a call returns (and where a loop turns): a profiler is told of both, so one that raises at
the n-th event, for every n, tries all moments there are.
"""

from __future__ import annotations

import _thread
import ast
import dis
import gc
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from operator import call
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.atomic import sealed
from ridgeline.collector import paused
from ridgeline.compiler.background import background
from ridgeline.execution import flush_log
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.origins import running
from ridgeline.graph.sizes import _deciding
from ridgeline.loops.schedule import _noting, noted
from ridgeline.nn.parameter import deferred
from ridgeline.nn.utils import parametrize
from ridgeline.record.modes import modes
from ridgeline.record.mutation import epoch
from ridgeline.runtime.cuda import device
from ridgeline.tracing.subtrace import Enclosure
from ridgeline.train.interrupt import Interrupt as Stopping

PACKAGE = Path(rl.__file__).parent
MOMENTS = ("call", "c_return")


class Interrupt(BaseException):
    """What a handler raises."""


def _begins_sealed(frame: Any, event: str) -> bool:
    """True where the first instruction of a function does not look for signals."""
    begin = (i for i in dis.get_instructions(frame.f_code) if i.opname == "RESUME")
    return event == "call" and next(begin).arg == 2


def interrupted(action: Callable[[], object], moment: int) -> bool:
    """Run an action that an interrupt ends at its n-th moment; whether it came that far."""
    left = moment

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if event in MOMENTS and argument is not sys.setprofile and not _begins_sealed(frame, event):
            left -= 1
            if left < 0:
                raise Interrupt

    try:
        sys.setprofile(profile)
        action()
        sys.setprofile(None)
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def _settings() -> tuple[Any, ...]:
    return rl.config.tier, rl.config.threads


def _modes() -> tuple[Any, ...]:
    found = modes.gradients, modes.eager, modes.on_read, modes.capture, modes.anomaly
    return *found, modes.autocast, modes.call_recorder


def _handlers() -> tuple[Any, ...]:
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


def _nothing() -> None:
    pass


BLOCKS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "no_grad": (rl.no_grad, _modes),
    "inference_mode": (rl.inference_mode, _modes),
    "set_grad_enabled": (lambda: rl.set_grad_enabled(False), _modes),
    "eager": (rl.eager, _modes),
    "autocast": (lambda: rl.autocast("cpu", dtype=rl.bfloat16), _modes),
    "detect_anomaly": (rl.autograd.detect_anomaly, _modes),
    "deferred": (deferred, _modes),
    "a subtrace": (lambda: Enclosure().inside(), _modes),
    "the code around a subtrace": (lambda: Enclosure().around(), _modes),
    "the collector": (lambda: paused, gc.isenabled),
    "a setting": (lambda: rl.config.override(tier="interpreter", threads=1), _settings),
    "fork_rng": (rl.random.fork_rng, rl.get_rng_state),
    "cached": (parametrize.cached, lambda: parametrize._cache.kept),
    "facts": (lambda: SizeFacts({}).deciding(), lambda: (_deciding.decide, _deciding.number)),
    "record_flushes": (rl.record_flushes, lambda: flush_log._kept.logs),
    "the compiler needed": (background.needed, lambda: len(background._needed)),
    "notes": (lambda: noted({}), lambda: _noting.notes),
    "no reports of NumPy": (float_errors_ignored, np.geterr),
    "stopping between steps": (Stopping, _handlers),
}


def _check_moments(action: Callable[[], object], holds: Callable[[], bool]) -> None:
    """Interrupt an action at each of its moments, after which a condition holds."""
    for moment in count():
        came = interrupted(action, moment)
        assert holds(), f"after moment {moment}"
        if not came:
            break
    assert moment > 3


@pytest.mark.parametrize("name", BLOCKS)
def test_an_interrupt_leaves_a_block_as_it_found_it(name: str) -> None:
    make, state = BLOCKS[name]
    before = state()

    def action() -> None:
        with make():
            rl.rand(2) if name == "fork_rng" else _nothing()
            _nothing()
        _nothing()

    _check_moments(action, lambda: state() == before)


def test_an_interrupted_evaluation_leaves_the_reports_of_numpy_on() -> None:
    before = np.geterr()

    def action() -> None:
        with rl.config.override(tier="interpreter"):
            (rl.arange(4) / 0).sum().numpy()

    _check_moments(action, lambda: np.geterr() == before)


def test_no_module_switches_the_reports_of_numpy_off_by_python_code() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert "errstate(" not in path.read_text(), f"{path}: use float_errors_ignored"


def test_the_moments_find_an_exit_in_python() -> None:
    class Left:
        entered = 0

        def __enter__(self) -> None:
            self.entered += 1

        def __exit__(self, *error: object) -> None:
            self.entered -= 1

    block = Left()

    def action() -> None:
        with block:
            _nothing()

    with pytest.raises(AssertionError, match="moment"):
        _check_moments(action, lambda: block.entered == 0)


def test_a_pending_signal_waits_until_a_sealed_function_has_begun() -> None:
    done: list[str] = []

    def plain() -> None:
        done.append("plain")

    @sealed
    def whole() -> None:
        done.append("sealed")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        for function in (plain, whole):
            with pytest.raises(KeyboardInterrupt):  # no handler runs inside the call of `list`
                list(map(call, (_thread.interrupt_main, function)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["sealed"]


def test_an_exception_inside_passes_and_blocks_nest() -> None:
    for name, (make, state) in BLOCKS.items():
        before = state()
        with pytest.raises(ZeroDivisionError), make(), make(), ExitStack() as stack:
            stack.enter_context(make())
            raise ZeroDivisionError(name)
        assert state() == before, name


def test_a_block_can_be_entered_again_inside_itself() -> None:
    block = rl.no_grad()
    with block:
        with rl.enable_grad(), block:
            assert not modes.gradients
        assert not modes.gradients
    assert modes.gradients


def test_an_interrupted_handle_takes_its_hook_out() -> None:
    model = nn.Linear(2, 2)
    entered = 0

    def action() -> None:
        nonlocal entered
        with handle as given:
            entered += given is handle
            _nothing()
        _nothing()

    for moment in count():
        before, entered = epoch.value, 0
        handle = model.register_forward_hook(_nothing)
        came = interrupted(action, moment)
        assert len(model._forward_hooks) == (0 if entered else 1), f"after moment {moment}"
        assert not entered or epoch.value > before + 1, "jit is to notice"
        handle.remove()
        if not came:
            break
    assert entered and moment > 2


def test_a_hook_put_first_loses_no_other_where_an_interrupt_comes() -> None:
    model = nn.Linear(2, 2)
    handles = [model.register_forward_hook(_nothing) for _ in range(3)]
    kept = list(model._forward_hooks)
    for moment in count():
        came = interrupted(lambda: model.register_forward_hook(_nothing, prepend=True), moment)
        assert list(model._forward_hooks)[-3:] == kept, f"after moment {moment}"
        if not came:
            break
    assert moment > 3 and len(handles) == 3


def test_an_interrupted_visit_gives_the_context_back(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = ["before"]
    driver = {"cuCtxPushCurrent": contexts.append, "cuCtxPopCurrent": contexts.pop}
    monkeypatch.setattr(device, "function", driver.__getitem__)
    monkeypatch.setattr(device._here, "device", None)
    visited: Any = SimpleNamespace(context="visited")

    def action() -> None:
        with device._visiting(visited):
            assert contexts == ["before", "visited"]
            assert device._here.device is visited
            _nothing()
        _nothing()

    _check_moments(action, lambda: contexts == ["before"] and device._here.device is None)


def test_an_interrupted_module_leaves_no_path() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), rl.ones(1, 2)
    for moment in range(0, 400, 3):
        interrupted(lambda: model(x), moment)
        assert running.module_path == ""


def test_no_block_with_state_is_left_by_a_function_that_is_not_sealed() -> None:
    """Files and what is thrown away with its owner apart."""
    allowed = {
        "cli/diagnose.py", "codegen/cuda/expressions.py", "codegen/cuda/statements.py",
        "codegen/cuda/vectors.py", "codegen/llvm/expressions.py",
        "compiler/background.py", "profile/trace/files.py", "simt/frontend/context.py",
        "simt/simulator/storage.py", "tracing/reads/hooks.py",
        "train/display.py", "train/events.py", "train/log.py",
        "utils/tensorboard.py",
    }  # fmt: skip
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                decorated = [ast.unparse(d) for d in node.decorator_list]
                plain = node.name == "__exit__" and "sealed" not in decorated
                if plain or "contextmanager" in decorated:
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == allowed
