"""Kernels for Hopper: products by groups of warps that fetch, multiply and store beside another.

`instructions.py` has what only Hopper has, a function for each instruction; `product.py` is the
skeleton, which alone decides roles and barriers, around what loops say is made of a tile.
"""

from ridgeline.codegen.cuda.hopper.product import product_source

__all__ = ["product_source"]
