"""Layers without parameters that apply one function with fixed settings."""

from __future__ import annotations

from typing import Any

from ridgeline.nn import functional
from ridgeline.nn.module import Module


class Applied(Module):
    """A function of `nn.functional` and the settings it is called with."""

    function: str

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        apply = getattr(functional, self.function)
        return apply(*inputs, **{name: getattr(self, name) for name in self.settings}, **more)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.settings)
