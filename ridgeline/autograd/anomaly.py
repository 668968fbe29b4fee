"""detect_anomaly: stop at the op that makes a NaN, forward or backward, on the user's line.

Everything runs node by node in the interpreter while the mode is on, jitted functions too: it is
slow, and meant for looking at a few steps.
"""

from __future__ import annotations

from types import TracebackType

from ridgeline.tensors.anomaly import Anomaly, AnomalyError
from ridgeline.tensors.execute import flush
from ridgeline.tensors.modes import modes

__all__ = ["AnomalyError", "detect_anomaly", "set_detect_anomaly"]


class detect_anomaly:
    """`with detect_anomaly():` raises where a NaN is made; `infinite=True` also for infinities."""

    def __init__(self, check_nan: bool = True, *, infinite: bool = False) -> None:
        self._mode = Anomaly(infinite) if check_nan else None
        self._before: list[Anomaly | None] = []

    def __enter__(self) -> None:
        flush()  # what was recorded before is not looked into
        self._before.append(modes.anomaly)
        modes.anomaly = self._mode

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                flush()
        finally:
            modes.anomaly = self._before.pop()


class set_detect_anomaly(detect_anomaly):
    """Switch the mode on or off from here on; used as a context manager, for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(mode and check_nan)
        super().__enter__()

    def __enter__(self) -> None:
        """The mode is on already."""
