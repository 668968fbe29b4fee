"""Random draws that are the same in every framework, for comparing losses.

While `same_draws` is on, the framework's random functions are made of whole-number arithmetic that
both frameworks do exactly, with a counter that is a tensor. So they give the same numbers under
jit, without it, and in another precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BITS = 31  # products of two such numbers fit into int64
MULTIPLIERS = (1103515245, 1900042181)


class Draws:
    """Uniform and normal numbers of one framework."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.counter = torch.zeros((), dtype=torch.int64)

    def uniform(self, shape: tuple[int, ...]) -> Any:
        """Numbers in (0, 1), in float64."""
        torch, mask = self.torch, (1 << BITS) - 1
        number = torch.arange(math.prod(shape)).reshape(shape) + self.counter
        self.counter += math.prod(shape)
        for multiplier in MULTIPLIERS:
            number = ((number & mask) * multiplier + 12345) & mask
            number = number ^ (number >> 15)
        return (number.to(torch.float64) + 0.5) / (1 << BITS)

    def normal(self, shape: tuple[int, ...]) -> Any:
        """Numbers of the standard normal distribution, in float64."""
        torch = self.torch
        radius = torch.sqrt(-2 * torch.log(self.uniform(shape)))
        return radius * torch.cos(2 * math.pi * self.uniform(shape))


def replacements(torch: Any) -> dict[tuple[Any, str], Any]:
    """What stands for the random functions of a framework: by their place and name."""
    draws = Draws(torch)

    def shape_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(sizes[0]) if sizes and not isinstance(sizes[0], int) else tuple(sizes)

    def rand(*sizes: Any, dtype: Any = None, device: Any = None) -> Any:
        return draws.uniform(shape_of(sizes)).to(dtype or torch.get_default_dtype())

    def randn(*sizes: Any, dtype: Any = None, device: Any = None) -> Any:
        return draws.normal(shape_of(sizes)).to(dtype or torch.get_default_dtype())

    def randn_like(other: Any) -> Any:
        return draws.normal(tuple(other.shape)).to(other.dtype)

    def randint(low: int, high: int, size: tuple[int, ...], device: Any = None) -> Any:
        return low + torch.floor(draws.uniform(tuple(size)) * (high - low)).to(torch.int64)

    def multinomial(weights: Any, num_samples: int, replacement: bool = False) -> Any:
        shares = torch.cumsum(weights.to(torch.float64), -1)
        drawn = draws.uniform((*weights.shape[:-1], num_samples)) * shares[..., -1:]
        return (shares.unsqueeze(-2) < drawn.unsqueeze(-1)).sum(-1)

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or p == 0:
            return input
        kept = draws.uniform(tuple(input.shape)) >= p
        return input * kept.to(input.dtype) / (1 - p)

    def dropout_layer(self: Any, input: Any) -> Any:
        return dropout(input, self.p, self.training)

    def sample(self: Any) -> Any:
        return multinomial(self.probs, 1).squeeze(-1)

    return {
        (torch.distributions.Categorical, "sample"): sample,
        (torch, "rand"): rand, (torch, "randn"): randn, (torch, "randn_like"): randn_like,
        (torch, "randint"): randint, (torch, "multinomial"): multinomial,
        (torch.nn.functional, "dropout"): dropout, (torch.nn.Dropout, "forward"): dropout_layer,
    }  # fmt: skip


@contextmanager
def same_draws(torch: Any) -> Iterator[None]:
    """Inside, a framework's random functions give the numbers of `Draws`."""
    made = replacements(torch)
    kept = {place: getattr(*place) for place in made}
    try:
        for (owner, name), function in made.items():
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name), function in kept.items():
            setattr(owner, name, function)
