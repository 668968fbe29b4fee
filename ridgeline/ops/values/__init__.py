"""NumPy values of functions that have no loops: linear algebra and orthogonal polynomials.

Everything is computed in float64 (or complex128) unless LAPACK has the narrower type.
"""
