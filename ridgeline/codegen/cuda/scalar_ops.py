"""Scalar operations as CUDA C++ expressions, in the table's meaning.

Narrow floats are computed in float32 and rounded after every operation. Elementary functions are
CUDA's own where they are within 2 ulp (all but `powf`, for which the expansion is used).
"""

from __future__ import annotations

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.cuda.types import (
    is_narrow_float,
    literal,
    loaded,
    memory_type,
    register_type,
    stored,
    unsigned_type,
)
from ridgeline.dtypes import DType
from ridgeline.loops import ir

_INFIX = {"add": "+", "sub": "-", "mul": "*"}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_SINGLE = {
    "floor": "floorf", "ceil": "ceilf", "round": "rintf", "trunc": "truncf", "sqrt": "sqrtf",
    "exp": "expf", "expm1": "expm1f", "log": "logf", "log1p": "log1pf", "sin": "rl_sin",
    "cos": "rl_cos", "tanh": "tanhf", "erf": "erff", "abs": "fabsf", "libm_sin": "rl_sin",
    "libm_cos": "rl_cos", "libm_pow": "powf", "fma": "fmaf", "max": "rl_max", "min": "rl_min",
    "sign": "rl_sign", "mod": "rl_float_mod", "floordiv": "rl_float_floordiv",
    "reciprocal": "__frcp_rn", "div": "__fdiv_rn",
}  # fmt: skip
_DOUBLE = {
    "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "sqrt": "sqrt",
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tanh": "tanh", "erf": "erf", "abs": "fabs", "libm_sin": "sin", "libm_cos": "cos",
    "libm_pow": "pow", "pow": "pow", "fma": "fma", "max": "rl_max", "min": "rl_min",
    "sign": "rl_sign", "mod": "rl_float_mod", "floordiv": "rl_float_floordiv",
    "reciprocal": "__drcp_rn", "div": "__ddiv_rn", "inverse_power": "rl_inverse_power",
}  # fmt: skip
_NEAR = {"exp": "rl_exp_near", "tanh": "rl_tanh_near"}  # enough for results of 16 bits
# of values that a type holds, these give no others
_EXACT = ("max", "min", "abs", "sign", "floor", "ceil", "round", "trunc")
_INTEGER = {"floordiv": "rl_int_floordiv", "mod": "rl_int_mod", "shl": "rl_shl", "shr": "rl_shr"}


def rounded(value: str, dtype: DType) -> str:
    """A float32 value at the precision of a narrow type."""
    return f"rl_round_{dtype.name}({value})" if is_narrow_float(dtype) else value


def scalar(name: str, dtype: DType, operand: DType, args: list[str], near: bool = False) -> str:
    """One operation; `operand` is the type of its (last) operand.

    `near` says that what is computed from it is rounded to 16 bits or fewer in the end.
    """
    if name == "select":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if name == "after":
        return args[0]
    if name == "cast":
        return convert(args[0], operand, dtype)
    if name == "bitcast":
        return _bitcast(args[0], operand, dtype)
    if name in _COMPARE:
        return f"({args[0]} {_COMPARE[name]} {args[1]})"
    if name in _BITWISE:
        return f"({register_type(dtype)})({args[0]} {_BITWISE[name]} {args[1]})"
    if name == "not":
        return f"(!{args[0]})" if dtype is dtypes.bool_ else f"({register_type(dtype)})(~{args[0]})"
    if operand.kind == "float":
        return _float(name, dtype, operand, args, near or is_narrow_float(operand))
    return _integer(name, dtype, args)


def _float(name: str, dtype: DType, operand: DType, args: list[str], near: bool) -> str:
    if name == "isnan":
        return f"({args[0]} != {args[0]})"
    if name == "neg":
        return f"(-{args[0]})"
    if name in _INFIX:
        return rounded(f"({args[0]} {_INFIX[name]} {args[1]})", dtype)
    table = _DOUBLE if operand is dtypes.float64 else {**_SINGLE, **_NEAR} if near else _SINGLE
    value = f"{table[name]}({', '.join(args)})"
    return value if name in _EXACT else rounded(value, dtype)


def _integer(name: str, dtype: DType, args: list[str]) -> str:
    kind = register_type(dtype)
    if name in _INFIX:
        wrap = unsigned_type(dtype)
        return f"({kind})(({wrap}){args[0]} {_INFIX[name]} ({wrap}){args[1]})"
    if name == "neg":
        return f"({kind})(0 - ({unsigned_type(dtype)}){args[0]})"
    if name == "max":
        return f"({args[0]} > {args[1]} ? {args[0]} : {args[1]})"
    if name == "min":
        return f"({args[0]} < {args[1]} ? {args[0]} : {args[1]})"
    if name == "abs":
        if dtype.kind == "uint":
            return args[0]
        return f"({args[0]} < 0 ? {_integer('neg', dtype, args)} : {args[0]})"
    if name == "sign":
        return f"rl_sign<{kind}>({args[0]})"
    if name == "mulhi":
        return f"__umulhi({args[0]}, {args[1]})"
    if name == "philox":
        return f"rl_philox({', '.join(args)})"
    return f"{_INTEGER[name]}<{kind}>({', '.join(args)})"


def _bitcast(value: str, source: DType, target: DType) -> str:
    if source is target or source.kind == target.kind == "int":
        return value
    pairs = {
        ("float32", "int32"): "__float_as_int", ("int32", "float32"): "__int_as_float",
        ("float32", "uint32"): "__float_as_uint", ("uint32", "float32"): "__uint_as_float",
        ("float64", "int64"): "__double_as_longlong", ("int64", "float64"): "__longlong_as_double",
    }  # fmt: skip
    if (source.name, target.name) in pairs:
        return f"{pairs[source.name, target.name]}({value})"
    if (source.name, target.name) == ("float64", "uint64"):
        return f"({register_type(target)})__double_as_longlong({value})"
    if (source.name, target.name) == ("uint64", "float64"):
        return f"__longlong_as_double((long long)({value}))"
    if source.kind != "float" and target.kind != "float":
        return f"({register_type(target)})({value})"
    if is_narrow_float(source):
        return f"({register_type(target)})({stored(source, value)})"
    if is_narrow_float(target):
        return loaded(target, f"({memory_type(target)})({value})")
    raise AssertionError(f"no bitcast from {source.name} to {target.name}")


def convert(value: str, source: DType, target: DType) -> str:
    """A cast between element types, as `scalars.cast` defines it."""
    if target is dtypes.bool_:
        return value if source is dtypes.bool_ else f"({value} != 0)"
    kind = register_type(target)
    if target.kind == "float":
        wide = value if register_type(source) == kind else f"({kind})({value})"
        exact = source is dtypes.bool_ or (is_narrow_float(source) and source is target)
        return wide if exact else rounded(wide, target)
    if source.kind != "float":
        return f"({kind})({value})"
    if target.bits < 32:
        room = dtypes.int64 if source is dtypes.float64 else dtypes.int32
        return f"({kind})({_saturated(value, room)})"
    inside = _saturated(value, target)
    if target.kind == "int":
        return inside
    signed = _saturated(value, dtypes.int32 if target.bits == 32 else dtypes.int64)
    return f"({value} < 0 ? ({kind})({signed}) : {inside})"


def _saturated(value: str, target: DType) -> str:
    kind, limits = register_type(target), np.iinfo(target.numpy)
    least, most = (literal(ir.const(int(n), target)) for n in (limits.min, limits.max))
    return f"rl_saturate<{kind}>((double)({value}), ({kind})({least}), ({kind})({most}))"
