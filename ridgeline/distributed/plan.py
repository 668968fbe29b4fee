"""Plans: how a model is shared out over a mesh, as data that is read from and written to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ridgeline.errors import BadValueError, InputFileError
from ridgeline.files import write_atomic

RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
ROLES = ("column", "row", "vocabulary", "replicate")


@dataclass(frozen=True)
class Plan:
    """What is sharded, recomputed and scheduled; `roles` are those of linear layers, by path.

    `zero` shards along dp: 1 the optimizer's state, 2 gradients too, 3 parameters too.
    """

    zero: int = 0
    sequence: bool = False  # activations between the layers of tp are sharded along the sequence
    ring: bool = False  # keys and values go around cp, and are not gathered
    recompute: str = "none"  # of blocks: what their backward pass computes again
    schedule: str = "1f1b"
    microbatches: int = 0  # 0: as many as there are stages
    chunks: int = 1  # of layers that a rank of pp has, for the interleaved schedule
    stages: tuple[int, ...] = ()  # blocks of each stage; none: as equal as can be
    strict: bool = False  # a gather that nobody asked for is an error
    reduce_dtype: str = "float32"  # in which gradients of narrower types are added up over ranks
    roles: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.zero, bool) or self.zero not in (0, 1, 2, 3):
            raise BadValueError(f"zero is {self.zero!r}, expected 0, 1, 2 or 3")
        _one_of("recompute", self.recompute, RECOMPUTE)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("reduce_dtype", self.reduce_dtype, ("float32", "float64", "bfloat16", "float16"))
        for name in ("microbatches", "chunks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name == "chunks"):
                raise BadValueError(f"{name} is {value!r}, expected a number of them")
        for name in ("sequence", "ring", "strict"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise BadValueError(f"{name} is {value!r:.40}, expected True or False")
        if not isinstance(self.roles, Mapping):
            raise BadValueError(f"roles are by path, and not {self.roles!r:.40}")
        for path, role in self.roles.items():
            _one_of(f"the role of {path}", role, ROLES)
        listed = isinstance(self.stages, tuple | list)
        if not listed or not all(type(number) is int for number in self.stages):
            raise BadValueError(f"stages are numbers of blocks, not {self.stages!r:.40}")
        object.__setattr__(self, "stages", tuple(self.stages))

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """A plan from text; settings that are left out have their defaults."""
        try:
            found = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputFileError(f"a plan is JSON, and this is not: {error}") from None
        if not isinstance(found, dict):
            raise InputFileError(f"a plan is an object of settings, not {type(found).__name__}")
        return cls.from_settings(found)

    @classmethod
    def from_settings(cls, found: Mapping[str, Any]) -> Plan:
        """A plan from what JSON holds; settings that are left out have their defaults."""
        if isinstance(found.get("plan"), dict):
            found = found["plan"]  # what `ridgeline plan --json` wrote has more around it
        known = {each.name for each in fields(cls)}
        unknown = sorted(set(found) - known)
        if unknown:
            raise InputFileError(
                f"a plan has no setting {unknown[0]!r}", help=f"it has {', '.join(sorted(known))}"
            )
        try:
            return cls(**found)
        except BadValueError as error:
            raise InputFileError(f"a plan cannot be used: {error.message}") from None

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        write_atomic(Path(path), self.to_json().encode())

    @classmethod
    def of(cls, given: Plan | Mapping[str, Any] | str | Path | None) -> Plan:
        """A plan as it is, by the settings that JSON holds, or by its file."""
        if isinstance(given, Mapping):
            return cls.from_settings(given)
        if isinstance(given, str | Path):
            return cls.load(given)
        return cls() if given is None else given

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read it from a file."""
        try:
            return cls.from_json(Path(path).read_text())
        except UnicodeDecodeError as error:
            raise InputFileError(f"the plan {path} is no text: {error}") from None
        except OSError as error:
            raise InputFileError(f"the plan {path} cannot be read: {error.strerror}") from None


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise BadValueError(f"{name} is {value!r}", help=f"it is one of {', '.join(known)}")
