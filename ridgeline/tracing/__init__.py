"""jit: a call captured once, its guards, and its replay as one native call."""
