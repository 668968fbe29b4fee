"""The table of public functions: one definition gives the function, the method and operators.

A body is written over graph nodes (`def softmax(input: Node, dim: int) -> Node`) and registered
with `@public`. `tensors/dispatch.py` wraps it for tensors; bodies call one another as plain
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, Literal, TypeVar

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.functions.operands import result_type
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast

Body = TypeVar("Body", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One public function: its names, its body, and which faces it has."""

    name: str
    body: Callable[..., Any]
    function: bool  # a function of the namespace
    method: bool  # a method of Tensor
    view: bool  # the result shares memory with the first argument
    inplace: bool  # there is also a method with a trailing underscore
    creation: bool  # it makes a new tensor, and takes device= and requires_grad=
    aliases: tuple[str, ...]
    namespace: str = ""  # the module that holds the function: "linalg", "fft", …; "" is the top
    steps: Callable[..., Any] | None = None  # the steps of a view that its nodes do not tell
    shares: bool = False  # results that are arguments, or show parts of them, share their memory

    @property
    def key(self) -> str:
        """The name under which the table and the reference know it.

        A method may differ from the function of its name, as torch's where() and unfold() do.
        """
        if self.namespace:
            return f"{self.namespace}.{self.name}"
        return self.name if self.function else f"Tensor.{self.name}"


TABLE: dict[str, Entry] = {}
_AXES = {1: "one axis", 2: "two axes", 3: "three axes"}


def public(
    *aliases: str,
    name: str = "",
    function: bool = True,
    method: bool = True,
    view: bool = False,
    inplace: bool = False,
    creation: bool = False,
    namespace: str = "",
    wide: bool | Literal["input"] = False,
    steps: Callable[..., Any] | None = None,
    like: Callable[..., Any] | None = None,
    shares: bool = False,
) -> Callable[[Body], Body]:
    """Register a body under its own name (or `name`) and under `aliases`.

    A `wide` one computes in float32 where its operands are narrower, and rounds once at the end:
    to the type that they promote to, or with `wide="input"` to that of the first, whose result is
    scaled by the others. A body of `*args` and `**kwargs` takes what another one does that it is
    `like`. Where one that `shares` has nothing to do, its argument itself is the result, and what
    only shows an argument otherwise is a view of it.
    """

    def register(body: Body) -> Body:
        if like is not None:
            returns = body.__annotations__["return"]
            body.__wrapped__ = like  # type: ignore[attr-defined]  # its annotations are checked
            shown = signature(like).replace(return_annotation=returns)
            body.__signature__ = shown  # type: ignore[attr-defined]
        if wide:
            body = widened(body, by_first=wide == "input")
        own = name or body.__name__.rstrip("_")
        entry = Entry(
            own, body, function, method and not namespace, view, inplace, creation, aliases,
            namespace, steps, shares,
        )  # fmt: skip
        TABLE[entry.key] = entry
        return body

    return register


def functional(
    wide: bool | Literal["input"] = False, shares: bool = False
) -> Callable[[Body], Body]:
    """Register a body that `nn.functional` alone has."""
    return public(method=False, namespace="nn.functional", wide=wide, shares=shares)


def along_axes(
    name: str, body: Callable[..., Any], *, axes: Sequence[int] = (1, 2, 3), **faces: Any
) -> Sequence[Callable[..., Any]]:
    """Register a body once for each number of axes that its keyword `spatial` may be.

    `name` is such as "conv{}d"; the body's first line speaks of "{axes}".
    """
    shown = signature(body)
    listed = [p for p in shown.parameters.values() if p.name != "spatial"]
    made = []
    for spatial in axes:
        own = FunctionType(body.__code__, body.__globals__, name.format(spatial), body.__defaults__)
        own.__qualname__, own.__kwdefaults__ = own.__name__, {"spatial": spatial}
        own.__annotations__ = {k: v for k, v in body.__annotations__.items() if k != "spatial"}
        own.__doc__ = (body.__doc__ or "").format(axes=_AXES[spatial])
        own.__signature__ = shown.replace(parameters=listed)  # type: ignore[attr-defined]
        made.append(public(method=False, **faces)(own))
    return made


def is_narrow(dtype: DType) -> bool:
    """Whether floats are narrower than float32."""
    return dtype.kind == "float" and dtype.itemsize < 4


def widened(body: Body, by_first: bool = False) -> Body:
    """The body, computing in float32 where operands are float16 or bfloat16."""

    @wraps(body)
    def wide(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        floats = [v for v in given if isinstance(v, Node) and v.dtype.kind == "float"]
        if not any(is_narrow(v.dtype) for v in floats) or any(isinstance(v, DType) for v in given):
            return body(*args, **kwargs)  # a type asked for is kept
        values = [grown(v) if isinstance(v, Node) else v for v in args]
        named = {key: grown(v) if isinstance(v, Node) else v for key, v in kwargs.items()}
        rounded = floats[0].dtype if by_first else result_type(*floats)
        return _rounded(body(*values, **named), rounded)

    return wide  # type: ignore[return-value]


def grown(value: Node) -> Node:
    """Narrow floats as float32, other values as they are."""
    return cast(value, dtypes.float32) if is_narrow(value.dtype) else value


def _rounded(result: Any, dtype: DType) -> Any:
    if isinstance(result, Node):
        return cast(result, dtype) if result.dtype.kind == "float" else result
    if isinstance(result, tuple):
        parts = [_rounded(part, dtype) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


# functions of the top namespace that also stand in another, under the same name
SHARED: dict[str, tuple[str, ...]] = {
    "linalg": ("matmul", "diagonal"),
    "special": (
        "erf", "exp2", "expm1", "log1p", "log_softmax", "logit", "logsumexp", "round", "softmax",
        "erfc", "erfinv", "i0", "polygamma", "sinc", "xlogy",
    ),
}  # fmt: skip

# symbol of an operator: the function; each has a method, one for swapped operands, one in place
_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_SWAPPED = _ARITHMETIC | {"matmul": "matmul"}  # `@=` is Python's own
_OF_ONE = {"pos": "positive", "neg": "neg", "abs": "abs", "invert": "bitwise_not"}

# operator method: (function, are the operands swapped)
OPERATORS: dict[str, tuple[str, bool]] = {
    f"__{side}{symbol}__": (name, side == "r")
    for symbol, name in _SWAPPED.items()
    for side in ("", "r")
}
OPERATORS |= {f"__{name}__": (name, False) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
OPERATORS |= {f"__{symbol}__": (name, False) for symbol, name in _OF_ONE.items()}
UNARY_OPERATORS = frozenset(f"__{symbol}__" for symbol in _OF_ONE)
# augmented assignment: the function whose result is written through
AUGMENTED = {f"__i{symbol}__": name for symbol, name in _ARITHMETIC.items()}
