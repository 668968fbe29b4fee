"""The words of tile kernels. They mean something inside a kernel only; outside they refuse."""

from __future__ import annotations

from typing import Any, NoReturn

from ridgeline.errors import BadTypeError


class TileWord:
    """A function of the language, known by its name."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name, self.__doc__ = name, meaning

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise BadTypeError(
            f"tile.{self.name} is for kernels", help="call it in a function under @tile.kernel"
        )

    def __repr__(self) -> str:
        return f"tile.{self.name}"


block = TileWord("block", "The number of the block along an axis of the grid.")
range = TileWord("range", "`for t in tile.range(n, B)`: spans of B indices that cover n.")
span = TileWord("span", "`tile.span(start, B)`: the B indices from `start` on.")
zeros = TileWord("zeros", "`tile.zeros((M, N), f32)`: a tile of zeros.")
full = TileWord("full", "`tile.full((M, N), value, f32)`: a tile of one value.")
dot = TileWord("dot", "The matrix product of two tiles, summed in float32.")
where = TileWord("where", "Elements of one tile or the other.")
maximum = TileWord("maximum", "The larger of two elements.")
minimum = TileWord("minimum", "The smaller of two elements.")
exp = TileWord("exp", "e to every element.")
log = TileWord("log", "The natural logarithm of every element.")
sqrt = TileWord("sqrt", "The square root of every element.")
tanh = TileWord("tanh", "The hyperbolic tangent of every element.")
sin = TileWord("sin", "The sine of every element.")
cos = TileWord("cos", "The cosine of every element.")
fabs = TileWord("fabs", "The size of every element.")
POINTWISE = {
    "exp": "simt.exp", "log": "simt.log", "sqrt": "simt.sqrt", "tanh": "simt.tanh",
    "sin": "simt.sin", "cos": "simt.cos", "fabs": "simt.fabs", "maximum": "max", "minimum": "min",
}  # fmt: skip
