"""`simt.autotune`: which of a kernel's constants are fastest for given arguments, measured once.

    tuned = simt.autotune(matmul, {"L": (32, 64), "S": (8, 16), "V": (4,)},
                          grid=lambda n, L, **_: (simt.cdiv(n, L), simt.cdiv(n, L)),
                          block=lambda L, V, **_: (L // V, L // V))
    c = tuned(at, b)

`grid` and `block` get the named sizes and the constants by name. The first choice is the reference:
one whose results differ from its by more than rounding is left out, and said. What was found is
kept on disk by the kernel, the types and sizes of the arguments, and the device.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ridgeline.codegen.caches import ObjectCache
from ridgeline.errors import BadTypeError, BadValueError, RidgelineError
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import modes
from ridgeline.simt.dispatch import as_tensor
from ridgeline.simt.kernel import SimtKernel
from ridgeline.simt.launch import given_arguments
from ridgeline.tensors.tensor import Tensor
from ridgeline.weak import fingerprint

_ROUNDS = 5
Config = dict[str, Any]


class TunedKernel:
    """A kernel that is launched with the constants that were fastest."""

    def __init__(
        self,
        kernel: SimtKernel,
        constants: Mapping[str, Sequence[Any]],
        grid: Callable[..., Any],
        block: Callable[..., Any],
    ) -> None:
        self.kernel, self._grid, self._block = kernel, grid, block
        names = list(constants)
        rows = product(*[_listed(name, values) for name, values in constants.items()])
        self.choices = [dict(zip(names, row)) for row in rows]
        self.best: dict[str, Config] = {}

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Launch with the best constants, which are looked for at the first call of a kind."""
        key = self._key((*arguments, *[keywords[name] for name in sorted(keywords)]))
        if key not in self.best:
            self.best[key] = self._stored(key) or self._measured(key, arguments, keywords)
        return self._launch(self.best[key], arguments, keywords)

    def _launch(self, config: Config, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        sizes = self._sizes(arguments, keywords)
        grid, block = self._grid(**sizes, **config), self._block(**sizes, **config)
        return self.kernel[grid, block](*arguments, **keywords, **config)

    def _sizes(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, int]:
        kernel, signature = self.kernel.__name__, self.kernel.signature
        given = given_arguments(kernel, signature, arguments, keywords)
        found: dict[str, int] = {}
        for name, value in given.arrays.items():
            shape = as_tensor(kernel, name, value).shape
            for size, length in zip(signature.arrays[name].sizes, shape):
                if isinstance(size, str):
                    found[size] = int(length)
        return found

    def _key(self, arguments: Sequence[Any]) -> str:
        kinds = [
            (tuple(map(int, a.shape)), str(a.dtype), str(getattr(a, "device", "cpu")))
            if hasattr(a, "shape")
            else type(a).__name__
            for a in arguments
        ]
        source = "".join(self.kernel.captured.source.lines)
        return fingerprint(f"{source}\0{kinds}\0{self.choices}")

    def _stored(self, key: str) -> Config | None:
        found = ObjectCache("tuned").get(key)
        config: Config | None = None if found is None else json.loads(found)
        return config if config in self.choices else None

    def _measured(self, key: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Config:
        if modes.capture is not None:
            raise CaptureError(
                f"{self.kernel.__name__} is tuned by measuring, which no trace of jit can do",
                help="call it once with such arguments outside of jit",
            )
        reference: list[Any] | None = None
        reason: RidgelineError | None = None
        times: list[tuple[float, int]] = []
        for number, config in enumerate(self.choices):
            try:
                results = _arrays(self._launch(config, arguments, keywords))
            except RidgelineError as error:
                reason = reason or error
                warnings.warn(f"{config} was left out: {error.message}", stacklevel=3)
                continue
            if reference is None:
                reference = results
            elif not all(map(_near, results, reference)):
                warnings.warn(f"{config} was left out: its results differ", stacklevel=3)
                continue
            times.append((self._time(config, arguments, keywords), number))
        if not times:
            because = "" if reason is None else f"of the first choice: {reason.message}"
            raise BadValueError(
                f"no choice of constants runs {self.kernel.__name__}", note=because
            ) from reason
        best = self.choices[min(times)[1]]
        ObjectCache("tuned").put(key, json.dumps(best, default=repr).encode())
        return best

    def _time(self, config: Config, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> float:
        times = []
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            _arrays(self._launch(config, arguments, keywords))
            times.append(time.perf_counter() - begin)
        return sorted(times)[_ROUNDS // 2]


def _listed(name: str, values: Any) -> list[Any]:
    """The values that a constant may have, as Python's own numbers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise BadTypeError(f"{name} has several values to try, not {values!r:.40}")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _arrays(result: Any) -> list[Any]:
    """Results in the host's memory: whoever reads them waits for the launch."""
    parts = result if isinstance(result, tuple) else (result,)
    return [part.numpy() for part in parts if isinstance(part, Tensor)]


def _near(found: Any, wanted: Any) -> bool:
    if found.dtype.kind not in "fV":
        return bool(np.array_equal(found, wanted))
    scale = np.abs(wanted.astype(np.float64)).max(initial=0.0)
    step = 2.0**-20 if found.dtype.itemsize >= 4 else 2.0**-6
    off = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
    return bool(off <= step * max(scale, 1e-30))


def autotune(
    kernel: SimtKernel,
    constants: Mapping[str, Sequence[Any]],
    grid: Callable[..., Any],
    block: Callable[..., Any],
) -> TunedKernel:
    """A kernel whose constants are chosen by measuring; `inout` arrays are refused."""
    if not isinstance(kernel, SimtKernel):
        raise BadTypeError(f"{kernel!r:.40} is no kernel", help="write @simt.kernel above a def")
    for name, given in (("grid", grid), ("block", block)):
        if not callable(given):
            raise BadTypeError(f"{name} is a function of sizes and constants, not {given!r:.40}")
    unknown = [name for name in constants if name not in kernel.signature.constants]
    if unknown:
        raise BadValueError(f"{kernel.__name__} has no constant {unknown[0]}")
    if any(a.access == "inout" for a in kernel.signature.arrays.values()):
        raise BadValueError(
            f"{kernel.__name__} writes an argument in place, so trying it changes the argument",
            help="make the array an `out` parameter",
        )
    return TunedKernel(kernel, constants, grid, block)
