"""What can be wrong with a trace file, each with its code."""

from __future__ import annotations

from ridgeline.errors import RidgelineError


class TraceFileError(RidgelineError):
    """The path cannot be opened, or holds no trace files."""

    code = "RL0701"


class TraceFormatError(RidgelineError):
    """The file is not a Chrome trace at all."""

    code = "RL0702"


class ForeignTraceError(RidgelineError):
    """A Chrome trace, but not one that torch.profiler wrote."""

    code = "RL0703"


class EmptyTraceError(RidgelineError):
    """A torch.profiler trace with nothing in it to diagnose."""

    code = "RL0704"
