"""Results of a jitted function beside those of the plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.tensors.pytree import flatten


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def arrays(tree: Any) -> list[np.ndarray]:
    leaves: list[Any] = []
    flatten(tree, leaves)
    return [np.array(leaf.detach() if isinstance(leaf, rl.Tensor) else leaf) for leaf in leaves]


def same(jitted: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    for got, want in zip(arrays(jitted(*args, **kwargs)), arrays(plain(*args, **kwargs))):
        np.testing.assert_allclose(got, want, rtol=1e-6)
