"""One family of models: its names in `config.json`, its parts, and its tensors' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ridgeline.errors import InputFileError
from ridgeline.models.names import Table, moved
from ridgeline.models.parts import Parts
from ridgeline.models.settings import CheckedSettings, resolved

_ANNOTATIONS = {part.name: str(part.type) for part in fields(Parts)}

# What models of a skeleton give, by how the names of Hugging Face's classes end. The first is
# meant where a file names none.
FORMS: dict[str, dict[str, str]] = {
    "language": {
        "ForCausalLM": "words", "LMHeadModel": "words", "Model": "states",
        "TextModel": "states", "ForSequenceClassification": "classes",
        "ForTokenClassification": "token classes",
    },
    "encoder": {
        "Model": "states", "ForMaskedLM": "words", "ForSequenceClassification": "classes",
        "ForTokenClassification": "token classes", "ForQuestionAnswering": "spans",
        "ForPreTraining": "real or not",
    },
    "vision": {
        "ForImageClassification": "classes", "Model": "states", "VisionModel": "states",
        "ForImageClassificationWithTeacher": "taught classes",
        "VisionModelWithProjection": "projection",
    },
    "encoder-decoder": {
        "ForConditionalGeneration": "words", "MTModel": "words", "Model": "states",
        "EncoderModel": "encoder states",
    },
    "text tower": {"TextModel": "states", "TextModelWithProjection": "projection"},
    "convnext": {"ForImageClassification": "classes", "Model": "states"},
    "swin": {"ForImageClassification": "classes", "Model": "states"},
    "speech": {
        "ForCTC": "words", "Model": "states", "ForSequenceClassification": "classes",
    },
    "mamba": {"ForCausalLM": "words", "Model": "states"},
    "two towers": {"Model": "similarities"},
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A row of the tables.

    `parts` maps each part to a constant, a `Field` or a function of the settings; `fixed` has
    settings that change what is computed and have only some values here.
    """

    skeleton: str
    stem: str  # how the names of its classes begin
    parts: Mapping[str, Any]
    names: Table | Callable[[CheckedSettings], Table]
    heads: Table = field(default_factory=dict)  # names that have no prefix
    prefix: str = "model."
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    group: str = ""  # where in a file these settings may be inside others
    encoder: Mapping[str, Any] = field(default_factory=dict)  # what an encoder beside it differs in

    @property
    def forms(self) -> dict[str, str]:
        """The names of its classes, and what they give."""
        return {self.stem + end: form for end, form in FORMS[self.skeleton].items()}

    def form(self, settings: CheckedSettings) -> tuple[str, str]:
        """The class that a file names, and what it gives."""
        named = settings.get("architectures", "Sequence[str]", None) or [next(iter(self.forms))]
        if named[0] not in self.forms:
            raise InputFileError(
                f"{settings.where}: {named[0]:.60} is an unknown architecture",
                help=f"there are: {', '.join(self.forms)}",
            )
        return named[0], self.forms[named[0]]

    def described(self, settings: CheckedSettings, encoder: bool = False) -> Parts:
        """The parts of a model with these settings, or those of the encoder beside it."""
        inner = settings.values.get(self.group)
        settings = settings if inner is None else settings.group(self.group)
        for name, allowed in self.fixed.items():
            value = settings.values.get(name, allowed[0])
            if value not in allowed:
                raise settings.refused(name, value, allowed)
        table = {**self.parts, **(self.encoder if encoder else {})}
        try:
            return Parts(**{
                name: resolved(value, _ANNOTATIONS[name], settings) for name, value in table.items()
            })  # fmt: skip
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, InputFileError):
                raise
            message = f"{settings.where}: no model has these settings: {error!s:.100}"
            raise InputFileError(message) from error

    def table(self, settings: CheckedSettings, form: str) -> dict[str, Any]:
        """How files call the tensors of a form. Heads' names may be for one form: `classes/…`."""
        names = self.names(settings) if callable(self.names) else self.names
        own = {key.removeprefix(f"{form}/"): value for key, value in self.heads.items()}
        return {**moved(names, "" if form == "states" else self.prefix), **own}
