"""Errors with codes: what is wrong, where, and what to do.

Every error a user can cause is a `RidgelineError` with a code such as `RL0102`. The pages that
`ridgeline explain CODE` prints are in `ridgeline/cli/pages`, one for each code.
"""

from __future__ import annotations


class RidgelineError(Exception):
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


class InputFileError(RidgelineError):
    """A file that cannot be read, is of the wrong kind, or is damaged."""

    code = "RL0301"


class OutputFileError(RidgelineError):
    """A file that cannot be written: no space, no permission, not a folder."""

    code = "RL0302"


class ShapeError(RidgelineError):
    """Operands whose shapes do not fit together, or a shape that an op cannot take."""

    code = "RL0101"


class DTypeError(RidgelineError):
    """An element type that an op cannot take."""

    code = "RL0102"


class AxisError(RidgelineError):
    """An axis that the tensor does not have, or one named twice."""

    code = "RL0103"


class IndexRangeError(RidgelineError, IndexError):
    """An index that lies outside the axis it points into."""

    code = "RL0104"


class ArgumentError(RidgelineError):
    """Arguments that are each of a right kind, but that a function cannot take together."""

    code = "RL0105"


class ComputeError(RidgelineError):
    """An op whose value could not be computed, with the line that asked for it."""

    code = "RL0106"


class GradientError(RidgelineError):
    """A gradient that does not exist or was asked for in the wrong way."""

    code = "RL0201"


class DeviceError(RidgelineError):
    """A device that does not exist here, or operands that lie on different ones."""

    code = "RL0107"


class OutOfMemoryError(RidgelineError, MemoryError):
    """A device has no memory left for a value."""

    code = "RL0108"
