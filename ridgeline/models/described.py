"""Models that a table describes: what a `config.json` says, the parts that is, and its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ridgeline.models.families import FAMILIES
from ridgeline.models.families.family import Family
from ridgeline.models.names import FileForm, Table, stored
from ridgeline.models.parts import Parts
from ridgeline.models.pretrained import ANY, Pretrained
from ridgeline.models.settings import CheckedSettings


@dataclass(frozen=True)
class Description:
    """A model as its family's table describes it; of a file, it is the configuration as well."""

    model_type: ClassVar[str] = ANY

    settings: CheckedSettings
    family: Family
    architecture: str
    form: str  # what the model gives
    parts: Parts

    @staticmethod
    def read(values: Mapping[str, Any], where: str = "the settings") -> Description:
        """The model that settings describe, or an error that says what there is not."""
        settings = CheckedSettings(values, where)
        family = FAMILIES[settings.text("model_type", among=tuple(FAMILIES))]
        architecture, form = family.form(settings)
        return Description(settings, family, architecture, form, family.described(settings))

    def written(self) -> dict[str, Any]:
        """What `config.json` holds."""
        return {**self.settings.values, "architectures": [self.architecture]}

    @property
    def prefix(self) -> str:
        """Where the names of the tensors below the head begin."""
        return "" if self.form == "states" else self.family.prefix

    @property
    def depth(self) -> int:
        """How many layers there are, each with tensors of its own."""
        beside = self.family.described(self.settings, encoder=True) if self.family.encoder else None
        shared = self.parts.shared_layers
        return 1 if shared else self.parts.layers + (0 if beside is None else beside.layers)

    @property
    def labels(self) -> int:
        """How many classes a classifier tells apart."""
        names = self.settings.get("id2label", "dict[str, str]", None)
        return int(self.settings.count("num_labels", 2)) if names is None else len(names)

    @property
    def table(self) -> Table:
        """How files call the tensors."""
        return self.family.table(self.settings, self.form)


class DescribedModel(Pretrained):
    """A model built as the table of its family describes it."""

    config_type: ClassVar[Any] = Description
    ignored = (
        r"rotary_emb\.inv_freq$|\.attn(ention)?(\.attention)?\.(masked_)?bias$|position_ids$"
        r"|^lm_head\.weight$|^embed_out\.weight$"  # of a head that is tied
    )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        typed = not isinstance(config, Description)
        self.description = Description.read(config.written()) if typed else config
        self.parts, self.base = self.description.parts, self.description.family.prefix

    def stored(self) -> Iterator[FileForm]:
        parts = self.parts
        shapes = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        return stored(self.description.table, shapes, parts.shared_heads or parts.heads)
