"""Statements that both flavours have: views, joins, gathers, writes through views, gradients."""

from __future__ import annotations

from tests.fuzz.generate import Maker, Statement, Var


def permute(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 2)
    if a is None:
        return None
    order = list(range(a.rank))
    m.rng.shuffle(order)
    forms = [f"{a.name}.permute({', '.join(map(str, order))})", f"{a.name}.transpose(0, -1)"]
    if a.rank == 2:
        forms.append(f"{a.name}.T")
    return m.let(m.rng.choice(forms))


def reshape(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.size > 0)
    if a is None:
        return None
    rest, shape = a.size, []
    while rest > 1 and len(shape) < 3:
        shape.append(m.rng.choice([d for d in range(1, rest + 1) if rest % d == 0]))
        rest //= shape[-1]
    shape.append(-1 if m.rng.random() < 0.3 else rest)
    return m.let(f"{a.name}.reshape({', '.join(map(str, shape))})")


def unsqueeze(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank <= 3)
    if a is None:
        return None
    where = m.rng.randint(-a.rank - 1, a.rank)
    if m.rng.random() < 0.5:
        return m.let(f"{a.name}.unsqueeze({where})")
    place = where if where >= 0 else where + a.rank + 1
    sizes = ["-1"] * a.rank
    sizes.insert(place, str(m.rng.randint(1, 4)))
    return m.let(f"{a.name}.unsqueeze({where}).expand({', '.join(sizes)})")


def subscript(m: Maker, a: Var, basic: bool = True) -> str:
    """A random subscript of a variable, without empty results."""
    parts: list[str] = []
    for length in a.shape:
        kind = m.rng.random()
        if kind < 0.3 or length == 0:
            parts.append(":")
        elif kind < 0.45:
            parts.append(str(m.rng.randrange(-length, length)))
        elif kind < 0.8 or basic or "[" in "".join(parts):
            start = m.rng.randrange(length)
            stop = m.rng.randint(start + 1, length)
            step = m.rng.choice(("", "", ":2", ":3"))
            parts.append(f"{start}:{stop}{step}")
        else:
            count = m.rng.randint(1, 4)
            parts.append(str([m.rng.randrange(length) for _ in range(count)]))
    while parts and parts[-1] == ":" and m.rng.random() < 0.5:
        parts.pop()
    if len(parts) < a.rank and m.rng.random() < 0.2:
        parts.append("...")
    if m.rng.random() < 0.1:
        parts.append("None")
    return ", ".join(parts) or "..."


def index(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1)
    return None if a is None else m.let(f"{a.name}[{subscript(m, a, basic=m.rng.random() < 0.7)}]")


def flip(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1)
    if a is None:
        return None
    axis = m.axis(a)
    forms = [f"rl.flip({a.name}, [{axis}])", f"rl.roll({a.name}, {m.rng.randint(-3, 3)}, {axis})"]
    return m.let(m.rng.choice(forms))


def join(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1)
    if a is None:
        return None
    axis = m.rng.randrange(a.rank)
    same = [
        v.name
        for v in m.variables()
        if v.dtype == a.dtype
        and v.rank == a.rank
        and all(i == axis or s == t for i, (s, t) in enumerate(zip(a.shape, v.shape)))
    ]
    parts = [a.name, *m.rng.choices(same, k=m.rng.randint(1, 2))]
    if m.rng.random() < 0.3:
        return m.let(f"rl.stack([{a.name}, {a.name}], {axis})")
    return m.let(f"rl.cat([{', '.join(parts)}], {axis})")


def pad(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.dtype != "bool")
    if a is None:
        return None
    widths = [m.rng.choice((0, 1, 2, -1)) for _ in range(2 * m.rng.randint(1, min(2, a.rank)))]
    for place in range(0, len(widths), 2):
        if a.shape[-1 - place // 2] + min(widths[place], 0) + min(widths[place + 1], 0) < 1:
            return None
    value = m.rng.choice((0, 3))
    return m.let(f"rl.nn.functional.pad({a.name}, {widths}, value={value})")


def triangle(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 2)
    if a is None:
        return None
    which = m.rng.choice(("tril", "triu"))
    forms = [f"rl.{which}({a.name}, {m.rng.randint(-2, 2)})", f"rl.diagonal({a.name}, 0, 0, 1)"]
    return m.let(m.rng.choice(forms))


def split(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and max(v.shape) >= 2)
    if a is None:
        return None
    axis = a.shape.index(max(a.shape))
    part = m.rng.randrange(2)
    forms = [
        f"rl.chunk({a.name}, 2, {axis})[{part}]",
        f"{a.name}.unfold({axis}, 2, {m.rng.randint(1, 2)})",
        f"{a.name}.repeat({', '.join(['1'] * (a.rank - 1) + ['2'])})",
        f"{a.name}.narrow({axis}, {part}, {a.shape[axis] - 1})",
    ]
    return m.let(m.rng.choice(forms))


def places(m: Maker, below: int, count: int) -> str:
    """An index tensor by a formula: `count` places below a bound, with repeats."""
    return f"(rl.arange({count}) * {m.rng.randint(1, 5)} + {m.rng.randint(0, 3)}) % {below}"


def gather(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0)
    if a is None:
        return None
    axis, count = m.axis(a), m.rng.randint(1, 9)
    picks = places(m, a.shape[axis], count)
    shape = list(a.shape)
    shape[axis] = count
    lined = [1] * a.rank
    lined[axis] = count
    along = f"({picks}).reshape({lined}).expand({shape})"
    forms = [f"rl.index_select({a.name}, {axis}, {picks})", f"rl.gather({a.name}, {axis}, {along})"]
    if a.rank <= 3:
        forms.append(
            f"{a.name}[{', '.join([':'] * (axis % a.rank))}{',' if axis % a.rank else ''}{picks}]"
        )
    return m.let(m.rng.choice(forms))


def scatter(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and v.dtype != "bool")
    if a is None:
        return None
    axis, count = m.rng.randrange(a.rank), m.rng.randint(1, 7)
    target = m.rng.randint(1, 6)
    picks = places(m, target, a.shape[axis])
    zeros = list(a.shape)
    zeros[axis] = target
    lined = [1] * a.rank
    lined[axis] = a.shape[axis]
    along = f"({picks}).reshape({lined}).expand({list(a.shape)})"
    start = f"rl.zeros({zeros}, dtype={a.name}.dtype)"
    forms = [
        f"{start}.index_add({axis}, {picks}, {a.name})",
        f"{start}.scatter_add({axis}, {along}, {a.name})",
        f"{start}.scatter_reduce({axis}, {along}, {a.name}, 'amax')",
    ]
    if count > 4 and axis == 0 and not a.half:
        forms.append(f"{start}.index_put(({picks},), {a.name}, accumulate=True)")
    if a.tracked:
        forms.pop(2)  # its derivative divides among equals
    return m.let(m.rng.choice(forms))


def write(m: Maker) -> list[Statement] | None:
    """A change in place, through a view or of the whole."""
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and v.dtype != "bool" and not v.tracked)
    if a is None:
        return None
    made = []
    name = a.name
    if not name.startswith("a") or m.rng.random() < 0.5:
        made.append(m.let(f"{name}.clone().contiguous()"))
        name = str(made[0].target)
    part = f"{name}[{subscript(m, a)}]"
    number = m.rng.choice((1, 2, 3, "BOX.shifts[0]"))
    forms = [
        f"{part}.add_({number})", f"{part}.mul_(2)", f"{part} += {number}", f"{part} = {number}",
        f"{name}.T.add_(1)" if a.rank == 2 else f"{name}.sub_(1)",
        f"{name}.permute(1, 2, 0)[0].add_(1)" if a.rank == 3 else f"{name}.mul_(2)",
        f"{part}.zero_()", f"{part}.copy_({part} * 2)", f"{name}.fill_({number})",
        f"{name}[::2].neg_()" if name == a.name else f"{name}.reshape(-1)[::2].add_(1)",
    ]  # fmt: skip
    if a.dtype == "uint8":
        forms = [f for f in forms if "sub_" not in f and "neg_" not in f]
    made.append(Statement(m.rng.choice(forms)))
    return made


def view_then_write(m: Maker) -> list[Statement] | None:
    """A view is taken, its base or itself changes, and both are seen."""
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and v.dtype != "bool" and not v.tracked)
    if a is None:
        return None
    base = m.let(f"{a.name}.clone()")
    view = m.let(f"{base.target}[{subscript(m, a)}]")
    changed, seen = m.rng.sample([base.target, view.target], 2)
    return [base, view, Statement(f"{changed}.add_(1)"), m.let(f"{seen} * 2")]


def masked_write(m: Maker) -> list[Statement] | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and v.dtype != "bool" and not v.tracked)
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


def begin_gradient(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.dtype in ("float32", "float64") and v.size > 0 and not v.tracked)
    return None if a is None else m.let(f"{a.name}.detach().clone().requires_grad_()")


def end_gradient(m: Maker) -> list[Statement] | None:
    """The gradient of something tracked by the leaves it came from."""
    y = m.pick(lambda v: v.tracked and not m.names[v.name].is_leaf)
    leaves = [v for v in m.variables() if v.tracked and m.names[v.name].is_leaf]
    if y is None or not leaves:
        return None
    x = leaves[-1]
    weight = f"rl.arange({y.size}).reshape({list(y.shape)}) % 3 - 1"
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
    body = m.rng.choice(
        ("r + r.flip(0)", "r * 2 - 1", "r.reshape(-1)", "rl.cat([r, r], 0)", "r[0] + r")
    )
    return m.let(f"rl.vmap(lambda r: {body})({a.name})")


def control_flow(m: Maker) -> Statement | None:
    """Branches and loops that are part of the graph."""
    a = m.pick(lambda v: v.dtype not in ("bool", "uint8") and not v.half and v.size > 0)
    if a is None:
        return None
    n = a.name
    forms = [f"rl.cond({n}.sum() > 0, lambda r: r + 1, lambda r: r * 2, {n})"]
    step = "rl.tanh(c + r)" if m.flavour == "smooth" else "(c + r) % 5"
    if a.rank >= 1:
        back = m.rng.random() < 0.3
        part = m.rng.randrange(2)
        scanned = f"rl.scan(lambda c, r: ({step}, c - r), {n}[0] * 0, {n}, reverse={back})"
        forms += [f"{scanned}[{part}]"] * 2
    if not a.tracked:
        times = f"lambda s: (s[0] + 1, s[1] + {n})"
        forms.append(f"rl.while_loop(lambda s: s[0] < K, {times}, (rl.tensor(0), {n} * 0))[1]")
    return m.let(m.rng.choice(forms), portable=False)


COMMON = {
    permute: 3, reshape: 3, unsqueeze: 2, index: 4, flip: 2, join: 3, pad: 2, triangle: 1, split: 2,
    gather: 4, scatter: 3, write: 4, view_then_write: 2, masked_write: 2, begin_gradient: 3,
    end_gradient: 5, python_state: 2, python_branch: 1, mapped: 1,
    control_flow: 2,
}  # fmt: skip
