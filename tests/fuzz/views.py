"""Statements that read: views, joins, gathers and scatters."""

from __future__ import annotations

from tests.fuzz.generate import Maker, Statement, Var


def permute(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 2, rare=True)
    if a is None:
        return None
    order = list(range(a.rank))
    m.rng.shuffle(order)
    forms = [f"{a.name}.permute({', '.join(map(str, order))})", f"{a.name}.transpose(0, -1)"]
    forms += [f"{a.name}.mT", f"rl.movedim({a.name}, 0, -1)", f"{a.name}.swapaxes(-1, -2)"]
    if a.rank == 2:
        forms.append(f"{a.name}.T")
        forms.append(f"rl.rot90({a.name}, {m.rng.randint(-1, 3)})")
    return m.let(m.rng.choice(forms))


def reshape(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.size > 0, rare=True)
    if a is None:
        return None
    shape = another_shape(m, a.size)
    if m.rng.random() < 0.3:
        forms = [f"{a.name}.squeeze()", f"{a.name}.flatten()", f"{a.name}.reshape(-1)"]
        if a.rank >= 2:
            forms.append(f"{a.name}.flatten({m.rng.randint(0, a.rank - 2)}, -1)")
        return m.let(m.rng.choice(forms))
    if m.rng.random() < 0.3:
        shape[-1] = -1
    return m.let(f"{a.name}.reshape({', '.join(map(str, shape))})")


def another_shape(m: Maker, size: int) -> list[int]:
    """Up to four axes with so many elements."""
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        shape.append(m.rng.choice([d for d in range(1, size + 1) if size % d == 0]))
        size //= shape[-1]
    return [*shape, size]


def unsqueeze(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank <= 3, rare=True)
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
    a = m.pick(lambda v: v.rank >= 1, rare=True)
    return None if a is None else m.let(f"{a.name}[{subscript(m, a, basic=m.rng.random() < 0.7)}]")


def flip(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1, rare=True)
    if a is None:
        return None
    axis = m.axis(a)
    forms = [f"rl.flip({a.name}, [{axis}])", f"rl.roll({a.name}, {m.rng.randint(-3, 3)}, {axis})"]
    return m.let(m.rng.choice(forms))


def join(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1, rare=True)
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
    if a.rank == 2:
        forms.append(f"rl.diag_embed({a.name}, {m.rng.randint(-1, 1)})")
    return m.let(m.rng.choice(forms))


def split(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and max(v.shape) >= 2, rare=True)
    if a is None:
        return None
    axis = a.shape.index(max(a.shape))
    part = m.rng.randrange(2)
    forms = [
        f"rl.chunk({a.name}, 2, {axis})[{part}]",
        f"{a.name}.unfold({axis}, 2, {m.rng.randint(1, 2)})",
        f"{a.name}.repeat({', '.join(['1'] * (a.rank - 1) + ['2'])})",
        f"{a.name}.narrow({axis}, {part}, {a.shape[axis] - 1})",
        f"{a.name}.unbind({axis})[{part}]",
        f"rl.tensor_split({a.name}, 2, {axis})[{part}]",
        f"{a.name}.repeat_interleave(2, {axis})",
        f"rl.split({a.name}, {m.rng.randint(1, a.shape[axis])}, {axis})[-1]",
    ]
    return m.let(m.rng.choice(forms))


def overlapping(m: Maker) -> Statement | None:
    """A strided view in which elements come several times, or some never."""
    a = m.pick(lambda v: v.size >= 2 and not v.tracked, rare=True)
    if a is None:
        return None
    rows = m.rng.randint(1, min(4, a.size))
    step, inner = m.rng.randint(0, 3), m.rng.randint(1, 2)
    columns = min(5, (a.size - 1 - (rows - 1) * step) // inner + 1)
    if columns < 1:
        return None
    base = f"{a.name}.clone().contiguous()"
    return m.let(f"rl.as_strided({base}, ({rows}, {columns}), ({step}, {inner})) * 1")


def places(m: Maker, below: int, count: int) -> str:
    """An index tensor by a formula: `count` places below a bound, with repeats."""
    step, start = m.rng.randint(1, 5), m.rng.randint(0, 3)
    return f"(rl.arange({count}, device=D) * {step} + {start}) % {below}"


def gather(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0, rare=True)
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
    if a.rank >= 2:
        rows, columns = (places(m, a.shape[i], count) for i in (0, -1))
        forms.append(f"{a.name}[{rows}, ..., {columns}]")
    forms.append(f"rl.take({a.name}, {places(m, a.size, count)})")
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
    start = f"rl.zeros({zeros}, dtype={a.name}.dtype, device=D)"
    forms = [
        f"{start}.index_add({axis}, {picks}, {a.name})",
        f"{start}.scatter_add({axis}, {along}, {a.name})",
        f"{start}.scatter_reduce({axis}, {along}, {a.name}, 'amax')",
    ]
    if count > 4 and axis == 0 and not a.half:
        forms.append(f"{start}.index_put(({picks},), {a.name}, accumulate=True)")
    if a.tracked:
        forms.pop(2)  # its derivative divides among equals
    else:
        mode, keeps = m.rng.choice(("amin", "sum", "amax")), m.rng.random() < 0.5
        forms.append(f"{start}.scatter_reduce({axis}, {along}, {a.name}, '{mode}', "
                     f"include_self={keeps})")  # fmt: skip
    return m.let(m.rng.choice(forms))
