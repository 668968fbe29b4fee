"""What programs on all devices have in common once they run: a layout and its calls of NumPy."""

from __future__ import annotations

from ridgeline.compiler.libraries.numpy_call import NumpyCalls
from ridgeline.compiler.memory_plan import Layout


class LayoutExecutable:
    """A layout that runs; `results` are slots, `copied` the places of those not their own."""

    def __init__(self, layout: Layout, calls: NumpyCalls) -> None:
        self.layout, self.calls = layout, calls
        self.results, self.copied = layout.results, tuple(layout.not_their_own())
