"""A random program over three places, as text: values are computed, moved, written to and kept.

The text calls public names through `lib`, so it runs on Ridgeline, with the places that were drawn,
and on torch, where every place is the host. What has no name in both is in `Names` of `run.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

Shape = tuple[int, ...]
PLACES = 3  # the host and two GPUs
CALLS = 3  # of a function: traced, replayed, and replayed again as a captured graph


@dataclass(frozen=True, slots=True)
class Value:
    """A variable: where it is, and what may be done with it."""

    name: str
    shape: Shape
    place: int
    tracked: bool = False  # gradients flow through it
    own: bool = False  # it has memory of its own, which may be written to


@dataclass(frozen=True, slots=True)
class Program:
    """What is made before, a function of arguments, and what is done with its results."""

    setup: tuple[str, ...]
    arguments: tuple[Value, ...]
    state: tuple[str, ...]  # names that are compared in the end
    body: tuple[str, ...]
    returned: tuple[str, ...]
    after: tuple[str, ...]  # over r0, r1, ..., undecorated
    kept: tuple[str, ...]  # what `after` computed
    between: tuple[str, ...]  # changes of the state from call to call
    differentiates: bool
    sizes: tuple[int, int]  # of the first axis, in the first calls and in the last

    @property
    def text(self) -> str:
        """The program as Python: `prepare`, `f`, `after` and `between`."""
        names = ", ".join(v.name for v in self.arguments)
        outside = f"    global {', '.join(self.state)}" if self.state else "    pass"
        lines = ["def prepare():", outside, *_indented(self.setup), f"def f({names}):"]
        lines += [*_indented(self.body), f"    return [{', '.join(self.returned)}]"]
        results = ", ".join(f"r{n}" for n in range(len(self.returned)))
        lines += [f"def after({results}):", *_indented(self.after)]
        lines += [f"    return [{', '.join(self.kept)}]", "def between():", outside]
        lines += _indented(self.between)
        return "\n".join(lines) + "\n"


def _indented(lines: tuple[str, ...]) -> list[str]:
    return [f"    {line}" for line in lines]


@dataclass
class Drawing:
    """A program while it is drawn."""

    rng: Random
    rows: int
    fixed: bool  # whether there are as many rows in all calls
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """One of the values that fit, the latest ones more often."""
        found = [v for v in self.values if fits(v)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)) for _ in range(2))]

    def bind(self, text: str, value: Value) -> None:
        """A line that computes a new value."""
        name = f"v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        self.values.append(replace(value, name=name))

    def elsewhere(self, place: int) -> int:
        """Another place."""
        return self.rng.choice([p for p in range(PLACES) if p != place])

    def step(self) -> None:
        """One more line, or none where nothing fits."""
        self.rng.choice(_STEPS)(self)


# ---- steps ---------------------------------------------------------------------------------------


def _compute(draw: Drawing) -> None:
    a = draw.pick()
    assert a is not None
    made = replace(a, own=True)
    forms: list[tuple[str, Shape]] = [
        ("{} * 2", a.shape), ("{} + 1", a.shape), ("(-{})", a.shape), ("{}.relu()", a.shape),
        ("{}.clamp(-6, 6)", a.shape), ("({} * {}).clamp(-9, 9)", a.shape), ("{}.sum()", ()),
        ("{}.clone()", a.shape), ("{}.exp().log1p()", a.shape),
    ]  # fmt: skip
    if a.shape:
        forms += [("{}.sum(0)", a.shape[1:]), ("{}.cumsum(0)", a.shape), ("{}.flip(0)", a.shape)]
    if len(a.shape) == 2:
        forms += [("({}.t() @ {}).clamp(-9, 9)", (a.shape[1], a.shape[1]))]
    text, shape = draw.rng.choice(forms)
    draw.bind(text.replace("{}", a.name), replace(made, shape=shape))


def _view(draw: Drawing) -> None:
    a = draw.pick(lambda v: len(v.shape) > 0)
    if a is None:
        return
    forms: list[tuple[str, Shape]] = [("{}[1:]", (a.shape[0] - 1, *a.shape[1:]))]
    forms += [("{}[0]", a.shape[1:]), ("{}.detach()", a.shape)]
    if len(a.shape) == 2:
        forms += [("{}.t()", a.shape[::-1]), ("{}.reshape(-1)", (a.shape[0] * a.shape[1],))]
    text, shape = draw.rng.choice(forms)
    tracked = a.tracked and "detach" not in text
    if 0 in shape:
        return
    draw.bind(text.format(a.name), replace(a, shape=shape, tracked=tracked))


def _combine(draw: Drawing) -> None:
    a = draw.pick()
    assert a is not None
    b = draw.pick(lambda v: v.place == a.place and v.shape in (a.shape, ()))
    assert b is not None
    forms = ["{a} + {b}", "{a} - {b}", "({a} * {b}).clamp(-9, 9)", "lib.where({a} > 0, {a}, {b})"]
    if a.shape and a.shape == b.shape:
        forms += ["lib.cat([{a}, {b}], 0)[:len({a})]", "lib.stack([{a}, {b}]).sum(0)"]
    text = draw.rng.choice(forms).format(a=a.name, b=b.name)
    draw.bind(text, replace(a, tracked=a.tracked or b.tracked, own=True))


def _number(draw: Drawing) -> None:
    """A value without axes of the host goes to any device by itself."""
    a, b = draw.pick(lambda v: v.place == 0 and not v.shape), draw.pick()
    if a is not None and b is not None:
        tracked = a.tracked or b.tracked
        draw.bind(f"{b.name} + {a.name}", replace(b, tracked=tracked, own=True))


def _move(draw: Drawing) -> None:
    a = draw.pick()
    assert a is not None
    place = draw.elsewhere(a.place)
    forms = [f".to(P[{place}])", f".to(P[{place}], non_blocking=True)", f".to(P[{place}]) * 3"]
    between = draw.elsewhere(place)
    if between != a.place:
        forms.append(f".to(P[{between}]).to(P[{place}])")
    else:  # there and back
        forms.append(f".to(P[{place}]).to(P[{a.place}])")
    text = draw.rng.choice(forms)
    back = text.endswith(f".to(P[{a.place}])")
    draw.bind(a.name + text, replace(a, place=a.place if back else place, own=True))


def _copy_into(draw: Drawing) -> None:
    a, place = draw.pick(lambda v: not v.tracked), draw.rng.randrange(PLACES)
    if a is None:
        return
    b = draw.pick(lambda v: v.own and not v.tracked and v.shape == a.shape and v.place != a.place)
    if b is not None and draw.chance(0.7):
        draw.lines.append(f"{b.name}.copy_({a.name})")
        return
    draw.bind(f"lib.zeros_like({a.name}, device=P[{place}])", replace(a, place=place, own=True))
    draw.lines.append(f"{draw.values[-1].name}.copy_({a.name})")


def _write(draw: Drawing) -> None:
    a = draw.pick(lambda v: v.own and not v.tracked)
    if a is None:
        return
    forms = ["{}.mul_(2).clamp_(-9, 9)", "{}.add_(1)", "{}.zero_()"]
    forms += ["{}[0] = 4", "{}[1:] += 1"] if a.shape else []
    draw.lines.append(draw.rng.choice(forms).format(a.name))


def _draw(draw: Drawing) -> None:
    place = draw.rng.randrange(PLACES)
    shape = (draw.rows, 3) if draw.fixed and draw.chance(0.5) else (3,)
    draw.bind(f"drawn({shape}, P[{place}])", Value("", shape, place, own=True))


def _branch(draw: Drawing) -> None:
    a = draw.pick()
    assert a is not None
    place, move = a.place, ""
    if draw.chance(0.4):  # the function itself moves what it is given
        place = draw.elsewhere(a.place)
        move = f".to(P[{place}])"
    sides = f"lambda u: (u * 2){move}, lambda u: u{move} - 1"
    draw.bind(f"cond({a.name}.sum() > 0, {sides}, {a.name})", replace(a, place=place, own=True))


def _loop(draw: Drawing) -> None:
    a = draw.pick(lambda v: not v.tracked)
    if a is None:
        return
    there, back = f".to(P[{draw.elsewhere(a.place)}])", f".to(P[{a.place}])"
    if draw.chance(0.6):
        there = back = ""
    body = f"lambda u: ((u{there} * 2).clamp(-9, 9)){back} + 1"
    draw.bind(f"repeat(3, {body}, {a.name})", replace(a, own=True))


def _sort(draw: Drawing) -> None:
    """Two results, of which one may be used long after the other."""
    a = draw.pick(lambda v: len(v.shape) > 0 and not v.tracked)
    if a is not None:
        name = f"v{draw.count}"
        draw.bind(f"{a.name}.sort(dim=0, stable=True)", replace(a, name="", own=True))
        draw.lines.append(f"{name}, {name}i = {name}")
        draw.values.append(replace(a, name=f"{name}i", own=False))


_STEPS: tuple[Callable[[Drawing], None], ...] = (
    _compute, _compute, _view, _combine, _combine, _number, _move, _move, _move, _copy_into,
    _write, _draw, _branch, _loop, _sort,
)  # fmt: skip


# ---- programs ------------------------------------------------------------------------------------


def drawn_program(rng: Random, sizes: tuple[int, int]) -> Program:
    """A program of a dozen lines; `sizes` are those of the first axis in the calls."""
    fixed = sizes[0] == sizes[1]
    draw = Drawing(rng, sizes[0], fixed)
    shapes = [(sizes[0], 3), (3,), ()]
    setup, state = [], []
    for number in range(rng.randint(1, 3)):
        shape, place, tracked = rng.choice(shapes[:2]), rng.randrange(PLACES), rng.random() < 0.5
        if not fixed:
            shape = (3,)
        value = Value(f"S{number}", shape, place, tracked, own=not tracked)
        ending = ".requires_grad_()" if tracked else ""
        setup.append(f"{value.name} = array({number}, {shape}, P[{place}]){ending}")
        state.append(value)
    arguments = [
        Value(f"x{n}", rng.choice(shapes), rng.randrange(PLACES)) for n in range(rng.randint(0, 2))
    ]
    draw.values += [*state, *arguments]
    while len(draw.lines) < rng.randint(5, 9):
        draw.step()
    weights = [v for v in state if v.tracked]
    differentiates = bool(weights) and _backward(draw, setup, weights)
    results = [v for v in draw.values if v.name[0] == "v"] or list(state)
    returned = rng.sample(results, min(len(results), rng.randint(1, 3)))
    body = tuple(draw.lines)
    after = Drawing(rng, sizes[0], fixed)
    after.values = [
        replace(v, name=f"r{n}", own=False, tracked=v.tracked) for n, v in enumerate(returned)
    ]
    while len(after.lines) < 3:
        rng.choice((_move, _move, _compute, _combine, _view))(after)
    kept = [v.name for v in after.values]
    forms = ("{0}.add_(1)", "{0} = ({0} * 2).clamp(-9, 9)", "{0}[0] = 2", "pass")
    changes = [rng.choice(forms).format(v.name) for v in state if v.own]
    return Program(
        tuple(setup), tuple(arguments), tuple(v.name for v in state) + _optimizer(setup), body,
        tuple(v.name for v in returned), tuple(after.lines), tuple(kept),
        tuple(changes or ["pass"]), differentiates, sizes,
    )  # fmt: skip


def _optimizer(setup: list[str]) -> tuple[str, ...]:
    return ("O",) if any(line.startswith("O = ") for line in setup) else ()


def _backward(draw: Drawing, setup: list[str], weights: list[Value]) -> bool:
    """A loss on one place over values of all, its gradients, and perhaps a step of training."""
    tracked = [v for v in draw.values if v.tracked]
    place = draw.rng.randrange(PLACES)
    terms = draw.rng.sample(tracked, min(len(tracked), 3))
    total = " + ".join(f"({v.name} * {v.name}).sum().to(P[{place}])" for v in terms)
    names = ", ".join(v.name for v in weights)
    trains = draw.chance(0.5)
    if trains:
        setup.append(f"O = lib.optim.SGD([{names}], lr=0.125, momentum=0.5)")
        draw.lines.append("O.zero_grad()")
    else:
        draw.lines += [f"{v.name}.grad = None" for v in weights if draw.chance(0.7)]
    draw.bind(total, Value("", (), place, tracked=True))
    draw.lines.append(f"{draw.values[-1].name}.backward()")
    if trains:
        draw.lines.append("O.step()")
    spent = [v for v in draw.values if v.tracked and v.name[0] == "v"]
    for value in spent:  # backward() let their graphs go
        draw.values.remove(value)
        draw.bind(f"{value.name}.detach()", replace(value, tracked=False))
    return True
