"""Models by name, as torchvision has them; weights come from files, and are never fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.errors import BadValueError, RidgelineError
from ridgeline.nn.module import Module

BUILDERS: dict[str, Callable[..., Module]] = {}


class Weights:
    """A name of torchvision's for a file of weights, such as `ResNet50_Weights.DEFAULT`."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{self._model}.{name}"


def named(name: str, build: Callable[..., Module], doc: str) -> Callable[..., Module]:
    """A public function that builds a model, with torchvision's arguments about weights."""

    def make(*, weights: Any = None, progress: bool = True, pretrained: bool = False,
             **options: Any) -> Module:  # fmt: skip
        if weights or pretrained:
            raise RidgelineError(
                f"{name}: weights are not fetched",
                help="make the model without, and model.load_state_dict(ridgeline.load(file)): "
                "the names are torchvision's",
            )
        options.pop("weights_backbone", None)
        return build(**options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    make.__module__ = "ridgeline.vision.models"
    BUILDERS[name] = make
    return make


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    """The names of all models."""
    return sorted(BUILDERS)


def get_model_builder(name: str) -> Callable[..., Module]:
    """The function that builds a model, by its name."""
    if name.lower() not in BUILDERS:
        raise BadValueError(f"there is no model {name!r}", help=f"known: {', '.join(BUILDERS)}")
    return BUILDERS[name.lower()]


def get_model(name: str, **config: Any) -> Module:
    """A model by its name."""
    return get_model_builder(name)(**config)


def divisible(value: float, divisor: int = 8, least: int | None = None) -> int:
    """A number of channels as a multiple of eight, at most a tenth below what was asked for."""
    made = max(least or divisor, int(value + divisor / 2) // divisor * divisor)
    return made + divisor if made < 0.9 * value else made
