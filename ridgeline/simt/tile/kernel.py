"""`@tile.kernel`: a function over tiles, as a kernel of threads that are shared out over them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.simt.dispatch import ConfiguredKernel
from ridgeline.simt.frontend.outside import named
from ridgeline.simt.frontend.source import capture
from ridgeline.simt.kernel import SimtKernel, with_language
from ridgeline.simt.launch import LaunchError, thread_launch
from ridgeline.simt.tile.lowering import lowered

_THREADS = 128
_WARP = 32


class TileKernel:
    """A kernel over tiles. `kernel[grid](*arguments)` launches it; a grid has up to three axes."""

    def __init__(self, function: Callable[..., Any], threads: int) -> None:
        if threads % _WARP or not _WARP <= threads <= 1024:
            raise BadValueError(
                f"a tile kernel runs in whole warps, and {threads} threads are none",
                help="threads= is a multiple of 32, at most 1024",
            )
        self.captured = capture(function)
        self.block = threads
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self._text = lowered(self.captured, threads)
        self._names = _names(self._text)
        self.simt = SimtKernel(capture(with_language(self._text, self._numbers())))
        self.simt.follow = self._follow

    def _numbers(self) -> dict[str, Any]:
        """Numbers of outside that the text names, as they are now."""
        found = {name: named(self.captured, name) for name in self._names}
        return {n: v for n, v in found.items() if isinstance(v, bool | int | float)}

    def _follow(self) -> None:
        function: Any = self.simt.captured.function
        function.__globals__.update(self._numbers())

    def threads(self) -> str:
        """The kernel of threads that this is, as text."""
        return self._text

    def __getitem__(self, grid: Any) -> ConfiguredKernel:
        return ConfiguredKernel(self.simt, thread_launch(grid, self.block))

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the kernel its gradient, as `simt` kernels have it."""
        return self.simt.backward(rule)

    def simulate(self, grid: Any, *arguments: Any, **keywords: Any) -> Any:
        """Run a launch in the simulator, with all its checks."""
        return self.simt.simulate(grid, self.block, *arguments, **keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise LaunchError(
            f"{self.__name__} is a kernel, and a launch says how many blocks run it",
            help=f"{self.__name__}[blocks](…)",
        )

    def __repr__(self) -> str:
        return f"<tile kernel {self.__name__}>"


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def kernel(function: Callable[..., Any] | None = None, *, threads: int = _THREADS) -> Any:
    """Make a tile kernel of a function; `threads` share out every tile of a block."""
    if function is None:
        return lambda given: TileKernel(given, threads)
    return TileKernel(function, threads)
