"""Tensors: handles on cells, the generated functions over them, and when recorded work runs."""
