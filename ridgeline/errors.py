"""Errors with codes: what is wrong, where, and what to do.

Every error a user can cause is a `RidgelineError` with a code such as `RL0102`. The pages that
`ridgeline explain CODE` prints are in `ridgeline/cli/pages`, one for each code.

Other libraries catch errors by Python's kinds, so each class is also of the kind that Python, NumPy
and torch raise for the same mistake; all are `RuntimeError`s, as torch's are.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np


class RidgelineError(RuntimeError):
    """Base of all errors raised for a user's mistake; prints as code, sentence, note and help."""

    code = "RL0001"

    def __init__(self, message: str, *, note: str = "", help: str = "") -> None:
        self.message, self.note, self.help = message, note, help
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.note:
            lines.append("  note: " + self.note.replace("\n", "\n        "))
        if self.help:
            lines.append("  help: " + self.help.replace("\n", "\n        "))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors go from process to process whatever their constructors take."""
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


def _rebuilt(kind: type[RidgelineError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class BadValueError(RidgelineError, ValueError):
    """An argument of the right kind whose value a function cannot take."""


class BadTypeError(RidgelineError, TypeError):
    """An argument of another kind than a function takes."""


class InputFileError(RidgelineError):
    """A file that cannot be read, is of the wrong kind, or is damaged."""

    code = "RL0301"


class MissingFileError(InputFileError, FileNotFoundError):
    """A file or a folder that is not there."""

    def __init__(self, message: str, *, note: str = "", help: str = "") -> None:
        super().__init__(message, note=note, help=help)
        self.errno, self.strerror = errno.ENOENT, os.strerror(errno.ENOENT)


def path_of(value: object, what: str) -> Path:
    """The path that a function was given, or an error that says what it needs."""
    if isinstance(value, str | os.PathLike) and isinstance(name := os.fspath(value), str):
        return Path(name)
    raise BadTypeError(f"{what} needs a path, not {value!r:.40}")


def unreadable(what: object, error: Exception, help: str = "") -> InputFileError:
    """What to raise for a file that could not be read."""
    kind = MissingFileError if isinstance(error, FileNotFoundError) else InputFileError
    return kind(f"cannot read {what}: {getattr(error, 'strerror', None) or error}", help=help)


class OutputFileError(RidgelineError, OSError):
    """A file that cannot be written: no space, no permission, not a folder."""

    code = "RL0302"

    def __init__(
        self, message: str, *, note: str = "", help: str = "", reason: OSError | None = None
    ) -> None:
        super().__init__(message, note=note, help=help)
        if reason is not None:
            self.errno, self.strerror = reason.errno, reason.strerror


def unwritable(what: object, error: OSError, note: str = "", help: str = "") -> OutputFileError:
    """What to raise for a file that could not be written."""
    message = f"cannot write {what}: {error.strerror or error}"
    return OutputFileError(message, note=note, help=help, reason=error)


class ShapeError(RidgelineError, ValueError):
    """Operands whose shapes do not fit together, or a shape that an op cannot take."""

    code = "RL0101"


class DTypeError(RidgelineError, TypeError, NotImplementedError):
    """An element type that an op cannot take; torch calls some of them not implemented."""

    code = "RL0102"


class AxisError(RidgelineError, IndexError, ValueError):
    """An axis that the tensor does not have, or one named twice."""

    code = "RL0103"


class AxisKindError(AxisError, TypeError):
    """Something that is no int where an axis or a place in it is named."""


class SizeKindError(ShapeError, TypeError):
    """Something that is no int where a size is named."""


class IndexShapeError(ShapeError, IndexError):
    """A mask or an index whose shape does not fit what it points into."""


class IndexKindError(DTypeError, IndexError):
    """A tensor of an element type that names no places where an index is expected."""


class IndexRangeError(RidgelineError, IndexError):
    """An index that lies outside the axis it points into."""

    code = "RL0104"


class ArgumentError(RidgelineError, TypeError, ValueError):
    """Arguments that a function cannot take, or cannot take together."""

    code = "RL0105"


class ComputeError(RidgelineError):
    """An op whose value could not be computed, with the line that asked for it."""

    code = "RL0106"


class LinAlgError(RidgelineError, np.linalg.LinAlgError):
    """A matrix for which a decomposition or a solution does not exist."""


class DivisionByZeroError(ComputeError, ZeroDivisionError):
    """An integer divided by zero, which has no value."""


class GradientError(RidgelineError):
    """A gradient that does not exist or was asked for in the wrong way."""

    code = "RL0201"


class DeviceError(RidgelineError):
    """A device that does not exist here, or operands that lie on different ones."""

    code = "RL0107"


class PlacementError(RidgelineError):
    """Values on a mesh of ranks that lie otherwise than they are used, or cannot lie so."""

    code = "RL0902"


class DeviceKindError(DeviceError, TypeError):
    """Something that is no name or number where a device is named."""


class NoElementsError(BadValueError, IndexError):
    """The largest, the median or another one of no elements."""


class OutOfMemoryError(RidgelineError, MemoryError):
    """A device has no memory left for a value."""

    code = "RL0108"


class MemoryBudgetError(OutOfMemoryError):
    """A call that cannot be made within the budget that `jit(memory=)` sets."""

    code = "RL0110"

    def __init__(self, message: str, *, smallest: int = 0, note: str = "", help: str = "") -> None:
        super().__init__(message, note=note, help=help)
        self.smallest = smallest  # the bytes of the smallest budget that fits; 0: there is none
