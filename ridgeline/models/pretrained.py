"""Models in Hugging Face's form on disk: `config.json` and weights in safetensors files.

A model's parameters have names of their own here; `Stored` says under which name, and in which
form, the files hold them. Reading and writing follow the same list.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeline import nn
from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError, MissingFileError, RidgelineError, unreadable
from ridgeline.interop.safetensors import Arrays, map_tensors, write_atomic, write_tensors
from ridgeline.nn.describe import count_parameters
from ridgeline.nn.state import fault
from ridgeline.tensors.tensor import tensor

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}  # of norms, in files from TensorFlow
M = TypeVar("M", bound="Pretrained")


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of the files, and the entries of our state_dict that it holds as its rows."""

    name: str
    ours: tuple[str, ...]
    transposed: bool = False


def same(pairs: Mapping[str, str], endings: Sequence[str] = ("weight", "bias")) -> Iterator[Stored]:
    """Layers that the files hold as they are, under other names: theirs to ours."""
    for theirs, ours in pairs.items():
        for ending in endings:
            yield Stored(f"{theirs}.{ending}", (f"{ours}.{ending}",))


def numbered(count: int) -> dict[str, str]:
    """Names of classes that have only numbers."""
    return {str(number): f"LABEL_{number}" for number in range(count)}


@dataclass(frozen=True)
class Config:
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
                _check_kind(setting.name, str(setting.type), values[setting.name], where)
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


def _is_count(value: Any) -> bool:
    """True for a number of things that a model can have: heads, layers, places."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# what an annotation of a setting asks of its value, and in words
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "int": (_is_count, "a whole number above 0"),
    "int | None": (lambda v: v is None or _is_count(v), "a whole number above 0, or nothing"),
    "float": (_is_real, "a finite number"),
    "str": (lambda v: isinstance(v, str), "a text"),
    "Sequence[int]": (lambda v: isinstance(v, list) and all(map(_is_count, v)), "numbers above 0"),
    "dict[str, str]": (lambda v: isinstance(v, dict), "names"),
    "Mapping[str, Any] | None": (lambda v: isinstance(v, dict | None), "settings, or nothing"),
}


def _check_kind(name: str, declared: str, value: Any, where: str) -> None:
    """Raise where a setting is not what its annotation says."""
    fits, wanted = _KINDS[declared]
    if not fits(value):
        raise InputFileError(f"{where}: {name} is {value!r:.60}, expected {wanted}")


class Pretrained(nn.Module):
    """A model that can be read from and written to a folder in Hugging Face's form."""

    config_type: ClassVar[type[Config]]
    ignored: ClassVar[str] = r"(?!)"  # tensors in files that are not weights of this model
    config: Any

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def stored(self) -> Iterator[Stored]:
        """How files hold the parameters and buffers."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls: type[M], folder: str | Path, dtype: DType | None = None) -> M:
        """The model in a folder, in evaluation mode; in the files' element type or `dtype`."""
        where = str(Path(folder) / CONFIG)
        config = cls.config_type.read(read_config(Path(folder), cls), where)
        found = _read(Path(folder))
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
        path = Path(folder)
        own = self.state_dict()
        shards: list[Arrays] = [{}]
        room = shard_bytes
        for entry in self.stored():
            array = _joined([own[name].cpu().numpy() for name in entry.ours])
            if shards[-1] and array.nbytes > room:
                shards.append({})
                room = shard_bytes
            room -= array.nbytes
            shards[-1][entry.name] = array.T if entry.transposed else array
        _write(path, shards)
        text = json.dumps(self.config.written(), indent=2, sort_keys=True) + "\n"
        write_atomic(path / CONFIG, text.encode())

    def parameter_count(self) -> int:
        """The number of elements of all parameters."""
        return count_parameters(self)


def read_config(folder: Path, wanted: type[Pretrained] | None = None) -> dict[str, Any]:
    """The settings in a folder, which must be for the wanted kind of model."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise MissingFileError(f"there is no folder {folder}")
    values = _read_json(path)
    kind = values.get("model_type")
    if wanted is not None and kind != wanted.config_type.model_type:
        raise InputFileError(
            f"{path} describes a model of type {kind!r}, not {wanted.config_type.model_type!r}",
            help="ridgeline.models.from_pretrained() chooses the class by the type",
        )
    return values


def _made(kind: type[M], config: Config, where: str) -> M:
    """The model for settings, which each are possible but may not fit together."""
    try:
        return kind(config)
    except (ArithmeticError, LookupError, TypeError, ValueError, RidgelineError) as error:
        said = error.message if isinstance(error, RidgelineError) else str(error)
        raise InputFileError(f"{where}: no model has these settings: {said}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputFileError(f"{path} holds no settings: it is a {type(values).__name__}")
    return values


def _read(folder: Path) -> Arrays:
    """All tensors in a folder's safetensors files, as views of the files."""
    if (folder / WEIGHTS).exists() or not (folder / INDEX).exists():
        return map_tensors(folder / WEIGHTS)[0]
    places = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict):
        raise InputFileError(f"{folder / INDEX} has no weight_map")
    names = set(map(str, places.values()))
    for name in names:
        if Path(name).name != name or not name.isprintable():
            raise InputFileError(f"{folder / INDEX} names {name!r:.60}, which is no file beside it")
    files = {name: map_tensors(folder / name)[0] for name in sorted(names)}
    absent = [f"{name} in {file}" for name, file in places.items() if name not in files[file]]
    if absent:
        raise InputFileError(f"{folder / INDEX} names tensors that are not there: {absent[:3]}")
    return {name: files[file][name] for name, file in places.items()}


def _write(folder: Path, shards: list[Arrays]) -> None:
    """One file, or several with an index; what an older model left behind goes."""
    count, metadata = len(shards), {"format": "pt"}
    names = [WEIGHTS] if count == 1 else [
        f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)
    ]  # fmt: skip
    for name, arrays in zip(names, shards):
        write_tensors(folder / name, arrays, metadata)
    if count == 1:
        (folder / INDEX).unlink(missing_ok=True)
        return
    total = sum(array.nbytes for arrays in shards for array in arrays.values())
    places = {key: name for name, arrays in zip(names, shards) for key in arrays}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    write_atomic(folder / INDEX, json.dumps(index, indent=2).encode())
    (folder / WEIGHTS).unlink(missing_ok=True)


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _translated(model: Pretrained, found: Arrays) -> dict[str, Any]:
    """The files' tensors as entries of our state_dict, every one in its place and shape."""
    named = {_modern(name): array for name, array in found.items()}
    wanted, prefix = list(model.stored()), model.config.prefix
    if prefix and not any(name.startswith(prefix) for name in named):  # saved without a head
        wanted = [Stored(e.name.removeprefix(prefix), e.ours, e.transposed) for e in wanted]
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    values: dict[str, Any] = {}
    missing, misshapen = [], []
    for entry in wanted:
        array = named.pop(entry.name, None)
        expected = _expected(entry, shapes)
        if array is None:
            missing.append(entry.name)
        elif array.shape != expected:
            misshapen.append(
                f"{entry.name}: the model has {list(expected)}, the file {list(array.shape)}"
            )
        else:
            values.update(_parts(entry, array, shapes))
    unexpected = [name for name in named if not re.search(model.ignored, name)]
    if missing or unexpected or misshapen:
        raise fault(model, missing, unexpected, misshapen)
    return values


def _expected(entry: Stored, shapes: Mapping[str, tuple[Any, ...]]) -> tuple[int, ...]:
    rows = sum(int(shapes[name][0]) for name in entry.ours if shapes[name])
    first = shapes[entry.ours[0]]
    shape = (rows, *(int(n) for n in first[1:])) if first else ()
    return tuple(reversed(shape)) if entry.transposed else shape


def _parts(
    entry: Stored, array: NDArray[Any], shapes: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Any]]:
    whole = array.T if entry.transposed else array
    start = 0
    for name in entry.ours:
        rows = int(shapes[name][0]) if shapes[name] else 0
        yield name, tensor(whole[start : start + rows] if shapes[name] else whole)
        start += rows


def _modern(name: str) -> str:
    """A tensor's name with today's ending for the parameters of norms."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
