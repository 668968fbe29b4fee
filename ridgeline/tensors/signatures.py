"""The signatures of public functions: bodies over nodes, shown as functions over tensors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from ridgeline.functions.registry import Entry

_NAMES = {
    "Node": "Tensor",
    "Operand": "Tensor | complex",
    "Number": "complex",
    "Order": "float | str | None",
    "Dims \\| bool": "int | Sequence[int] | bool | None",
    "Dims": "int | Sequence[int] | None",
    "Sizes": "int | Sequence[int]",
    "Pooled": "tuple[Tensor, Tensor]",
    "None \\| None": "None",
}


class Annotation(str):
    """An annotation that is printed as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def annotation(text: Any) -> str:
    """A body's annotation as the user sees it."""
    if text is Parameter.empty:
        return "Any"
    shown = str(text)
    for name, meaning in _NAMES.items():
        shown = re.sub(rf"\b{name}\b", meaning, shown)
    return shown


def public_signature(entry: Entry) -> Signature:
    """What a public function takes and gives, in public types."""
    own = inspect.signature(entry.body)
    own_parameters = own.parameters.values()
    listed = [p.replace(annotation=Annotation(annotation(p.annotation))) for p in own_parameters]
    if entry.creation:
        named = Parameter.KEYWORD_ONLY
        listed += [
            Parameter("device", named, default=None, annotation=Annotation("Any")),
            Parameter("requires_grad", named, default=False, annotation=Annotation("bool")),
        ]
    return Signature(listed, return_annotation=Annotation(annotation(own.return_annotation)))


def method_signature(entry: Entry) -> Signature:
    """What the method takes that writes its result into the tensor."""
    own = public_signature(entry)
    first, *others = own.parameters.values()
    listed = [Parameter("self", first.kind), *others]
    return Signature(listed, return_annotation=Annotation("Tensor"))


class Face:
    """Between a public function and its body, where `inspect` follows `__wrapped__`.

    `signature()` stops here and finds the public types, made when they are asked for; who looks for
    the source gets to the body.
    """

    __slots__ = ("__wrapped__", "_entry", "_make")

    def __init__(self, entry: Entry, make: Callable[[Entry], Signature]) -> None:
        self.__wrapped__ = entry.body
        self._entry, self._make = entry, make

    @property
    def __signature__(self) -> Signature:
        return self._make(self._entry)
