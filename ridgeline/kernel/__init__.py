"""One expression as loops that you schedule by hand.

    k = rl.loops(lambda x, w, b: rl.gelu(x @ w + b), x, w, b)
    k = k.split("n", 16).split("m", 6).reorder("m.0", "n.0", "k", "m.1", "n.1")
    k = k.unroll("m.1").vectorize("n.1").parallel("m.0")
    print(k); print(k.source()); k(x, w, b); k.flops, k.bytes, k.intensity

Every step is a checked rewrite; an illegal one is refused with the reason and changes nothing. A
kernel runs where its tensors are: for a GPU, `bind` gives axes to blocks and threads.
"""

from __future__ import annotations

from ridgeline.kernel.arguments import LoopsError
from ridgeline.kernel.expression import loops
from ridgeline.kernel.roofline import KernelRoofline
from ridgeline.kernel.scheduled import Loops

__all__ = ["KernelRoofline", "Loops", "LoopsError", "loops"]
