"""The special functions as NumPy computes them in float64: the definitions of their scalar rows."""
