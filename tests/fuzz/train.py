"""Running training programs in every way, and comparing what they leave behind with torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

import ridgeline as rl
from tests.fuzz.deviations import Deviations, Stop, interpreted_programs, with_marks
from tests.fuzz.program import Array
from tests.fuzz.training import Training, portable
from tests.fuzz.ways import torch

Trace = list[Array | None]
_NEAR = 1e-9  # float64 through a few hundred ops whose derivatives are of the order of one
_GIVEN = (0.5, -0.25, 1.0)


@contextmanager
def matching() -> Iterator[None]:
    """Inside, calls are matched against tapes, and what is recorded is interpreted."""
    with interpreted_programs(), rl.config.override(tape=True):
        yield


WAYS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[Any], Any]]] = {
    "deferred": (nullcontext, lambda step: step),
    "deferred, interpreted": (lambda: rl.config.override(tier="interpreter"), lambda step: step),
    "deferred, compiled": (lambda: rl.config.override(tier="compiled"), lambda step: step),
    "eager": (rl.eager, lambda step: step),
    "matched": (matching, lambda step: step),
    "jit": (lambda: rl.config.override(tier="interpreter"), rl.jit),
    "jit, compiled": (lambda: rl.config.override(tier="compiled"), rl.jit),
}
_COMPILED = 6  # one program in so many is compiled as well


def ways_of(seed: int, place: str) -> tuple[str, ...]:
    """The ways in which the program of a seed is run."""
    if place == "cuda":
        return ("deferred", "jit, compiled")
    plain = ("deferred, interpreted", "matched", "eager", "jit")
    more = ("deferred", "deferred, compiled", "jit, compiled")
    return plain if seed % _COMPILED else (*plain, *more)


def find(seed: int, place: str = "cpu") -> str | None:
    """What is wrong with the training program of a seed, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _find(seed, place)


def _find(seed: int, place: str) -> str | None:
    program = portable(seed, _refused)
    wanted = truth(program)
    for way in ways_of(seed, place):
        manager, wrap = WAYS[way]
        chosen, expected = program, wanted
        if way.startswith("jit"):
            if not program.traceable:
                continue
            chosen = program.without_reads()
            expected = truth(chosen)
        if way == "matched":
            chosen = with_marks(program)
            expected = truth(chosen)
        try:
            with manager():
                got = run(chosen, rl, wrap, place)
        except Exception as error:
            return _said(chosen, way, f"{type(error).__name__}: {error}")
        detail = _difference(got, expected)
        if detail:
            return _said(chosen, way, detail)
    return None


def truth(program: Training) -> Trace:
    """What torch computes where it saves copies for its gradients.

    Of itself torch saves the tensor, and after a write to its `data` takes what it holds by then.
    """

    def copied(saved: Any) -> Any:
        return saved.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(copied, lambda saved: saved):
        return run(program, torch)


def run(
    program: Training, lib: Any, wrap: Callable[[Any], Any] = lambda step: step, place: str = "cpu"
) -> Trace:
    """What the calls return and leave in parameters, gradients and Python objects."""
    deviations = Deviations(program.seed, program)
    names: dict[str, Any] = {"lib": lib, "D": place, "at": deviations.at}
    exec(compile(program.text(), "<training>", "exec"), names)
    step, found = wrap(names["step"]), list[Any]()
    for number in range(program.calls):
        x = names["made"](*_GIVEN) * (number % 3 + 1)
        deviations.begin()
        try:
            returned = step(x)
        except Stop:
            returned = []
        found += [None if t is None else t.detach() for t in returned]
        found += [p.detach().clone() for p in names["PARAMETERS"]]
        found += [None if p.grad is None else p.grad.detach().clone() for p in names["PARAMETERS"]]
        if program.calls > 3 and program.seed % 2:  # nothing waits at the end of a call
            found = [None if t is None else t + 0 * t.sum().item() for t in found]
    found += [names["box"].h, names["held"][-1], names["kept"]["a"]]
    arrays = [None if t is None else np.array(t.detach().cpu().numpy()) for t in found]
    return [*arrays, np.array(names["seen"], np.float64)]


def _refused(program: Training) -> int | None:
    """The place of the line at which torch raises, or None."""
    try:
        run(program, torch)
    except Exception as error:
        return _line(program, error)
    return None


def _line(program: Training, error: BaseException) -> int:
    """Which line of a step was running when an error came."""
    first = program.text().split("\n").index("def step(*given):") + 3  # counted from one, behind x
    place, trace = -1, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == "<training>" and code.co_name == "step":
            place = trace.tb_lineno - first
        trace = trace.tb_next
    assert place >= 0, f"the setup failed: {error!r}"
    for number, line in enumerate(program.lines):
        place -= line.count("\n") + 1
        if place < 0:
            return number
    return len(program.lines) - 1


def _difference(got: Trace, wanted: Trace) -> str:
    for place, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        if (ours is None) != (theirs is None):
            return f"value {place}: {ours} instead of {theirs}"
        if ours is None or theirs is None:
            continue
        if ours.shape != theirs.shape or not np.allclose(
            ours, theirs, rtol=_NEAR, atol=_NEAR, equal_nan=True
        ):
            return f"value {place}: {ours} instead of {theirs}"
    return ""


def _said(program: Training, way: str, detail: str) -> str:
    """A disagreement, and the program to run."""
    return f"{way}: {detail}\nimport ridgeline as rl\n\nlib, D = rl, 'cpu'\n{program.text()}"
