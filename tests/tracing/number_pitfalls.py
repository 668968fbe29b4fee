"""Cases of arithmetic, reductions and gradients at unusual values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tracing.value_cases import A, R, case


@case("log then log_", np.array(3.0, np.float32))
def _log_then_log(t: Any, x: Any) -> Any:
    y = t.log(x)
    x.log_()
    return y


@case("int floor div 0", np.array([1, -3, 0], np.int32), np.array([1, 2, 3], np.int32))
def _int_floor_div_0(t: Any, x: Any, y: Any) -> Any:
    return t.floor_divide(x, y), t.floor_divide(-x, y), x % y


@case(
    "float floor div",
    np.array([1.0, 0.5, 6, 1, -1, 5], np.float32),
    np.array([0.1, 0.1, 0.2, 1 / 3, 0.1, -0.3], np.float32),
)
def _float_floor_div(t: Any, x: Any, y: Any) -> Any:
    return (
        x // y,
        t.div(x, y, rounding_mode="floor"),
        t.div(x, y, rounding_mode="trunc"),
        x % y,
        t.fmod(x, y),
    )


@case(
    "float floor div64",
    np.array([1.0, 0.5, 6, 1, -1, 5]),
    np.array([0.1, 0.1, 0.2, 1 / 3, 0.1, -0.3]),
)
def _float_floor_div64(t: Any, x: Any, y: Any) -> Any:
    return x // y, x % y, t.fmod(x, y)


@case("intmin div", np.array([-(2**31), 7], np.int32), np.array([-1, -2], np.int32))
def _intmin_div(t: Any, x: Any, y: Any) -> Any:
    return t.floor_divide(x, y), x % y


@case("int64 min abs", np.array([-(2**63), 7], np.int64))
def _int64_min_abs(t: Any, x: Any) -> Any:
    return t.abs(x), -x, x - 1


@case("int8 overflow", np.array([127, -128, 100], np.int8))
def _int8_overflow(t: Any, x: Any) -> Any:
    return x + x, x * x, -x, x.sum(), x + 1, x * 3


@case("uint8 arith", np.array([250, 5, 0], np.uint8))
def _uint8_arith(t: Any, x: Any) -> Any:
    return x + 10, x - 10, -x, x.sum(), x * 2, ~x, x << 1


@case("shift beyond", np.array([1, -1, 5], np.int32))
def _shift_beyond(t: Any, x: Any) -> Any:
    return x << 31, x >> 31, x


@case("weak promotion", np.array([1, 2], np.float16))
def _weak_promotion(t: Any, x: Any) -> Any:
    return x * 2, x + 1.5, x * t.tensor(2.0), x * t.tensor([2.0])


@case("weak int", np.array([1, 2], np.int8))
def _weak_int(t: Any, x: Any) -> Any:
    return x * 2, x + 1.5, x * t.tensor(300), x / 2, x * True


@case("bool arith", np.array([True, False]))
def _bool_arith(t: Any, x: Any) -> Any:
    return x + x, x * 2, x.sum(), x.float().mean(), x | True, x & 1, ~x


@case("nan minmax", np.array([1, np.nan, 3], np.float32), np.array([2, 2, np.nan], np.float32))
def _nan_minmax(t: Any, x: Any, y: Any) -> Any:
    return (
        x.max(),
        x.min(),
        t.maximum(x, y),
        t.minimum(x, y),
        t.fmax(x, y),
        t.fmin(x, y),
        t.argmax(x),
        t.argmin(x),
        t.clamp(x, 0, 2),
        x.sort()[0],
        t.cummax(x, 0)[0],
        t.relu(x),
        t.sign(y * 0 + 1),
    )


@case("signed zero", np.array([-0.0, 0.0, -1], np.float32))
def _signed_zero(t: Any, x: Any) -> Any:
    return (
        1 / x,
        t.copysign(t.ones(3), x),
        t.sqrt(x.abs() * -1 * 0),
        x.sum(),
        -x,
        x + 0,
        t.round(x * 0.1),
        t.trunc(x * 0.5),
    )


@case("empty", np.zeros((0, 3), np.float32))
def _empty(t: Any, x: Any) -> Any:
    return (
        x.sum(0),
        x.sum(),
        x.mean(1),
        x.prod(),
        x @ t.ones(3, 2),
        t.cat([x, x]),
        x.softmax(1),
        x.any(),
        x.all(),
        x.cumsum(0),
        t.sort(x, 0)[0],
    )


@case("empty matmul k0", np.zeros((2, 0), np.float32))
def _empty_matmul_k0(t: Any, x: Any) -> Any:
    return x @ x.T, t.nn.functional.linear(x, t.zeros(3, 0), t.ones(3)), x.sum(1), x.T @ x


@case("0-d", np.array(2.0, np.float32))
def _0_d(t: Any, x: Any) -> Any:
    return (
        x + 1,
        x * t.ones(3),
        x.sum(),
        x.reshape(1, 1),
        x.unsqueeze(0),
        x.softmax(0),
        x.max(),
        t.sort(x)[0],
        x.cumsum(0),
        x.flatten(),
        t.stack([x, x]),
        x.expand(2, 2),
        x.clone().fill_(5),
    )


@case("complex special", np.array([0, 1, -1, 1j, -1j, 3 + 4j], np.complex64))
def _complex_special(t: Any, x: Any) -> Any:
    return (
        x.abs(),
        x.angle(),
        t.sqrt(x),
        t.exp(x),
        x * x,
        x / (x + 2),
        x.conj(),
        t.log(x + 1.5),
        x**2,
        t.sgn(x),
    )


@case(
    "complex inf",
    np.array(
        [complex(np.inf, 0), complex(0, np.inf), complex(np.nan, 1), complex(1, np.nan)],
        np.complex64,
    ),
)
def _complex_inf(t: Any, x: Any) -> Any:
    return x.abs(), t.isnan(x), t.isinf(x), x + 1, x.conj(), t.isfinite(x)


@case("large ints to float", np.array([2**24 + 1, 2**53 + 1, -(2**62)], np.int64))
def _large_ints_to_float(t: Any, x: Any) -> Any:
    return x.float(), x.double(), x.float()


@case("float to int", np.array([1.9, -1.9, 2.5, 0.5, -0.5], np.float32))
def _float_to_int(t: Any, x: Any) -> Any:
    return x.int(), x.long(), x.to(t.int8), x.bool(), t.round(x)


@case("float round half", np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32))
def _float_round_half(t: Any, x: Any) -> Any:
    return t.round(x), t.round(x * 10, decimals=1), t.floor(x), t.ceil(x), t.frac(x)


@case("bf16 accumulate", np.ones(1000, np.float32))
def _bf16_accumulate(t: Any, x: Any) -> Any:
    b = x.to(t.bfloat16)
    return b.sum(), b.mean(), (b * 1.001).sum().float()


@case("f16 overflow", np.array([60000.0, 6e4], np.float32))
def _f16_overflow(t: Any, x: Any) -> Any:
    h = x.half()
    return h + h, h * h, h.sum(), h.mean()


@case("denormals", np.array([1e-40, 1e-45, -1e-39], np.float32))
def _denormals(t: Any, x: Any) -> Any:
    return x * 1, x * 0.5, x + x, x.sum(), x.exp(), x > 0


@case(
    "pow edge",
    np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2], np.float32),
    np.array([0, -1, np.nan, np.inf, 0, 3, 0, -2, 0.5], np.float32),
)
def _pow_edge(t: Any, x: Any, y: Any) -> Any:
    return x**y, y**x, x**2, x**3, x**-1, x**0.5, x**0, 2**y


@case("int pow", np.array([0, 1, -1, 2, -3], np.int64))
def _int_pow(t: Any, x: Any) -> Any:
    return x**2, x**3, x**0, 2 ** t.abs(x), t.pow(x, t.abs(x))


@case("int neg pow", np.array([1, -1, 2], np.int64))
def _int_neg_pow(t: Any, x: Any) -> Any:
    return t.pow(x, t.tensor([-1, -1, -2]))


@case("logsumexp inf", np.array([[-np.inf, -np.inf], [np.inf, 1], [1, 2]], np.float32))
def _logsumexp_inf(t: Any, x: Any) -> Any:
    return t.logsumexp(x, 1), t.softmax(x, 1), t.log_softmax(x, 1)


@case("var one", np.ones((3, 1), np.float32))
def _var_one(t: Any, x: Any) -> Any:
    return x.var(1, correction=0), x.std(0), x.var(0)


@case("cumprod zero", np.array([2, 0, 3, 0], np.float32))
def _cumprod_zero(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    z = t.cumprod(y, 0).sum()
    z.backward()
    return y.grad, x.prod()


@case("prod zero grad", np.array([2, 0, 3], np.float32))
def _prod_zero_grad(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    y.prod().backward()
    return y.grad


@case("where nan grad", np.array([-1.0, 4], np.float32))
def _where_nan_grad(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    t.where(y > 0, t.sqrt(y), t.zeros(2)).sum().backward()
    return t.nan_to_num(y.grad, 7.0)


@case("abs grad 0", np.array([0.0, -1], np.float32))
def _abs_grad_0(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    (y.abs().sum() + t.relu(y).sum() + y.clamp(0, 1).sum() + t.maximum(y, y * 0).sum()).backward()
    return y.grad


@case("max ties grad", np.array([3.0, 3, 1], np.float32))
def _max_ties_grad(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    y.max().backward()
    z = x.clone().requires_grad_()
    z.amax().backward()
    return y.grad, z.grad


@case("sort stable ties grad", np.array([3.0, 1, 3, 1], np.float32))
def _sort_stable_ties_grad(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    (t.sort(y, stable=True)[0] * t.arange(4)).sum().backward()
    return y.grad


@case("norm grad 0", np.zeros(3, np.float32))
def _norm_grad_0(t: Any, x: Any) -> Any:
    y = x.clone().requires_grad_()
    y.norm().backward()
    return y.grad


@case("retain/accumulate", A(3))
def _retain_accumulate(t: Any, x: Any) -> Any:
    w = x.clone().requires_grad_()
    loss = (w**2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return w.grad


@case("conv empty batch", np.zeros((0, 3, 5, 5), np.float32))
def _conv_empty_batch(t: Any, x: Any) -> Any:
    return t.nn.functional.conv2d(x, t.ones(2, 3, 3, 3)), t.nn.functional.max_pool2d(x, 2)


@case("arange floats", np.zeros(1, np.float32))
def _arange_floats(t: Any, x: Any) -> Any:
    return (
        t.arange(0, 1, 0.1),
        t.arange(1, 0, -0.3),
        t.linspace(0, 1, 7),
        t.arange(5) / 3,
        t.arange(3, 3),
    )


@case("int mean err", np.array([1, 2], np.int64))
def _int_mean_err(t: Any, x: Any) -> Any:
    return x.float().mean(), x.sum() / 2, x / 2, x // 2


@case("bool index count", np.array([1.0, 2, 3], np.float32))
def _bool_index_count(t: Any, x: Any) -> Any:
    return (x > 1).sum(), (x > 1).float().sum(), x[[True, False, True]]


@case("roll neg", A(2, 3))
def _roll_neg(t: Any, x: Any) -> Any:
    return t.roll(x, (1, -1), (0, 1)), t.roll(x, 7), x.flip(0, 1)


@case("tril offsets", A(3, 5))
def _tril_offsets(t: Any, x: Any) -> Any:
    return t.tril(x, -2), t.triu(x, 4), t.tril(x, 7)


@case("topk nan", np.array([1, np.nan, 3, 2], np.float32))
def _topk_nan(t: Any, x: Any) -> Any:
    return t.topk(x, 2)[0], t.sort(x, descending=True)[0], t.argsort(x)


@case("remainder signs int", np.array([-7, 7, -7, 7], np.int64), np.array([3, -3, -3, 3], np.int64))
def _remainder_signs_int(t: Any, x: Any, y: Any) -> Any:
    return x % y, t.fmod(x, y), x // y, t.div(x, y, rounding_mode="trunc"), t.remainder(x, 3)


@case("bitwise", np.array([-7, 7, 0], np.int16))
def _bitwise(t: Any, x: Any) -> Any:
    return ~x, x & 5, x | 8, x ^ -1, x >> 1, x << 2


@case("isclose etc", np.array([1, np.nan, np.inf], np.float32))
def _isclose_etc(t: Any, x: Any) -> Any:
    return t.isclose(x, x), t.isclose(x, x, equal_nan=True), t.isinf(x), x == x


@case("erf tails", np.array([-30, -6, -1e-30, 0, 6, 30, np.inf, -np.inf, np.nan], np.float32))
def _erf_tails(t: Any, x: Any) -> Any:
    return (
        t.erf(x),
        t.erfc(x),
        t.tanh(x),
        t.sigmoid(x),
        t.exp(x),
        t.expm1(x),
        t.log1p(t.abs(x)),
        t.nn.functional.softplus(x),
        t.nn.functional.gelu(x * 0 + 1),
    )


@case("trig large", np.array([1e5, 1e10, -1e20, 3e38], np.float32))
def _trig_large(t: Any, x: Any) -> Any:
    return t.sin(x), t.cos(x), t.tan(x)


@case(
    "atan2 quadrants",
    np.array([0.0, -0.0, 1, -1, 0, -0.0], np.float32),
    np.array([-1.0, -1, 0, 0, 0.0, -0.0], np.float32),
)
def _atan2_quadrants(t: Any, x: Any, y: Any) -> Any:
    return t.atan2(x, y), t.hypot(x, y)


@case("lerp/addcmul ints", np.array([1, 2], np.int64))
def _lerp_addcmul_ints(t: Any, x: Any) -> Any:
    return t.addcmul(x, x, x), t.add(x, x, alpha=2), t.sub(x, x, alpha=3)


@case("std mean int axis neg", A(2, 3))
def _std_mean_int_axis_neg(t: Any, x: Any) -> Any:
    return x.std(-1), x.mean((0, 1)), x.sum(dim=-2, keepdim=True), x.amax((0, 1))


@case("meshgrid etc", A(3))
def _meshgrid_etc(t: Any, x: Any) -> Any:
    return t.meshgrid(x, x, indexing="ij")[0], t.outer(x, x), t.diag(x), t.diff(x), t.kron(x, x)


@case("masked_fill inf attn", R(2, 3, 3))
def _masked_fill_inf_attn(t: Any, x: Any) -> Any:
    m = t.tril(t.ones(3, 3)).bool()
    m[0] = False
    return t.nan_to_num(
        x.masked_fill(~m, float("-inf")).softmax(-1)
    ), t.nn.functional.scaled_dot_product_attention(
        x, x, x, attn_mask=m.logical_or(t.eye(3).bool())
    )


@case("sum of bool along", np.array([[True, False], [True, True]]))
def _sum_of_bool_along(t: Any, x: Any) -> Any:
    return (
        x.sum(0),
        x.prod(0),
        x.any(0),
        x.all(1),
        x.cumsum(0),
        x.int().max(0)[0],
        x.float().argmax(1),
    )


@case("one elem reductions", np.array([[5.0]], np.float32))
def _one_elem_reductions(t: Any, x: Any) -> Any:
    return x.std(correction=0), x.median(), x.min(), x.softmax(0), x.norm(), x.argmax()
