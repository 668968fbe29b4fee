"""detect_anomaly: stop at the op that makes a NaN, forward or backward, on the user's line.

Everything runs node by node in the interpreter while the mode is on, jitted functions too: it is
slow, and meant for looking at a few steps.
"""

from __future__ import annotations

from ridgeline.atomic import Switch
from ridgeline.graph.anomaly import Anomaly, AnomalyError
from ridgeline.record.modes import modes
from ridgeline.record.recorder import Flushed

__all__ = ["AnomalyError", "detect_anomaly", "set_detect_anomaly"]


class detect_anomaly(Flushed):
    """`with detect_anomaly():` raises where a NaN is made; `infinite=True` also for infinities."""

    def __init__(self, check_nan: bool = True, *, infinite: bool = False) -> None:
        super().__init__(Switch(modes, anomaly=Anomaly(infinite) if check_nan else None))


class set_detect_anomaly(detect_anomaly):
    """Switch the mode on or off from here on; used as a context manager, for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(mode and check_nan)
        super().__enter__()

    def __enter__(self) -> None:
        """The mode is on already."""
