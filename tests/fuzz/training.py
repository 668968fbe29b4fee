"""Random training programs: several backward passes, detached values, reads in between, hooks.

A program is a step that is called some times. It reads and changes parameters, an optimizer, a
layer and tensors that Python objects keep; its shapes are those of the GAN step, of truncated
backpropagation through time, of accumulated gradients, and mixtures. All is float64 on three
numbers, so that every way must give what torch gives, nearly to the bit.

Statements that torch refuses are taken out of a program, so torch gives a result for the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_SHAPES = ("gan", "recurrent", "accumulated", "again", "unseen", "mixed", "mixed", "mixed")
_READS = (
    "{t}.tolist()", "{t}.sum().item()", "repr({t})", "{t}.detach().cpu().numpy().copy()",
    "float({t}[0])", "seen.append({t}.sum().item())", "str(float({t}.detach().max()))",
)  # fmt: skip
_CUTS = ("{t}.detach()", "{t}.data", "{t}.detach().clone()", "{t}.clone().detach()")
# Not `stack(...).sum(0)`: torch 2.13 gives both operands one memory for their gradients, and what
# is added to one later is added to the other.
_BINARY = (
    "{a} * {b}", "{a} + {b}", "{a} - {b}", "{a} / (1 + {b} ** 2)", "lib.maximum({a}, {b})",
    "lib.where({a} > {b}, {a}, {b})", "lib.stack([{a}, {b}]).mean(0)", "{a} * {b}.mean()",
    "lib.cat([{a}[1:], {b}[:1]])",
)  # fmt: skip
_UNARY = (
    "{a}.tanh()", "{a}.sigmoid()", "{a} @ m0", "model({a})", "{a}.cumsum(0)", "{a}.flip(0)",
    "{a} - {a}.mean()", "{a}[PLACES]", "{a}.softmax(0)", "{a}.abs()", "{a}.relu()", "{a} * 0.5",
    "{a}.reshape(3, 1).expand(3, 2).sum(1)", "{a} + 1", "({a} * {a}).clone()",
)  # fmt: skip
_LOSSES = (
    "({a}).sum()", "({a} ** 2).mean()", "lib.nn.functional.mse_loss({a}, {b}.detach())",
    "({a} * {b}).mean()", "(({a}).sum() - 1) ** 2", "({a} + {b}).sum()",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Training:
    """The lines of a step, and what is made before the first call."""

    seed: int
    lines: tuple[str, ...]
    optimizer: str
    calls: int = 3

    @property
    def traceable(self) -> bool:
        """True where jit takes the step: it keeps nothing in Python, and exchanges no memory."""
        marks = ("box", "held", "kept", "note", "mark", ".data = ", "w0.register_hook")
        return not any(mark in line for line in self.lines for mark in marks)

    def without_reads(self) -> Training:
        """The step without the lines that need values."""
        marks = ("tolist", "item()", "repr(", "numpy()", "float(", "print(")
        kept = [line for line in self.lines if not any(mark in line for mark in marks)]
        return replace(self, lines=tuple(kept))

    def text(self) -> str:
        """Everything as Python, for a library `lib` on a device `D`."""
        names = sorted({line.split(" = ")[0] for line in self.lines if line.startswith("t")})
        names = [name for name in names if name.isidentifier()]
        body = ["x, *_ = given", *self.lines, f"return [{', '.join(names)}]"]
        indented = "\n".join(f"    {part}" for line in body for part in line.split("\n"))
        return _SETUP.replace("OPTIMIZER", self.optimizer) + f"\ndef step(*given):\n{indented}\n"


_SETUP = """\
from types import SimpleNamespace
def made(*values):
    return lib.tensor(values, dtype=lib.float64, device=D)
w0 = made(0.5, -0.25, 0.75).requires_grad_()
w1 = made(-0.5, 0.125, 0.25).requires_grad_()
m0 = made([0.5, -0.25, 0.125], [0.25, 0.5, -0.5], [-0.125, 0.25, 0.5]).requires_grad_()
model = lib.nn.Linear(3, 3).to(D).to(lib.float64)
with lib.no_grad():
    model.weight.copy_(made([0.25, 0.5, -0.5], [-0.25, 0.125, 0.5], [0.5, -0.5, 0.25]))
    model.bias.copy_(made(0.125, -0.25, 0.5))
PARAMETERS = [w0, w1, m0, *model.parameters()]
optimizer = lib.optim.OPTIMIZER
PLACES = lib.tensor([2, 0, 1], device=D)
box = SimpleNamespace(h=made(0.0, 0.0, 0.0), state=[(made(0.5, 0.0, 0.0), made(0.0, 0.5, 0.0))])
held, seen = [made(0.25, 0.5, 0.75)], []
kept = {'a': made(1.0, 0.5, -0.5)}
def double(gradient):
    return gradient * 2
def note(gradient):
    seen.append(gradient.sum().item())
def keep_output(module, inputs, output):
    held.append(output)
marks = []
def mark(number):
    return lambda gradient: marks.append((number, *gradient.reshape(-1).tolist()))
def add_marks():  # hooks of different tensors have an order of their own in torch
    for row in sorted(marks):
        seen.extend(row)
    marks.clear()
"""
_OPTIMIZERS = (
    "SGD(PARAMETERS, lr=0.1)", "SGD(PARAMETERS, lr=0.05, momentum=0.9)",
    "Adam(PARAMETERS, lr=0.05)", "AdamW(PARAMETERS, lr=0.05)",
)  # fmt: skip


class _Writer:
    """The lines of a program so far."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.tensors: list[str] = []
        self.stateful = self.rng.random() < 0.6

    def let(self, text: str) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(name)
        self.lines.append(f"{name} = {text}")
        return name

    def operand(self) -> str:
        rng = self.rng
        kept = ["box.h", "held[-1]", "kept['a']"] if self.stateful else []
        found = rng.choice([*self.tensors[-4:] * 3, "w0", "w1", "x", *kept])
        return rng.choice(_CUTS).format(t=found) if rng.random() < 0.15 else found

    def expression(self) -> str:
        rng = self.rng
        a, b = self.operand(), self.operand()
        text = rng.choice(_BINARY if rng.random() < 0.5 else _UNARY).format(a=a, b=b)
        return f"({text}).tanh()" if rng.random() < 0.6 else text

    def loss(self, a: str, b: str | None = None) -> str:
        return self.rng.choice(_LOSSES).format(a=a, b=b or self.operand())

    def read(self, often: float = 0.4) -> None:
        if self.tensors and self.rng.random() < often:
            self.lines.append(self.rng.choice(_READS).format(t=self.rng.choice(self.tensors[-4:])))

    def backward(self, loss: str, retained: float = 0.3) -> None:
        name = self.let(f"({loss}).reshape(1)")
        self.read(0.2)
        retain = "retain_graph=True" if self.rng.random() < retained else ""
        self.lines.append(f"{name}.backward({retain})")
        self.read(0.3)


def write(seed: int) -> Training:
    """The program of a seed, as it was drawn; torch may refuse some of its lines."""
    writer = _Writer(seed)
    shape = "hooked" if seed % _HOOKED == 0 else writer.rng.choice(_SHAPES)
    if writer.rng.random() < 0.8:
        writer.lines.append("optimizer.zero_grad()")
    write_shape = {
        "gan": _gan, "recurrent": _recurrent, "accumulated": _accumulated, "again": _again,
        "unseen": _unseen, "mixed": _mixed, "hooked": _hooked,
    }[shape]  # fmt: skip
    write_shape(writer)
    return Training(seed, tuple(writer.lines), writer.rng.choice(_OPTIMIZERS))


def _gan(writer: _Writer) -> None:
    fake = writer.let("model(x * w0).tanh()")
    writer.read()
    cut = writer.rng.choice(_CUTS).format(t=fake)
    writer.backward(writer.loss(f"({cut} * w1)", "x"), retained=0.1)
    writer.lines += ["optimizer.step()", "optimizer.zero_grad()"]
    writer.read()
    writer.backward(writer.loss(f"({fake} * w1 @ m0)", "x"), retained=0.1)
    writer.lines.append("optimizer.step()")
    _mixed(writer, 3)


def _recurrent(writer: _Writer) -> None:
    rng = writer.rng
    state = rng.choice(("box.h", "held[-1]", "kept['a']", "box.state[0][0]"))
    writer.stateful = True
    before = rng.choice(("{t}", "{t}.detach()", "{t}.data")).format(t=state)
    h = writer.let(before)
    total = writer.let("0 * x.sum()")
    for _ in range(rng.randint(1, 3)):
        h = writer.let(rng.choice(("(%s * w0 + x).tanh()", "model(%s + x).tanh()")) % h)
        total = writer.let(f"{total} + ({h} * w1).mean()")
        writer.read(0.2)
    writer.backward(total, retained=0.1)
    writer.lines.append("optimizer.step()")
    after = rng.choice(_CUTS).format(t=h) if before == state or rng.random() < 0.5 else h
    writer.lines.append({
        "box.h": f"box.h = {after}",
        "held[-1]": f"held.append({after})",
        "kept['a']": f"kept['a'] = {after}",
        "box.state[0][0]": f"box.state = [({after}, {h})]",
    }[state])  # fmt: skip


def _accumulated(writer: _Writer) -> None:
    shared = writer.let(writer.expression()) if writer.rng.random() < 0.5 else "x"
    for number in range(writer.rng.randint(2, 3)):
        part = writer.let(f"model({shared} * {number + 1}) * w0")
        writer.backward(f"({part} ** 2).mean() / 3", retained=0.5)
    writer.lines.append(writer.rng.choice((
        "optimizer.step()",
        "with lib.no_grad():\n    for p in PARAMETERS:\n        if p.grad is not None:\n"
        "            p.sub_(0.1 * p.grad)",
    )))  # fmt: skip


_LINEAR = ("{a} + w1", "{a}.cumsum(0)", "{a}.flip(0)", "{a}[1:]", "-{a}", "lib.cat([{a}, w1])")


def _again(writer: _Writer) -> None:
    """A graph that needs no values, gone through more than once."""
    y = writer.let("w0 - x")
    for _ in range(writer.rng.randint(1, 3)):
        y = writer.let(writer.rng.choice(_LINEAR).format(a=y))
    for loss in writer.rng.choices((f"{y}.sum()", f"{y}.mean()", f"({y} * {y}).sum()"), k=3):
        writer.backward(loss, retained=0.0)
        writer.read(0.6)
    writer.lines.append("optimizer.step()")


def _unseen(writer: _Writer) -> None:
    """Writes behind the back of a graph, before and between the passes through it."""
    y = writer.let(f"({writer.operand()} + w0 - w1)")
    for _ in range(writer.rng.randint(1, 3)):
        writer.lines.append(writer.rng.choice(_UNSEEN).format(t=y))
        writer.read(0.3)
        writer.backward(writer.loss(f"({y} * x)", "w1"), retained=1.0)
    _mixed(writer, 2)


_UNSEEN = (
    "{t}.detach().mul_(3)", "{t}.data.add_(1)", "with lib.no_grad():\n    {t}.mul_(0.5)",
    "{t}[:2].detach().zero_()", "{t}.data[0] = 2.0", "with lib.no_grad():\n    {t}.copy_(x)",
    "{t}.data.mul_({t})", "{t}.detach().copy_(w0 * 2)",
)  # fmt: skip


_HOOKED = 5  # one training program in so many
_SHOWN = (
    "{a}[:]", "{a}.view(3)", "{a}.reshape(3, 1).reshape(3)", "{a}.clone()", "{a}.reshape(1, 3)[0]",
    "{a}.unsqueeze(0).squeeze(0)", "{a}.expand(3)", "{a}.flip(0).flip(0)", "{a}.contiguous()",
)  # fmt: skip
_HOOKS = (
    "{t}.register_hook(mark({number}))", "{t}.retain_grad()", "{t}.register_hook(double)",
    "{t}.register_hook(mark({number})); {t}.retain_grad()",
    "handle = {t}.register_hook(mark({number}))\nhandle.remove()",
    "{t}.register_hook(lambda g: g * g); {t}.register_hook(mark({number}))",
)  # fmt: skip


def _hooked(writer: _Writer) -> None:
    """Hooks and retained gradients of many tensors, equal ones and views among them.

    Nothing is written in place: torch 2.13 crashes on some hooks of views of what was written to.
    """
    rng = writer.rng
    for number in range(rng.randint(4, 9)):
        shown = rng.random() < 0.3 and writer.tensors
        text = rng.choice(_SHOWN).format(a=rng.choice(writer.tensors)) if shown else ""
        t = writer.let(text or writer.expression())
        if rng.random() < 0.6:
            t = rng.choice([t, t, *writer.tensors, "w0", "w1"])
            writer.lines.append(rng.choice(_HOOKS).format(t=t, number=number))
        if rng.random() < 0.25:
            writer.backward(writer.loss(rng.choice(writer.tensors)), retained=0.8)
            writer.lines.append("add_marks()")
    writer.backward(" + ".join(f"({t} * {n}).sum()" for n, t in enumerate(writer.tensors)))
    writer.lines.append("add_marks()")
    for t in rng.sample(writer.tensors, 3):
        writer.let(f"{t}.grad.clone()")


def _mixed(writer: _Writer, count: int | None = None) -> None:
    rng = writer.rng
    for _ in range(rng.randint(4, 10) if count is None else count):
        writer.let(writer.expression())
        rng.choices((_lines_more, _backward, _inside, _hook, _keep, _gradient, _update),
                    (3, 4, 3, 2, 3, 1, 2))[0](writer)  # fmt: skip
        writer.read(0.25)
    if rng.random() < 0.7:
        writer.lines.append("optimizer.step()")


def _lines_more(writer: _Writer) -> None:
    writer.let(writer.expression())


def _backward(writer: _Writer) -> None:
    writer.backward(writer.loss(writer.tensors[-1]))


def _inside(writer: _Writer) -> None:
    """A write to a tensor where it lies, seen by gradients or not."""
    rng, t = writer.rng, writer.rng.choice(writer.tensors[-3:])
    b = writer.operand()
    seen = (
        "{t}.mul_(2)", "{t}.add_({b})", "{t}[0] = 0.5", "{t}[1:] = {b}[1:]", "{t}.detach_()",
        "{t}.tanh_()", "{t}.copy_({b})", "{t}.requires_grad_(False)",
    )  # fmt: skip
    # torch crashes over a hook on a view of a spent graph that was written to unseen
    spent = any(
        line.startswith(f"{t} = (") and line.endswith(".reshape(1)") for line in writer.lines
    )
    chosen = _UNSEEN if rng.random() < 0.4 and not spent else seen
    writer.lines.append(rng.choice(chosen).format(t=t, b=b))


def _hook(writer: _Writer) -> None:
    t = writer.rng.choice([*writer.tensors[-3:], "w0"])
    hook = writer.rng.choice(("double", "note"))
    text = writer.rng.choice((
        "{t}.retain_grad()", "{t}.register_hook({hook})",
        "handle = model.register_forward_hook(keep_output)\nmodel({t})\nhandle.remove()",
        "handle = {t}.register_hook({hook})\n({t} * w1).sum().backward(retain_graph=True)\n"
        "handle.remove()",
    ))  # fmt: skip
    writer.lines.append(text.format(t=t, hook=hook))


def _keep(writer: _Writer) -> None:
    t = writer.tensors[-1]
    value = writer.rng.choice(("{t}", *_CUTS)).format(t=t)
    if writer.stateful:
        place = writer.rng.choice(("box.h = {v}", "held.append({v})", "kept['a'] = {v}"))
        writer.lines.append(place.format(v=value))


def _gradient(writer: _Writer) -> None:
    more = writer.rng.choice(("", ", retain_graph=True", ", create_graph=True"))
    root = writer.loss(writer.tensors[-1])
    writer.let(f"lib.autograd.grad({root}, [w0], allow_unused=True{more})[0]")
    writer.lines.append(f"{writer.tensors[-1]} = w0 if {writer.tensors[-1]} is None else "
                        f"{writer.tensors[-1]} * 1")  # fmt: skip


def _update(writer: _Writer) -> None:
    writer.lines.append(writer.rng.choice((
        "optimizer.step()", "optimizer.zero_grad()", "w0.grad = None",
        "with lib.no_grad():\n    w0.mul_(0.9)", "w1.data = w1.data * 0.5",
        "with lib.no_grad():\n    if w1.grad is not None:\n        w1.sub_(0.1 * w1.grad)",
        "lib.nn.utils.clip_grad_norm_(PARAMETERS, 1.0)",
    )))  # fmt: skip


def portable(seed: int, run: Callable[[Training], int | None]) -> Training:
    """The program of a seed without what torch refuses; `run` gives the line that it refused."""
    program = write(seed)
    while program.lines:
        refused = run(program)
        if refused is None:
            return program
        program = replace(program, lines=_without(program.lines, refused))
    return program


def _without(lines: Sequence[str], place: int) -> tuple[str, ...]:
    return (*lines[:place], *lines[place + 1 :])
