"""NumPy values of functions that have no loops: special functions and linear algebra.

Everything is computed in float64 (or complex128) unless LAPACK has the narrower type.
"""
