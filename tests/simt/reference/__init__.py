"""A tiny interpreter of kernels, one thread after another, that says what is wrong with a launch.

It shares nothing with the simulator: each thread is a Python generator made from the kernel's own
text, which stops at every access of memory and wherever threads meet (`text.py`). A scheduler
picks who goes next; vector clocks, one number for each pair of threads, say which accesses are
ordered, and all pairs of accesses to an element are compared (`run.py`). It is slow, and for
launches of a few dozen threads.
"""

from tests.simt.reference.run import Outcome, Reference, every_schedule
from tests.simt.reference.text import Unsupported

__all__ = ["Outcome", "Reference", "Unsupported", "every_schedule"]
