"""Statements over real numbers, continuous in their operands, judged by error against float64."""

from __future__ import annotations

from tests.fuzz.common import COMMON
from tests.fuzz.exact import _broadcasts, product
from tests.fuzz.generate import Maker, Statement
from tests.fuzz.layers import LAYERS
from tests.fuzz.views import places


def unary(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.floating)
    if a is None:
        return None
    n = a.name
    forms = [
        f"rl.exp(rl.tanh({n}))", f"rl.tanh({n})", f"rl.sigmoid({n})", f"rl.sin({n})",
        f"rl.log1p({n} * {n})", f"rl.sqrt({n} * {n} + 1)", f"1 / ({n} * {n} + 1)", f"-{n}",
        f"rl.rsqrt({n} * {n} + 0.5)", f"rl.nn.functional.gelu({n})", f"rl.nn.functional.silu({n})",
        f"rl.nn.functional.softplus({n})", f"rl.erf({n})",
        f"rl.expm1(rl.sin({n}))", f"{n} * 0.3 - 0.1", f"rl.cos({n})",
        f"rl.asinh({n})", f"rl.sinh(rl.tanh({n}))", f"rl.nn.functional.mish({n})",
        f"rl.exp2(rl.sin({n}))", f"rl.nn.functional.elu({n})",
        f"rl.log(rl.cosh(rl.sin({n})) + 1)", f"rl.erfc({n})", f"rl.lgamma({n} * {n} + 1)",
        f"rl.nn.functional.logsigmoid({n})", f"rl.acos(rl.tanh({n}) * 0.9)",
        f"rl.digamma({n} * {n} + 1)", f"rl.i0({n} * 0.5)", f"rl.sinc(rl.tanh({n}) * 0.9)",
        f"rl.atan({n})", f"(rl.cos({n}) + 1.5) ** 1.7", f"{n} * 1",
    ]  # fmt: skip
    chosen = m.rng.choice(forms)
    return m.let(chosen, portable="digamma" not in chosen)  # torch's is off by 4 ulp at 1


def binary(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.floating)
    if a is None:
        return None
    b = m.pick(lambda v: v.floating and _broadcasts(a, v))
    if b is None:
        return None
    x, y = m.rng.sample([a.name, b.name], 2)
    forms = [f"{x} + {y}", f"{x} - {y}", f"rl.tanh({x}) * {y}", f"{x} / ({y} * {y} + 1)",
             f"rl.maximum({x}, {y})", f"{x} * 0.5"]  # fmt: skip
    if a.dtype == b.dtype and not a.half:
        forms += [f"rl.hypot({x}, {y})", f"rl.lerp({x} * 1., {y} * 1., 0.3)"]
    return m.let(m.rng.choice(forms))


def complex_numbers(m: Maker) -> Statement | None:
    """Functions of complex numbers away from their branch cuts, and parts of the results."""
    a = m.pick(lambda v: v.dtype in ("float32", "float64"))
    if a is None:
        return None
    n = a.name
    z = f"rl.complex(rl.tanh({n}), rl.sin({n}))"
    forms = [
        f"rl.exp({z})", f"rl.sin({z} * 1j)", f"rl.tanh({z} * 0.5)", f"rl.sqrt({z} + 2)",
        f"rl.log({z} + 2)", f"1 / ({z} + 2)", f"{z} * {z}.conj() + {z}", f"rl.cos({z}).sum()",
    ]  # fmt: skip
    value = m.rng.choice(forms)
    return m.let(m.rng.choice([f"({value}).real", f"rl.view_as_real({value})", f"({value}).abs()"]))


def convert(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.floating)
    if a is None:
        return None
    return m.let(f"{a.name}.to({m.rng.choice(('f32', 'f32', 'bf16', 'f16'))})")


def rows(m: Maker) -> Statement | None:
    """Reductions and what normalises along an axis."""
    a = m.pick(lambda v: v.floating and v.rank >= 1 and v.size > 0)
    if a is None:
        return None
    n, axis = a.name, m.axis(a)
    last = a.shape[-1]
    forms = [
        f"rl.sum({n}, {axis})", f"rl.mean({n}, {axis}, keepdim=True)", f"rl.softmax({n}, {axis})",
        f"rl.log_softmax({n}, {axis})", f"rl.logsumexp({n}, {axis})",
        f"rl.cumsum({n}, {axis}) * 0.1",
        f"rl.nn.functional.layer_norm({n}, [{last}])" if last > 2 else f"{n}.mean()",
        f"rl.var({n}, {axis}, correction=0)", f"({n} - rl.mean({n}, {axis}, keepdim=True)) * 0.5",
        f"rl.std({n} + {n} * {n}, {axis}, correction=0) * 0.5" if not a.tracked else f"{n} * 0.9",
        f"rl.logcumsumexp({n}, {axis}) * 0.2",
        f"rl.nn.functional.normalize({n}, dim={axis}, eps=0.1)",
        f"rl.nn.functional.rms_norm({n}, [{last}])" if last > 2 else f"{n}.mean()",
        f"{n}.sum() * 0.01", f"rl.amax({n}, {axis})" if not a.tracked else f"{n} * 0.7",
    ]  # fmt: skip
    return m.let(m.rng.choice(forms))


def loss(m: Maker) -> Statement | None:
    a = m.pick(lambda v: v.dtype in ("float32", "float64") and v.rank == 2 and v.size > 0)
    if a is None:
        return None
    target = f"({places(m, a.shape[1], a.shape[0])})"
    forms = [
        f"rl.nn.functional.cross_entropy({a.name}, {target})",
        f"rl.nn.functional.mse_loss({a.name}, {a.name} * 0.5)",
    ]
    return m.let(m.rng.choice(forms))


def attention(m: Maker) -> Statement | None:
    """Queries, keys and values of one variable, with what masks and scales them."""
    a = m.pick(lambda v: v.floating and v.rank in (3, 4) and v.size > 0)
    if a is None:
        return None
    n, length = a.name, a.shape[-2]
    short = m.rng.randint(1, length)
    keys, values = f"rl.flip({n}, [-2])[..., :{short}, :]", f"rl.tanh({n})[..., :{short}, :]"
    lower = f"rl.arange({short}, device=D) <= rl.arange({length}, device=D)[:, None]"
    options = ["", ", scale=0.3", f", attn_mask={lower}", ", attn_mask=rl.zeros_like("
               f"{n})[..., :1].expand({[*a.shape[:-1], short]})"]  # fmt: skip
    if short == length:
        options += [", is_causal=True"] * 2
    called = "rl.nn.functional.scaled_dot_product_attention"
    return m.let(f"{called}({n}, {keys}, {values}{m.rng.choice(options)})")


_OWN = {
    unary: 10, binary: 8, convert: 2, rows: 9, loss: 2, product: 4, attention: 3,
    complex_numbers: 2,
}  # fmt: skip
_UNSUITED = ("masked_write",)
_ALL = {f: w for f, w in {**COMMON, **LAYERS, **_OWN}.items() if f.__name__ not in _UNSUITED}
MAKERS = ([*_ALL], [*_ALL.values()])
