"""Tensors: handles on cells, and the generated functions over them."""
