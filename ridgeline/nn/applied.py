"""Layers without parameters that apply one function with fixed settings."""

from __future__ import annotations

from inspect import Parameter, Signature, get_annotations
from typing import Any, ClassVar, dataclass_transform

from ridgeline.nn import functional
from ridgeline.nn.module import Module
from ridgeline.tensors.old_forms import with_reduction
from ridgeline.tensors.tensor import Tensor

_SELF = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)


@dataclass_transform()
class Applied(Module):
    """A function of `nn.functional` and the settings it is called with.

    A layer lists its settings as a dataclass does, `alpha: float = 1.0`: its constructor takes
    them, holds tensors among them as buffers, and `forward` passes them on.
    """

    function: ClassVar[str]
    inputs: ClassVar[str] = "input"  # the names of what it is called with
    _settings: ClassVar[dict[str, Parameter]] = {}
    _shown: ClassVar[tuple[str, ...]] = ()  # the settings that are printed, if not all

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        super().__init_subclass__()
        if not cls.__module__.startswith("ridgeline."):  # users may annotate what they like
            return
        if "inputs" in cls.__dict__:
            cls.forward = _forward(cls.inputs)  # type: ignore[method-assign]
        kind = Parameter.KEYWORD_ONLY if kw_only else Parameter.POSITIONAL_OR_KEYWORD
        own = {}
        for name, annotation in get_annotations(cls).items():
            if annotation.startswith("ClassVar"):
                continue
            default = cls.__dict__.get(name, Parameter.empty)
            if default is not Parameter.empty:
                delattr(cls, name)  # it would hide a buffer of that name
            own[name] = Parameter(name, kind, default=default, annotation=annotation)
        if own:
            cls._settings = cls._settings | own
            cls.__init__ = _constructor(cls, cls._settings)  # type: ignore[method-assign]

    def _settle(self) -> None:
        """What is left to do when all settings are there."""

    def extra_repr(self) -> str:
        return ", ".join(f"{n}={getattr(self, n)}" for n in self._shown or self._settings)


def _forward(names: str) -> Any:
    """`forward` of layers that are called with so many tensors, of these names."""

    def forward(self: Applied, *inputs: Any, **more: Any) -> Any:
        apply = getattr(functional, self.function)
        return apply(*inputs, **{name: getattr(self, name) for name in self._settings}, **more)

    taken = [Parameter(n, _SELF.kind, annotation="Tensor") for n in names.split()]
    forward.__signature__ = Signature([_SELF, *taken])  # type: ignore[attr-defined]
    return forward


Applied.forward = _forward(Applied.inputs)  # type: ignore[method-assign]


def _constructor(cls: type[Applied], settings: dict[str, Parameter]) -> Any:
    signature = Signature([*settings.values()])

    def __init__(self: Applied, *args: Any, **kwargs: Any) -> None:
        Module.__init__(self)
        if "reduction" in settings:
            kwargs = with_reduction(kwargs)
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        given.apply_defaults()
        for name, value in given.arguments.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self._settle()

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [_SELF, *settings.values()], return_annotation=None
    )
    return __init__
