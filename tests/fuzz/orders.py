"""Statements that order, search and count elements."""

from __future__ import annotations

from tests.fuzz.generate import Maker, Statement, Var


def _plain(v: Var) -> bool:
    return v.rank >= 1 and v.size > 0 and v.dtype != "bool" and not v.tracked and not v.rare


def ordered(m: Maker) -> Statement | None:
    """Values at places of the order, which ties do not change."""
    a = m.pick(_plain)
    if a is None or _has_nan(m, a):
        return None
    n, axis = a.name, m.axis(a)
    rank = m.rng.randint(1, a.shape[axis])
    # torch selects in place: in memory that is repeated, such as a sum's gradient, it goes wrong
    whole = f"{n}.contiguous()"
    forms = [f"rl.kthvalue({whole}, {rank}, {axis})[0]", f"rl.median({whole}, {axis})[0]",
             f"rl.msort({n})", f"rl.cummin({n}, {axis})[0]", f"rl.aminmax({n}, dim={axis})[1]",
             f"rl.sort({n}.reshape(-1))[0]"]  # fmt: skip
    return m.let(m.rng.choice(forms))


def searched(m: Maker) -> Statement | None:
    """Places of values in something sorted, and which values are among others."""
    a = m.pick(_plain)
    if a is None or a.half or _has_nan(m, a):
        return None
    n, right = a.name, m.rng.random() < 0.5
    low = 0 if a.dtype == "uint8" else -3
    edges = f"rl.arange({low}, 4, device=D).to({n}.dtype)"
    forms = [f"rl.searchsorted({edges}, {n}.contiguous(), right={right})",
             f"rl.bucketize({n}.contiguous(), {edges}, right={right})",
             f"rl.isin({n}, {edges}[::2])",
             f"rl.searchsorted(rl.sort({n}.reshape(-1))[0], {edges}, right={right})"]  # fmt: skip
    return m.let(m.rng.choice(forms))


def counted(m: Maker) -> Statement | None:
    """Differences and counts."""
    a = m.pick(_plain)
    if a is None or a.rare:
        return None
    n, axis = a.name, m.axis(a)
    forms = [f"rl.any({n} > 1, {axis})", f"({n} == {n}).all()", f"({n} > 0).sum({axis})"]
    if a.dtype != "uint8" and a.shape[axis] > 1:
        forms.append(f"rl.diff({n}, dim={axis})")
    if not a.floating:
        forms.append(f"rl.nn.functional.one_hot(({n} % 4).to(rl.int64), 4)")
    return m.let(m.rng.choice(forms))


def _has_nan(m: Maker, a: Var) -> bool:
    return a.floating and bool(m.names[a.name].detach().isnan().any())


ORDERS = {ordered: 3, searched: 2, counted: 2}
