"""Attack: loops whose steps are like those before, and then are not, with tapes and without.

The lines of a step vary in later calls: by a value, a length, a branch, a mode, a write through a
view, random numbers, a jitted function. Some calls end
by an exception, keep something longer, or have another thread read what is not computed yet. Some
trials run several such loops in threads, and some are interrupted by signals time and again; after
that a loop that nobody disturbs must be as if nothing had happened.
"""

from __future__ import annotations

import random
import signal
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.config import config
from ridgeline.tape import native
from ridgeline.tape.tape_recorder import TapeRecorder
from tests.attacks.attack import Attack
from tests.fuzz.deviations import Deviations, Stop, interpreted_programs, with_marks
from tests.fuzz.faults import Fault
from tests.fuzz.training import Training, write

_NEAR = 1e-9  # float64; a flush may come elsewhere, and sums may be taken otherwise then
_CALLS, _ALIKE = 11, 5  # of a step, and how many of them are alike
_LINES = (
    "e = x[lib.tensor(NUMBER % 3)] * w0",
    "e = (x * w0)[lib.tensor([NUMBER % 3, 0 if NUMBER < 2 else -1])]",
    "e = lib.repeat_interleave(x, lib.tensor([1 + NUMBER % 2, 1, 1])).sum() * w0",
    "e = lib.nn.functional.one_hot(lib.tensor([0, 1 + NUMBER % 2])).sum(0)[:1] * w1",
    "e = x * float(NUMBER % 3) + w0",
    "e = x[NUMBER % 2:].sum() * w0",
    "e = lib.nn.functional.dropout(x * w1, 0.5) + lib.rand(3, dtype=lib.float64)",
    "e = (x * w0).sum() if NUMBER % 3 == 0 else (x + w0).mean()",
    "BUFFER[1:] += x[1:]\ne = BUFFER * w0",
    "BUFFER[NUMBER % 3] = x.sum()\ne = BUFFER[:2] * w0[1:]",
    "e = jitted(x) * w1.detach()",
    "BUFFER[2:] += 1\ne = jitted(x)",
    "with lib.no_grad() if NUMBER % 3 == 2 else lib.enable_grad():\n    e = x * w0\ne = e * 2",
    "e = (ROWS[NUMBER : NUMBER + 2] * w0).sum(0)",
    "e = w0.detach().clone().requires_grad_()\n(e * x).sum().backward()\ne = e.grad * w1",
    "e = lib.cat([model(x), w0 * x]).softmax(0)",
    "f = x.exp()\ne = f * BUFFER\nf.mul_(2)\ne = e + f\ndel f",
)
_ENDS = (
    "loss = (total ** 2).sum()\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    "loss = total.sum()\nloss.backward()\nwith lib.no_grad():\n    w0.sub_(0.1 * w0.grad)\n"
    "    if NUMBER % 2:\n        w0.grad = None",
    "loss = total.mean().detach()",
)
_SETUP = """\
BUFFER = made(0.25, -0.5, 1.0)
ROWS = made(*[[0.125 * row, -0.25, 0.5 * row] for row in range(12)])
jitted = lib.jit(lambda r: r * 2 + BUFFER[0])
"""


class Interrupt(BaseException):
    """What the handler of a signal raises."""


def _program(seed: int) -> Training:
    chosen = random.Random(seed)
    lines = ["parts = []"]
    for line in chosen.choices(_LINES, k=chosen.randint(1, 4)):
        if "grad" not in line and chosen.random() < 0.5:
            line = "with lib.no_grad():\n    " + line.replace("\n", "\n    ")
        after = "parts.append(e.sum().detach().clone())", "held.append(e.detach().clone())"
        lines += [line, chosen.choice(after)]
        if chosen.random() < 0.2:
            lines.append("seen.append(e.sum().item())")
        if chosen.random() < 0.5:
            lines.append("del e")
    lines.append("total = model(x) * w0 + sum(parts)")
    if chosen.random() < 0.5:  # gradients flow through graphs of before flushes, too
        lines.append("total = total + e.sum() if 'e' in locals() else total")
    if chosen.random() < 0.4:
        lines.append("seen.append(total.sum().item())")
    end = chosen.choice(_ENDS)
    if chosen.random() < 0.4:
        end = end.replace("\n", "\nseen.append(loss.item())\n", 1)
    lines += [end, "t0 = loss.detach()"]
    return replace(with_marks(replace(write(seed), lines=tuple(lines))), calls=_CALLS)


class _Loop:
    """A program in a world of its own."""

    def __init__(self, program: Training, deviate: bool = True) -> None:
        self._deviations = Deviations(
            program.seed, program if deviate else replace(program, calls=0)
        )
        self.names: dict[str, Any] = {"lib": rl, "D": "cpu", "at": self._deviations.at}
        text = program.text().replace("\ndef step(", f"\n{_SETUP}\ndef step(")
        exec(compile(text, "<training>", "exec"), self.names)

    def step(self, number: int) -> list[Any]:
        """What one call leaves behind; the kind of an error that ended it."""
        names, number = self.names, max(0, number - _ALIKE)
        names["NUMBER"] = number
        self._deviations.begin()
        found: list[Any] = []
        try:
            returned = names["step"](names["made"](0.5, number - 0.25, 1.0))
            found += [tensor.detach().clone() for tensor in returned]
            returned = []  # no graph is kept, so that what comes next is on a tape
        except (Stop, rl.RidgelineError, NameError) as error:
            found.append(type(error).__name__)
        parameters = names["PARAMETERS"]
        found += [*parameters, names["BUFFER"], *[p.grad for p in parameters]]
        return [*map(_value, found)]

    def run(self, calls: int) -> list[Any]:
        """Values of all that the calls left behind."""
        found = [part for number in range(calls) for part in self.step(number)]
        kept = [self.names["box"].h, self.names["held"][-1], self.names["kept"]["a"]]
        return [*found, *map(_value, kept), np.array(self.names["seen"], np.float64)]


def _value(found: Any) -> Any:
    return np.array(found.detach().tolist()) if isinstance(found, rl.Tensor) else found


def _difference(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            same = a.shape == b.shape and a.dtype == b.dtype
            if not same or not np.allclose(a, b, rtol=_NEAR, atol=_NEAR, equal_nan=True):
                return f"value {place}: {a} instead of {b}"
        elif a is not b and a != b:
            return f"value {place}: {a} instead of {b}"
    return ""


def _outcome(program: Training, tape: bool, deviate: bool = True) -> list[Any] | Exception:
    with config.override(tape=tape):
        rl.manual_seed(5)
        try:
            return _Loop(program, deviate).run(program.calls)
        except Exception as error:
            return error


def _compare(program: Training, deviate: bool = True) -> None:
    wanted, found = _outcome(program, False, deviate), _outcome(program, True, deviate)
    if isinstance(wanted, Exception):
        return  # nothing to do with tapes
    if isinstance(found, Exception):
        raise found
    said = _difference(found, wanted)
    assert not said, f"{said}\n{program.text()}"


def _in_threads(programs: Sequence[Training]) -> None:
    """Some loops at the same time; what one of them draws is no business of another."""
    quiet = [p for p in programs if "rand" not in p.text() and "dropout" not in p.text()]
    wanted = [_outcome(program, False) for program in quiet]
    found: list[Any] = [None] * len(quiet)

    def run(place: int) -> None:
        try:
            found[place] = _Loop(quiet[place]).run(quiet[place].calls)
        except Exception as error:
            found[place] = error

    with config.override(tape=True):
        threads = [threading.Thread(target=run, args=(place,)) for place in range(len(quiet))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for program, a, b in zip(quiet, found, wanted):
        if not isinstance(b, Exception):
            assert not isinstance(a, Exception), a
            said = _difference(a, b)
            assert not said, f"{said}\n{program.text()}"


def _interrupted(seed: int, program: Training) -> None:
    """Signals while calls are matched; then the same loop in a world of its own."""
    chosen = random.Random(seed)

    def handler(number: int, frame: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with config.override(tape=True):
            loop = _Loop(program, deviate=False)
            for number in range(2 * program.calls):
                try:
                    if number > 3:
                        signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-5, 8e-3))
                    loop.step(number % program.calls)
                except Interrupt:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    _compare(program, deviate=False)


def _modes(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    w.grad = None
    with rl.no_grad() if step == _LATE else rl.enable_grad():
        made = (rows[0] * w).exp()
    if made.requires_grad:
        made.sum().backward()
    return [made.requires_grad, made.detach(), w.grad]


def _views(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    parts = (rows[:4] * 2.0).chunk(2)  # the same calls, and other views of what they gave
    return [parts[step == _LATE].exp()]


def _turned(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    square = rows[:3]
    return [(square, square.t())[step == _LATE].exp() * 2.0]


def _lengths(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    return [rows[: 4 - (step == _LATE)].exp() * 2.0]


def _twice(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    one, other = rows[step], rows[step + 1]
    return [one * (other, one)[step == _LATE], (one + other) * (one, other)[step == _LATE + 1]]


def _held(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    made = rows[0] * 2.0
    if step == _LATE:
        held.append(made)
    made = made.exp()
    if step != _LATE:
        held.append(made)
    found = (made + 1.0).sum()
    del made
    return [found, *held]


def _values(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    with rl.no_grad():
        w.mul_(1.0 + 0.5 * (step % 2))
        found = w * rows[step] + rl.tensor([0.5 * step])
        kind = rl.float64 if step != _LATE else rl.float32
        return [found, rl.ones(3, dtype=kind) * rl.tensor([step, 1, 2], dtype=kind)]


def _numbers(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    late = step == _LATE
    whole = rl.tensor([1, 2, step]) * (2 if late else 2.0)
    return [whole + 1, rows[0] / (-0.0 if step == _LATE + 1 else 0.0)]


def _graphs(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    w.grad = None
    made = (rows[0] * w).exp()
    seen = made.sum().item()
    if step == _LATE:
        made.sum().backward()
    return [np.array(seen), made.requires_grad, w.grad]


def _written(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    made = (rows[0] * w).exp()
    seen = made.sum().item()
    w.grad = rl.tensor([0.5, 0.25, 1.0], dtype=w.dtype)
    if step == _LATE:  # the graph of before the flush goes by what was there
        rl.optim.SGD([w], lr=0.5).step()
    w.grad = None
    (made * w).sum().backward()
    return [np.array(seen), w.grad]


def _both(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    w.grad = None
    one, other = (rl.tensor(rows[place].tolist(), dtype=w.dtype) for place in (step, step + 1))
    made = (one * w).exp() * one
    seen = made.sum().item()
    (made * (one, other)[step == _LATE]).sum().backward()
    return [np.array(seen), w.grad]


def _before(step: int, w: rl.Tensor, rows: rl.Tensor, held: list[rl.Tensor]) -> list[Any]:
    w.grad = None
    made = rows[0] * w
    made = made.sin() if step == _LATE else made.exp()
    seen = made.sum().item()
    (made * made).sum().backward()
    return [np.array(seen), w.grad]


_LATE = 6  # the step in which a facet of the calls is another
_FACETS = (
    _modes, _views, _turned, _lengths, _twice, _held, _values, _numbers, _graphs, _written, _both,
    _before,
)  # fmt: skip


def _facets() -> None:
    """Steps that differ from those before in one facet of a call alone."""
    for facet in _FACETS:
        found: list[list[Any]] = []
        for tape in (True, False):
            w = rl.tensor([0.5, -1.0, 2.0], dtype=rl.float64).requires_grad_()
            rows = rl.arange(36.0, dtype=rl.float64).reshape(12, 3) / 8
            held: list[rl.Tensor] = []
            left: list[Any] = []
            with config.override(tape=tape):
                for step in range(9):
                    held.clear()
                    left += map(_value, facet(step, w, rows, held))
            found.append(left)
        said = _difference(*found)
        assert not said, f"{facet.__name__}: {said}"


def trial(seed: int) -> None:
    """Raise where a loop leaves behind something else with tapes than without."""
    by_code = config.native_tape and seed // 8 % 2 == 1 and native.is_made(TapeRecorder)
    matching = config.override(native_tape=by_code)
    with warnings.catch_warnings(), interpreted_programs(), matching:
        warnings.simplefilter("ignore")
        kind = seed % 8
        if kind == 5:
            _facets()
        elif kind == 6:
            _in_threads([_program(seed * 8 + each) for each in range(3)])
        elif kind == 7:
            _interrupted(seed, _program(seed))
        else:
            _compare(_program(seed))


ATTACK = Attack(
    name="tape",
    promise="a loop gives the same whether its calls are matched against those before or recorded",
    trial=trial,
    short=40,
    faults=(
        Fault("known indices are looked at once and never again", "tape.run", "Run.sees",
              "look.holds(found.node, found.version)", "True"),
        Fault("calls are made in earnest over what memory holds by then", "tape.earnest",
              "Earnest._take_in", "Cell(self._memory(number),", "Cell(outside.cell.node,"),
        Fault("a number is the same whatever its value", "tape.entries", "same",
              "return bool(value == kept) and (value != 0", "return True and (value != 0"),
        Fault("modes are no part of a match", "tape.matching", "first_entry",
              "entry.gradients is not gradients or", "False or"),
        Fault("all views of a result are the same", "tape.quick", "stands_for",
              "value._steps is not wanted.steps and", "False and"),
        Fault("any result of a call is its operand", "tape.quick", "stands_for",
              "cell.slot != wanted.number or", ""),
        Fault("all slices of memory are the same", "tape.views", "_key",
              "key.append((value.start, value.stop, value.step))", "key.append(None)"),
        Fault("a block of memory is any other", "tape.outside", "Outside.shows",
              "self.memory is memory and self.steps is value._steps", "True"),
        Fault("all views of memory are the same", "tape.run", "Run._tried",
              "value._steps != kept.steps or", ""),
        Fault("blocks of memory fit whatever their lengths", "tape.run", "Run._tried_block",
              "node.types[0] != kept.type or", ""),
        Fault("another block of memory is taken for one that is known", "tape.run",
              "Run._tried_node", "return bound.node is node", "return True"),
        Fault("results are held whether they are or not", "tape.run", "Run.held",
              "are_shared(self.handed)", "bytes([1]) * len(self.handed)"),
        Fault("a number is the same whatever its type", "tape.entries", "same",
              "if kind is not type(kept):", "if False:"),
        Fault("a graph is let go at a flush", "tape.endings", "_learnt",
              "kept = cell.mode == GRAPH and not _is_let_go(cell)", "kept = False"),
        Fault("what a variable has already is forgotten by a pass", "autograd.joints",
              "Gradients.total", "isinstance(target, Node) or target.grad is None", "True"),
        Fault("passes are the same whatever they add to", "tape.segments", "Passes.program",
              ".programs.get(totals)",
              ".programs.get(next(iter(self.starts[numbers].programs), 0))"),
        Fault("a gradient is added to none", "tape.learning", "accumulates",
              "if grad is not None:", "if False:"),
    ),
)  # fmt: skip
