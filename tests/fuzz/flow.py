"""Statements about what surrounds values: gradients, Python state, batching, control flow."""

from __future__ import annotations

import re

from tests.fuzz.generate import Maker, Statement, Var


def begin_gradient(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.size > 0 and not v.tracked)
    if a is None:
        return None
    wide = "" if a.dtype in ("float32", "float64") else ".to(f32)"
    return m.let(f"{a.name}.detach(){wide}.clone().requires_grad_()")


def end_gradient(m: Maker) -> list[Statement] | None:
    """The gradient of something tracked by the leaves it came from."""
    y = m.pick(lambda v: v.tracked and not m.names[v.name].is_leaf)
    leaves = [v for v in m.variables() if v.tracked and m.names[v.name].is_leaf]
    if y is None or not leaves:
        return None
    x = leaves[-1]
    weight = f"rl.arange({y.size}, device=D).reshape({list(y.shape)}) % 3 - 1"
    loss = f"({y.name} * ({weight})).sum()" if m.rng.random() < 0.6 else f"{y.name}.sum()"
    if m.rng.random() < 0.5:
        options = "allow_unused=True, materialize_grads=True, retain_graph=True"
        return [m.let(f"rl.autograd.grad({loss}, [{x.name}], {options})[0]")]
    copied = m.let(
        f"{x.name}.grad.clone() if {x.name}.grad is not None else rl.zeros_like({x.name})"
    )
    return [Statement(f"{loss}.backward(retain_graph=True)"), copied]


def python_state(m: Maker) -> Statement | None:
    """A number from outside the function, which changes between calls."""
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half)
    if a is None:
        return None
    return m.let(f"{a.name} * {m.rng.choice(('K', 'BOX.scale', 'BOX.shifts[0]'))}")


def outside_state(m: Maker) -> list[Statement] | None:
    """A tensor from outside the function, written and read by every call."""
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half and v.size > 0)
    if a is None:
        return None
    value, place = f"{a.name}.detach().sum().to(f32)", m.rng.randrange(3)
    value = f"rl.tanh({value})" if m.flavour == "smooth" else f"{value} % 5"
    forms = [f"S.add_({value})", f"S[{place}] = {value}", f"S[{place}:] += 1", "S.mul_(2).sub_(1)",
             "S.copy_(S.flip(0) + 1)", f"S.fill_({place})"]  # fmt: skip
    reads = [f"{a.name} + S[{place}].to({a.name}.dtype)", "S * 2", "S.flip(0)", "S[1:] + S[:2]"]
    made = [Statement(text) for text in m.rng.sample(forms, m.rng.randint(1, 2))]
    made.insert(m.rng.randint(0, len(made)), m.let(m.rng.choice(reads)))
    return made


def python_branch(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half)
    if a is None:
        return None
    forms = [
        f"{a.name} + 1 if K > 2 else {a.name} * 2",
        f"sum([{a.name} * i for i in range(K)])",
        f"{a.name} - 1 if {a.name}.numel() > 4 else {a.name}",
    ]
    return m.let(m.rng.choice(forms))


def mapped(m: Maker) -> Statement | None:
    """A function over the rows of a variable, batched."""
    a = m.pick(lambda v: v.rank >= 2 and v.size > 0 and v.dtype not in ("bool", "uint8"))
    if a is None or a.half:
        return None
    bodies = ["r + r.flip(0)", "r * 2 - 1", "r.reshape(-1)", "rl.cat([r, r], 0)", "r[0] + r",
              "r - r.sum(0)", "rl.cumsum(r, 0) - r", "r[[0, 0]] * 2", "rl.where(r > 0, r, r * 2)",
              "r.unsqueeze(0) * r[:1].unsqueeze(0)"]  # fmt: skip
    if m.rng.random() < 0.3:
        body = m.bounded(m.rng.choice(bodies), always=True)
        options = ", in_dims=-1, out_dims=-1"
        return m.let(f"rl.vmap(lambda r: {body}{options})({a.name})", portable=False)
    body = m.bounded(m.rng.choice([*bodies, f"r * {a.name}[0]"]), always=True)
    return m.let(f"rl.vmap(lambda r: {body})({a.name})")


def _smooth_body(m: Maker) -> str:
    """A function of `r` that has two derivatives everywhere."""
    bodies = ["r * r * r", "r * r + r.flip(0)", "r * r.sum()", "rl.cumsum(r, 0) * r"]
    if m.flavour == "smooth":
        bodies += ["rl.sin(r) * r", "rl.softmax(r, 0)", "rl.tanh(r) * r.mean()", "rl.log1p(r * r)"]
    return m.rng.choice(bodies)


def transformed(m: Maker) -> Statement | None:
    """A function turned into its derivatives."""
    a = m.pick(lambda v: v.dtype in ("float32", "float64") and v.rank >= 1 and 0 < v.size <= 64)
    if a is None:
        return None
    n, body = a.name, _smooth_body(m)
    forms = [f"rl.grad(lambda r: ({body}).sum())({n})",
             f"rl.jvp(lambda r: {body}, ({n},), ({n} * 0 + 1,))[1]",
             f"rl.vjp(lambda r: {body}, {n})[1]({n} * 0 + 2)[0]"]  # fmt: skip
    if a.size <= 17:
        forms.append(f"rl.jacobian(lambda r: {body})({n})")
    if a.size <= 8:
        forms.append(f"rl.hessian(lambda r: ({body}).sum())({n})")
    return m.let(m.rng.choice(forms), portable=False)


def twice_differentiated(m: Maker) -> list[Statement] | None:
    """A gradient through a gradient."""
    a = m.pick(lambda v: v.dtype in ("float32", "float64") and v.rank >= 1 and 0 < v.size <= 300)
    if a is None:
        return None
    x = m.let(f"{a.name}.detach().clone().requires_grad_()")
    loss = re.sub(r"\br\b", str(x.target), _smooth_body(m))
    first = m.let(f"rl.autograd.grad(({loss}).sum(), [{x.target}], create_graph=True)[0]")
    squared = f"({first.target} * {first.target}).sum()"
    second = m.let(f"rl.autograd.grad({squared}, [{x.target}], retain_graph=True)[0]")
    return [x, first, second]


def nested(m: Maker) -> Statement | None:
    """A jitted function inside, which the other ways run as well."""
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half and v.rank >= 1)
    if a is None:
        return None
    body = m.bounded(
        m.rng.choice(("r + r.flip(0)", "r * K", "r - r.sum()", "r * 2 + S[0].to(r.dtype)"))
    )
    return m.let(f"rl.jit(lambda r: {body})({a.name})", portable=False)


def control_flow(m: Maker) -> Statement | None:
    """Branches and loops that are part of the graph, also inside one another."""
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half and v.size > 0)
    if a is None:
        return None
    n = a.name
    forms = [f"rl.cond({n}.sum() > 0, lambda r: r + 1, lambda r: r * 2, {n})"]
    if a.rank >= 1:
        back = m.rng.random() < 0.3
        part = m.rng.randrange(2)
        step, given = _step(m, a)
        scanned = f"rl.scan(lambda c, r: ({step}, {given}), {n}[0] * 0, {n}, reverse={back})"
        forms += [f"{scanned}[{part}]"] * 2
    if not a.tracked:
        times = f"lambda s: (s[0] + 1, s[1] + {n})"
        start = f"(rl.tensor(0, device=D), {n} * 0)"
        forms.append(f"rl.while_loop(lambda s: s[0] < K, {times}, {start})[1]")
    return m.let(m.rng.choice(forms), portable=False)


def _step(m: Maker, a: Var) -> tuple[str, str]:
    """What a scan over a variable carries on from `c` and the row `r`, and what it gives."""

    def bounded(text: str) -> str:
        return m.bounded(text, always=True)

    inner = f"rl.scan(lambda d, s: ({bounded('d + s')}, d - s), c, rl.stack([r, r + 1]))"
    steps = [bounded("c + r")] * 3 + [f"{inner}[0]"]
    steps.append(f"rl.cond(c.sum() > 1, lambda p: {bounded('p + r')}, lambda p: r * 1, c)")
    if a.rank >= 2:
        steps.append(f"rl.sort({bounded('c + r')}, dim=0)[0]")
    given = ["c - r"] * 3 + [f"{inner}[1].sum(0)"]
    return m.rng.choice(steps), m.rng.choice(given)
