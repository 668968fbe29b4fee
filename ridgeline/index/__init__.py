"""The algebra of indices and sizes: polynomials, affine maps and intervals of integers."""
