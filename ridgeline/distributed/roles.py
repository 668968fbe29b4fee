"""What the layers of a model are to tensor parallelism: columns and rows of pairs, vocabularies.

A column layer has some of the features of its result on each rank; the row layer behind it takes
them as they are and gives sums, which ranks add up. Layers of our transformers are known by what
they are in them; others are named in a plan, by a pattern of their paths.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ridgeline import nn
from ridgeline.distributed.plan import Plan
from ridgeline.errors import BadValueError
from ridgeline.models.feed_forward import FeedForward
from ridgeline.models.language import LanguageModel
from ridgeline.models.transformer import Attention

_PAIRS: tuple[tuple[type[nn.Module], dict[str, str]], ...] = (
    (Attention, {"query": "column", "key": "column", "value": "column", "output": "row"}),
    (FeedForward, {"gate": "column", "up": "column", "down": "row"}),
    (LanguageModel, {"tokens": "vocabulary", "head": "column"}),
)


def roles_of(model: nn.Module, plan: Plan) -> dict[str, str]:
    """The roles of layers by their paths; those of the plan count before others."""
    found: dict[str, str] = {}
    layers = dict(model.named_modules())
    for path, module in layers.items():
        for kind, parts in _PAIRS:
            if isinstance(module, kind):
                for name, role in parts.items():
                    if isinstance(getattr(module, name, None), nn.Linear | nn.Embedding):
                        found[f"{path}.{name}" if path else name] = role
    for pattern, role in plan.roles.items():
        named = [path for path in layers if path and fnmatchcase(path, pattern)]
        if not named:
            raise BadValueError(
                f"the plan has a role for {pattern!r}, and no layer has that path",
                help=f"the model's layers are {', '.join([p for p in layers if p][:8])} …",
            )
        for path in named:
            _check_role(path, layers[path], role)
            found[path] = role
    return {path: role for path, role in found.items() if role != "replicate"}


def _check_role(path: str, layer: nn.Module, role: str) -> None:
    kinds = nn.Embedding if role == "vocabulary" else nn.Linear
    if role != "replicate" and not isinstance(layer, kinds):
        raise BadValueError(
            f"{path} is a {type(layer).__name__}, which cannot be a {role} layer",
            help="column and row layers are nn.Linear, vocabularies nn.Embedding",
        )
