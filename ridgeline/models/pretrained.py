"""Models in Hugging Face's form on disk: `config.json` and weights in safetensors files.

Models of a class of their own have typed settings here, a `ModelConfig`; the families that are
tables are in `described.py`. `weights.py` reads and writes the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ridgeline import nn
from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError, RidgelineError, path_of
from ridgeline.files import write_atomic
from ridgeline.interop.model_folders import folder_of
from ridgeline.interop.safetensors import Arrays
from ridgeline.models.names import FileForm, without
from ridgeline.models.settings import check_kind
from ridgeline.models.weights import SHARD_BYTES, read_json, read_weights, write_weights
from ridgeline.nn.describe import count_parameters
from ridgeline.nn.state import fault
from ridgeline.tensors.tensor import tensor

CONFIG = "config.json"
ANY = ""  # the model type of classes that read many
_OLD_ENDINGS = {
    ".gamma": ".weight", ".beta": ".bias",  # of norms, in files from TensorFlow
    ".conv.weight_g": ".conv.parametrizations.weight.original0",
    ".conv.weight_v": ".conv.parametrizations.weight.original1",
}  # fmt: skip
M = TypeVar("M", bound="Pretrained")


def same(
    pairs: Mapping[str, str], endings: Sequence[str] = ("weight", "bias")
) -> Iterator[FileForm]:
    """Layers that the files hold as they are, under other names: theirs to ours."""
    for theirs, ours in pairs.items():
        for ending in endings:
            yield FileForm((f"{theirs}.{ending}",), (f"{ours}.{ending}",))


def numbered(count: int) -> dict[str, str]:
    """Names of classes that have only numbers."""
    return {str(number): f"LABEL_{number}" for number in range(count)}


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a model, with the names and defaults of Hugging Face's `config.json`."""

    model_type: ClassVar[str]
    # Forms of the model by Hugging Face's class names, and where their tensors' names begin.
    prefixes: ClassVar[Mapping[str, str]]
    # Settings that change what the model computes and that only have one value here.
    fixed: ClassVar[Mapping[str, Any]] = {}
    layers: ClassVar[str] = "num_hidden_layers"  # the setting that counts them

    architecture: str = ""

    def __post_init__(self) -> None:
        if not self.architecture:
            object.__setattr__(self, "architecture", next(iter(self.prefixes)))

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str) -> Self:
        """The settings in a `config.json`, or an error that says what this model cannot do."""
        named = values.get("architectures") or [next(iter(cls.prefixes))]
        if not isinstance(named, list) or not isinstance(named[0], str):
            raise InputFileError(
                f"{where}: architectures is {named!r:.60}, expected a list of names"
            )
        if named[0] not in cls.prefixes:
            raise InputFileError(
                f"{where}: {named[0]} is an unknown architecture",
                help=f"of {cls.model_type} there are: {', '.join(cls.prefixes)}",
            )
        for name, value in cls.fixed.items():
            if values.get(name, value) != value:
                raise InputFileError(f"{where}: {name} can only be {value!r}, not {values[name]!r}")
        chosen = {}
        for setting in fields(cls):
            if setting.name in values and setting.name != "architecture":
                chosen[setting.name] = values[setting.name]
                check_kind(setting.name, str(setting.type), values[setting.name], where)
        return cls(architecture=named[0], **chosen)

    def written(self) -> dict[str, Any]:
        """What `config.json` holds."""
        settings = asdict(self)
        architectures = [settings.pop("architecture")]
        return {"architectures": architectures, "model_type": self.model_type, **settings}

    @property
    def prefix(self) -> str:
        """Where the names of the tensors below the head begin."""
        return self.prefixes[self.architecture]

    @property
    def depth(self) -> int:
        """How many layers there are, each with tensors of its own."""
        count = getattr(self, self.layers)
        return count if isinstance(count, int) else sum(count)

    @property
    def labels(self) -> int:
        """How many classes a classifier tells apart."""
        return len(getattr(self, "id2label", ()))


class Pretrained(nn.Module):
    """A model that can be read from and written to a folder in Hugging Face's form."""

    config_type: ClassVar[Any]
    ignored: ClassVar[str] = r"(?!)"  # tensors in files that are not weights of this model
    base: str = ""  # where the names of a larger model's tensors begin
    config: Any

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def stored(self) -> Iterator[FileForm]:
        """How files hold the parameters and buffers."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls: type[M], folder: str | Path, dtype: DType | None = None) -> M:
        """The model in a folder, in evaluation mode; in the files' element type or `dtype`."""
        path = folder_of(folder, "from_pretrained")
        where = str(path / CONFIG)
        config = cls.config_type.read(read_config(path, cls), where)
        found = read_weights(path)
        if config.depth > len(found):  # before so many layers are made
            raise InputFileError(
                f"{where}: {config.depth} layers, but the files hold {len(found)} tensors"
            )
        with nn.deferred():
            model = _made(cls, config, where)
        model.load_state_dict(_translated(model, found), assign=True)
        if dtype is not None:
            model.to(dtype)
        return model.eval()

    def save_pretrained(self, folder: str | Path, shard_bytes: int = SHARD_BYTES) -> None:
        """Write `config.json` and the weights, in several files where they are large."""
        path = path_of(folder, "save_pretrained")
        own = self.state_dict()
        arrays = (
            made
            for entry in self.stored()
            for made in entry.written([own[name].cpu().numpy() for name in entry.ours])
        )
        write_weights(path, arrays, shard_bytes)
        text = json.dumps(self.config.written(), indent=2, sort_keys=True) + "\n"
        write_atomic(path / CONFIG, text.encode())

    def parameter_count(self) -> int:
        """The number of elements of all parameters."""
        return count_parameters(self)


def read_config(folder: Path, wanted: type[Pretrained] | None = None) -> dict[str, Any]:
    """The settings in a folder, which must be for the wanted kind of model."""
    path = folder / CONFIG
    values = read_json(path)
    kind = values.get("model_type")
    if wanted is not None and wanted.config_type.model_type not in (kind, ANY):
        raise InputFileError(
            f"{path} describes a model of type {kind!r}, not {wanted.config_type.model_type!r}",
            help="ridgeline.models.from_pretrained() chooses the class by the type",
        )
    return values


def _made(kind: type[M], config: ModelConfig, where: str) -> M:
    """The model for settings, which each are possible but may not fit together."""
    try:
        return kind(config)
    except (ArithmeticError, LookupError, TypeError, ValueError, RidgelineError) as error:
        said = error.message if isinstance(error, RidgelineError) else str(error)
        raise InputFileError(f"{where}: no model has these settings: {said}") from error


def _translated(model: Pretrained, found: Arrays) -> dict[str, Any]:
    """The files' tensors as entries of our state_dict, every one in its place and shape."""
    named = {_modern(name): array for name, array in found.items()}
    wanted, prefix = list(model.stored()), model.config.prefix
    if prefix and not any(name.startswith(prefix) for name in named):  # saved without a head
        wanted = without(prefix, wanted)
    base = "" if prefix else model.base
    if base and any(name.startswith(base) for name in named):  # saved with a head, not wanted here
        named = {n.removeprefix(base): array for n, array in named.items() if n.startswith(base)}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    values: dict[str, Any] = {}
    missing, misshapen = [], []
    for entry in wanted:
        arrays = [named.pop(name, None) for name in entry.names]
        expected = entry.expected(shapes)
        absent = [name for name, array in zip(entry.names, arrays) if array is None]
        present = [array for array in arrays if array is not None]
        wrong = [
            f"{name}: the model has {list(expected)}, the file {list(array.shape)}"
            for name, array in zip(entry.names, present)
            if not absent and array.shape != expected
        ]
        missing += absent
        misshapen += wrong
        if not absent and not wrong:
            values.update((name, tensor(made)) for name, made in entry.read(present, shapes))
    unexpected = [name for name in named if not re.search(model.ignored, name)]
    if missing or unexpected or misshapen:
        raise fault(model, missing, unexpected, misshapen)
    return values


def _modern(name: str) -> str:
    """A tensor's name with today's ending."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
