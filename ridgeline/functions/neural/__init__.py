"""The functions that `nn.functional` alone has; importing this adds them to the table.

`import ridgeline` does not, `nn.functional` does.
"""

from ridgeline.functions.neural import (  # noqa: F401
    activations,
    distances,
    dropouts,
    fractional,
    grouped,
    likelihoods,
    margins,
    normalization,
    pixels,
    resizing,
)
