"""Statements over whole numbers, on which every way must agree to the bit."""

from __future__ import annotations

from tests.fuzz.common import COMMON
from tests.fuzz.generate import Maker, Statement, Var
from tests.fuzz.layers import LAYERS
from tests.fuzz.orders import ORDERS
from tests.fuzz.rare import RARE


def _numeric(v: Var) -> bool:
    return v.dtype != "bool"


def unary(m: Maker) -> Statement | None:
    a = m.pick(_numeric)
    if a is None:
        return None
    n = a.name
    forms = [f"rl.abs({n})", f"rl.sign({n})", f"rl.clamp({n}, 0, 3)", f"rl.relu({n})", f"{n} % 3",
             m.bounded(f"{n} * {n}"), f"rl.square({n}) % 5", f"rl.clamp({n}, max=2)"]  # fmt: skip
    if not a.tracked:
        forms.append(f"{n} // 2")  # torch has no derivative of it
    if a.dtype != "uint8":
        forms += [f"-{n}", f"1 - {n}", f"rl.where({n} > 0, {n}, -{n})"]
    if a.floating:
        forms += [f"rl.floor({n} / 2)", f"rl.round({n} / 2)", f"rl.ceil({n} / 4)", f"{n} / 2",
                  f"rl.trunc({n} / 2)", f"rl.isnan({n})", f"rl.fmod({n}, 3)", f"{n} ** 2",
                  f"rl.isfinite({n})", f"rl.copysign({n}, {n} - 1)",
                  f"rl.signbit({n}) & ({n} == {n})",  # NaN has any sign
                  f"rl.heaviside({n}, {n} * 0 + 1)",
                  f"rl.nan_to_num({n}, 1., 2., 3.)"]  # fmt: skip
        if a.tracked:
            forms = [f for f in forms if "copysign" not in f and "heaviside" not in f]
    else:
        forms += [f"~{n}", f"{n} << 1", f"{n} >> 1", f"{n} & 3", f"{n} ^ 5", f"{n} | 1"]
        if a.dtype == "uint8":
            forms = [f for f in forms if f[0] != "~"]
    chosen = m.rng.choice(forms)
    # which zero a maximum or a product over one element is, hangs on the kernel that torch takes
    return m.let(chosen, portable="signbit" not in chosen)


def binary(m: Maker) -> Statement | None:
    a = m.pick()
    if a is None:
        return None
    b = m.pick(lambda v: _broadcasts(a, v))
    if b is None:
        return None
    x, y = m.rng.sample([a.name, b.name], 2)
    if a.dtype == "bool" and b.dtype == "bool":
        forms = [f"{x} & {y}", f"{x} | {y}", f"{x} ^ {y}", f"{x} == {y}"]
    else:
        forms = [f"{x} + {y}", f"rl.maximum({x}, {y})", f"rl.minimum({x}, {y})", f"{x} < {y}",
                 f"{x} == {y}", f"{x} >= {y}", m.bounded(f"{x} * {y}"), m.bounded(f"{x} + {y}"),
                 f"rl.where({x} != 0, {x}, {y})", f"{x} // (rl.abs({y} * 1) + 1)",
                 f"{x} % (rl.abs({y} * 1) + 1)"]  # fmt: skip
        if "bool" not in (a.dtype, b.dtype):
            forms.append(f"{x} - {y}")
            forms.append(f"rl.clamp({x}, {y} - 1, {y} + 1)" if a.dtype == b.dtype else forms[0])
        if a.floating or b.floating:
            forms = [f for f in forms if "//" not in f]
    return m.let(m.rng.choice(forms))


def pairs(m: Maker) -> Statement | None:
    """Complex arithmetic on whole numbers, and its parts."""
    a = m.pick(lambda v: v.dtype in ("float32", "float64"))
    if a is None:
        return None
    n = a.name
    z, w = f"rl.complex({n} * 1, {n} % 3)", f"rl.complex(1 - {n}, {n} * 1)"
    value = m.rng.choice([f"{z} * {w}", f"{z} + {w}", f"{z} - {w}.conj()", f"-{z} / 2"])
    forms = [f"({value}).real % 7", f"({value}).imag % 5", f"rl.view_as_real({value}) % 5",
             f"{z} == {w}", f"({value}).sum().real % 7"]  # fmt: skip
    if a.rank == 2:
        forms.append(f"({z} @ {w}.mT).imag % 7")
    return m.let(m.rng.choice(forms))


def _broadcasts(a: Var, b: Var) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape))
    return all(s == t or 1 in (s, t) for s, t in pairs) and max(a.rank, b.rank) <= 4


def choose(m: Maker) -> Statement | None:
    mask = m.pick(lambda v: v.dtype == "bool")
    if mask is None:
        return None
    a = m.pick(lambda v: _numeric(v) and _broadcasts(mask, v))
    return None if a is None else m.let(f"rl.where({mask.name}, {a.name}, 2)")


def convert(m: Maker) -> Statement | None:
    a = m.pick()
    if a is None:
        return None
    kind = m.rng.choice(("f32", "f32", "f32", "f16", "bf16", "rl.float64", "rl.int64", "rl.int32",
                         "rl.int16", "rl.int8", "rl.uint8", "rl.bool"))  # fmt: skip
    name = a.name
    if "int" in kind and a.floating:
        name = f"rl.nan_to_num({name}, 0., 5., -5.)"
    if kind == "rl.uint8" and a.dtype != "bool":
        name = f"rl.abs({name})"
    return m.let(f"{name}.to({kind})")


def reduce(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0)
    if a is None:
        return None
    count = m.rng.randint(1, a.rank)
    axes = sorted(m.rng.sample(range(a.rank), count))
    keep = m.rng.random() < 0.4
    rest = f"dim={axes}, keepdim={keep}"
    n = a.name
    if a.dtype == "bool":
        forms = [
            f"rl.any({n}, {axes[0]})",
            f"rl.all({n}, {axes[0]}, keepdim={keep})",
            f"{n}.sum({axes[0]})",
        ]
    else:
        forms = [m.bounded(f"rl.sum({n}, {rest})"), m.bounded(f"rl.sum({n}, {rest})"),
                 f"{n}.sum()", f"({n} % 3 - 1).prod({axes[0]})",
                 f"rl.count_nonzero({n}, {axes[0]})"]  # fmt: skip
        if not a.tracked:
            forms += [
                f"rl.amax({n}, {rest})",
                f"rl.amin({n}, {rest})",
                f"rl.max({n}, {axes[0]})[0]",
            ]
        if keep:
            forms += [f"{n} - rl.amax({n}, {rest})"] if not a.tracked and a.dtype != "uint8" else []
        if a.dtype == "uint8":
            forms = [f for f in forms if "- 1" not in f]
        if a.floating and all(s & (s - 1) == 0 for s in a.shape):
            forms.append(f"rl.mean({n}, {rest})")
    return m.let(m.rng.choice(forms))


def place_of(m: Maker) -> Statement | None:
    """Where the largest is, of values without ties."""
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and _numeric(v))
    if a is None:
        return None
    which, axis = m.rng.choice(("argmax", "argmin")), m.rng.randrange(a.rank)
    return m.let(f"rl.{which}({a.name}, {axis})", portable=False)


def scan(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and _numeric(v))
    if a is None:
        return None
    axis = m.axis(a)
    forms = [f"rl.cumsum({a.name}, {axis}) % 7", f"rl.cumsum({a.name}.flip({axis}), {axis})"]
    if not a.tracked:
        forms.append(f"rl.cumprod({a.name} % 3 - 1, {axis})" if a.dtype != "uint8" else forms[0])
        if a.size:
            forms.append(f"rl.cummax({a.name}, {axis})[0]")
    return m.let(m.rng.choice(forms))


def sort(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and _numeric(v))
    if a is None:
        return None
    axis, down = m.axis(a), m.rng.random() < 0.5
    forms = [
        f"rl.sort({a.name}, dim={axis}, descending={down})[0]",
        f"rl.argsort({a.name}, dim={axis}, stable=True, descending={down})",
        f"rl.topk({a.name}, {m.rng.randint(1, a.shape[axis])}, {axis}, largest={down})[0]",
    ]
    return m.let(m.rng.choice(forms[:1] if a.tracked else forms), portable=not a.tracked)


def product(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.rank >= 1 and _numeric(v) and v.size > 0)
    if a is None:
        return None
    b = m.pick(lambda v: v.dtype == a.dtype and v.rank >= 1 and a.shape[-1] in v.shape)
    if b is None:
        return None
    place = b.shape.index(a.shape[-1])
    if a.rank <= 2 and b.rank <= 2:
        other = b.name if place == 0 else f"{b.name}.T"
        return m.let(m.bounded(f"{a.name} @ {other}"))
    if a.rank + b.rank > 6:
        return None
    letters = "abcdef"
    left = letters[: a.rank]
    right = "".join(left[-1] if i == place else letters[a.rank + i] for i in range(b.rank))
    kept = [c for c in left + right if c != left[-1]]
    shape = [s for c, s in zip(left + right, a.shape + b.shape) if c != left[-1]]
    if _total(shape) > 3000:
        return None
    m.rng.shuffle(kept)
    return m.let(m.bounded(f"rl.einsum('{left},{right}->{''.join(kept)}', {a.name}, {b.name})"))


def _total(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def products(m: Maker) -> Statement | None:
    """Three operands: a variable, a vector along one of its axes or beside them, itself again."""
    a = m.pick(lambda v: 1 <= v.rank <= 3 and _numeric(v) and 0 < v.size <= 300)
    if a is None:
        return None
    axes = "abc"[: a.rank]
    extra = m.rng.choice((*axes, "z"))
    length = a.shape[axes.index(extra)] if extra in axes else 3
    vector = f"(rl.arange({length}, device=D) % 3 - 1).to({a.name}.dtype)"
    if a.dtype == "uint8":
        vector = f"(rl.arange({length}, device=D) % 3).to(rl.uint8)"
    kept = "".join(m.rng.sample(axes + "z" * (extra == "z"), m.rng.randint(0, a.rank)))
    again = m.rng.choice((axes, axes[::-1]))
    turned = a.name if again == axes else f"{a.name}.permute({list(reversed(range(a.rank)))})"
    equation = f"'{axes},{extra},{again}->{kept}'"
    text = m.bounded(f"rl.einsum({equation}, {a.name}, {vector}, {turned})")
    return m.let(text, portable=a.floating)  # torch sums an axis of one operand in int64


def draw(m: Maker) -> Statement | None:
    shape = [m.rng.choice((1, 3, 5, 8)) for _ in range(m.rng.randint(1, 3))]
    forms = [
        f"rl.randint(-4, 5, {shape}, device=D).to(f32)",
        f"(rl.rand({shape}, device=D) * 8).floor()",
        f"rl.randperm({m.rng.randint(1, 20)}, device=D)",
        f"(rl.randn({shape}, device=D) > 0)",
        f"rl.bernoulli(rl.full({shape}, 0.5, device=D))",
        f"rl.nn.functional.dropout(rl.ones({shape}, device=D), 0.5)",
        f"rl.randint_like(rl.zeros({shape}, device=D), 5)",
        f"rl.zeros({shape}, device=D).bernoulli_(0.5)",
        f"rl.multinomial(rl.ones({shape[-1] + 1}, device=D), 3, replacement=True)",
    ]
    return m.let(m.rng.choice(forms), portable=False)


def overwrite(m: Maker) -> Statement | None:
    """Elements set at places that repeat: the last one stays."""
    a = m.pick(lambda v: v.rank >= 1 and v.size > 0 and _numeric(v) and not v.tracked)
    if a is None:
        return None
    axis = m.rng.randrange(a.rank)
    size = a.shape[axis]
    if a.floating:
        picks = f"rl.nan_to_num(rl.abs({a.name} * 1) % {size}, 0., 0., 0.).to(rl.int64)"
    else:  # a narrow type may not hold the size
        picks = f"rl.abs({a.name}.to(rl.int64)) % {size}"
    return m.let(f"{a.name}.scatter({axis}, {picks}, {a.name} + 1)", portable=False)


_OWN = {
    unary: 6, binary: 8, choose: 2, convert: 3, reduce: 8, place_of: 2, scan: 3, sort: 3,
    product: 5, products: 2, pairs: 2, draw: 2, overwrite: 2,
}  # fmt: skip
_ALL = {**COMMON, **LAYERS, **ORDERS, **RARE, **_OWN}
MAKERS = ([*_ALL], [*_ALL.values()])
