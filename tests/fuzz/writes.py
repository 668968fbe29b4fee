"""Statements that change something in place: a variable, or a part of it through a view."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.generate import Maker, Statement, Var
from tests.fuzz.views import another_shape, places, subscript


def _writable(v: Var) -> bool:
    return v.rank >= 1 and v.size > 0 and v.dtype != "bool" and not v.rare


def view_of(m: Maker, a: Var) -> str:
    """A view of a contiguous variable: other axes, another order of them, a part."""
    text = a.name
    if m.rng.random() < 0.3:
        a = replace(a, shape=tuple(another_shape(m, a.size)))
        text += f".view({list(a.shape)})"
    if a.rank >= 2 and m.rng.random() < 0.6:
        order = m.rng.sample(range(a.rank), a.rank)
        a = replace(a, shape=tuple(a.shape[i] for i in order))
        text += f".permute({order})"
    if m.rng.random() < 0.15:
        axis = m.rng.randrange(a.rank)
        size = m.rng.randint(1, a.shape[axis])
        return f"{text}.unfold({axis}, {size}, {size + m.rng.randint(0, 1)})[...]"
    return f"{text}[{subscript(m, a) if m.rng.random() < 0.8 else '...'}]"


def write(m: Maker) -> list[Statement] | None:
    """A change in place, through a view or of the whole."""
    a = m.pick(_writable)
    if a is None:
        return None
    made = []
    name = a.name
    if not name.startswith("a") or m.rng.random() < 0.5:
        made.append(m.let(f"{name}.clone().contiguous()"))
        name = str(made[0].target)
    part = view_of(m, replace(a, name=name))
    number = m.rng.choice((1, 2, 3, "BOX.shifts[0]"))
    forms = [
        f"{part}.add_({number})", f"{part}.mul_(2)", f"{part} += {number}", f"{part} = {number}",
        f"{name}.T.add_(1)" if a.rank == 2 else f"{name}.sub_(1)",
        f"{part}.zero_()", f"{part}.copy_({part} * 2)", f"{name}.fill_({number})",
        f"{name}[::2].neg_()" if name == a.name else f"{name}.reshape(-1)[::2].add_(1)",
    ]  # fmt: skip
    if a.dtype == "uint8":
        forms = [f for f in forms if "sub_" not in f and "neg_" not in f]
    made.append(Statement(m.rng.choice(forms)))
    return made


def view_then_write(m: Maker) -> list[Statement] | None:
    """A view is taken, its base or itself changes, and both are seen."""
    a = m.pick(_writable)
    if a is None:
        return None
    base = m.let(f"{a.name}.clone().contiguous()")
    view = m.let(view_of(m, replace(a, name=str(base.target))))
    changed, seen = m.rng.sample([base.target, view.target], 2)
    how = m.rng.choice(("add_(1)", "mul_(2)", f"mul_({changed} % 3)"))
    if m.flavour == "smooth":
        how = how.replace(" % 3", " * 0.5")
    return [base, view, Statement(f"{changed}.{how}"), m.let(f"{seen} * 2")]


def masked_write(m: Maker) -> list[Statement] | None:
    a = m.pick(_writable)
    if a is None:
        return None
    copy = m.let(f"{a.name}.clone()")
    forms = [
        f"{copy.target}[{copy.target} > 1] = 2",
        f"{copy.target}.masked_fill_({copy.target} < 1, 3)",
        f"{copy.target}[{places(m, a.shape[0], m.rng.randint(1, 4))}] = 1",
    ]
    if m.flavour == "smooth":
        forms = forms[2:]
    return [copy, Statement(m.rng.choice(forms))]


def write_at(m: Maker) -> list[Statement] | None:
    """Changes in place at places that a tensor names, and of a part by another part."""
    a = m.pick(_writable)
    if a is None:
        return None
    copy = m.let(f"{a.name}.clone().contiguous()")
    name, first = copy.target, a.shape[0]
    picks = places(m, first, m.rng.randint(1, 4))
    once = f"rl.arange({m.rng.randint(1, first)}, device=D)"
    forms = [
        f"{name}.index_fill_(0, {picks}, 2)", f"{name}.index_add_(0, {once}, {name}[{once}] * 2)",
        f"{name}.index_copy_(0, {once}, {name}.flip(0)[{once}])",
        f"{name}[{once}] = {name}.flip(0)[{once}]", f"{name}[{once}] += 1",
        f"{name}.clamp_(0, 2)", f"{name}.copy_({name}.flip(0))",
        f"{name}[...] = {name}.sum() * 0 + 3",
        f"{name}.index_put_(({once},), {name}[{once}] * 2)",
    ]  # fmt: skip
    if a.rank >= 2:
        column = f"rl.zeros({[first, *[1] * (a.rank - 1)]}, dtype=rl.int64, device=D)"
        forms += [f"{name}[:, 0] = {name}[:, -1] * 2", f"{name}.scatter_(1, {column}, 3)"]
    return [copy, Statement(m.rng.choice(forms))]


def shifted(m: Maker) -> list[Statement] | None:
    """A part is set from a part that overlaps it: all is read before anything is written."""
    a = m.pick(lambda v: _writable(v) and v.shape[0] >= 2)
    if a is None:
        return None
    copy = m.let(f"{a.name}.clone().contiguous()")
    n = copy.target
    forms = [f"{n}[1:] = {n}[:-1]", f"{n}[:-1] = {n}[1:] * 2", f"{n}[1:] += {n}[:-1]",
             f"{n}[:-1].copy_({n}[1:])", f"{n}[1:].add_({n}[:-1])"]  # fmt: skip
    return [copy, Statement(m.rng.choice(forms), portable=False)]
