"""A row of the table of operators: a name, the versions it holds for, and a function.

The function says by its annotations what it wants of each input: a `Tensor`; an `Array`, `Ints`,
`int`, `Floats`, `float` or `bool` on the host; or any `Value`. Attributes of a node are named
arguments of it, so what older versions have as an attribute and newer ones as an input is one
parameter. `outputs` (how many are asked for) and `opset` are passed to functions that name them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ridgeline.onnx import values
from ridgeline.onnx.values import OnnxError, Value

NEWEST = 1 << 30
# said by exporters of old versions, and without meaning
_IGNORED = {"consumed_inputs", "spatial", "is_test", "broadcast"}
_CONVERSIONS: dict[str, Callable[[Value], Any]] = {
    "Tensor": values.as_tensor,
    "Array": values.as_host,
    "Ints": values.as_sizes,
    "Floats": values.as_floats,
    "int": values.as_int,
    "float": values.as_float,
    "bool": values.as_bool,
}
_HOST = {"Array", "Ints", "Floats", "int", "float", "bool"}


def _kind(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation).removesuffix(" | None")


@dataclass(frozen=True)
class OperatorRow:
    """An operator from one version on, up to another; `domain` is that of the operator."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    since: int = 1
    until: int = NEWEST
    domain: str = ""

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """What the function takes."""
        return tuple(inspect.signature(self.function).parameters.values())

    @cached_property
    def _places(self) -> tuple[inspect.Parameter, ...]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
        return tuple(p for p in self.parameters if p.kind in kinds)

    @cached_property
    def _rest(self) -> inspect.Parameter | None:
        return next((p for p in self.parameters if p.kind is p.VAR_POSITIONAL), None)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters)

    def wants_host(self, place: int) -> bool:
        """True if the input at a place has to be known on the host."""
        return place < len(self._places) and _kind(self._places[place]) in _HOST

    def call(
        self, inputs: Sequence[Value], attributes: Mapping[str, Any], outputs: int, opset: int
    ) -> Any:
        """The function on the inputs and attributes of a node."""
        named: dict[str, Any] = {}
        rest: list[Any] = []
        for place, value in enumerate(inputs):
            if place < len(self._places):
                parameter = self._places[place]
                if value is not None:
                    named[parameter.name] = _converted(value, _kind(parameter))
            elif self._rest is None:
                if value is not None:
                    raise OnnxError(f"{self.name} takes {len(self._places)} inputs at most")
            else:
                rest.append(_converted(value, _kind(self._rest)))
        for name, value in attributes.items():
            if name in self._names:
                named[name] = value
            elif name not in _IGNORED:
                raise OnnxError(f"{self.name} has no attribute {name!r} here")
        if "outputs" in self._names:
            named["outputs"] = outputs
        if "opset" in self._names:
            named["opset"] = opset
        missing = [p.name for p in self._places if p.name not in named and p.default is p.empty]
        if missing:
            raise OnnxError(f"{self.name} is given no {missing[0]!r}")
        if rest:
            first = [named.pop(p.name, p.default) for p in self._places]
            return self.function(*first, *rest, **named)
        return self.function(**named)


def _converted(value: Value, kind: str) -> Any:
    conversion = _CONVERSIONS.get(kind)
    return value if conversion is None or value is None else conversion(value)
