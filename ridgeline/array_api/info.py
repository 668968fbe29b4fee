"""What this namespace can do, for code that asks before it calls."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes as rows
from ridgeline.array_api.types import STANDARD, isdtype
from ridgeline.dtypes import DType
from ridgeline.functions.operands import default_complex, defaults
from ridgeline.runtime.buffer import check_device
from ridgeline.runtime.cuda.device import count


class _Devices(tuple[str, ...]):
    """Devices: a tuple since 2025.12; a list before, and still one when it is added to a list."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented


class Info:
    """The answers of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks, shapes that depend on values, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of new arrays."""
        return "cpu"

    def devices(self) -> tuple[str, ...]:
        """All devices."""
        return _Devices(("cpu", *(f"cuda:{number}" for number in range(count()))))

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The element types of new arrays, by what they hold."""
        check_device(device)
        return {
            "real floating": defaults.dtype,
            "complex floating": default_complex(),
            "integral": rows.int64,
            "indexing": rows.int64,
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's element types, all or those of some kinds."""
        check_device(device)
        if kind is None:
            return dict(STANDARD)
        return {name: row for name, row in STANDARD.items() if isdtype(row, kind)}


def __array_namespace_info__() -> Info:
    """What this namespace can do."""
    return Info()
