"""Text generation: a prompt is taken in at once, then one compiled step gives token after token.

The prompt is padded and the cache sized to powers of two, so that prompts of many lengths share a
few compiled programs; the position is a run-time value, so no token compiles anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, overload

import numpy as np

from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.models.language import LanguageModel
from ridgeline.nn.utils.rnn import pad_sequence
from ridgeline.random import Generator
from ridgeline.scalars import Array
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.public import argmax, cat, multinomial, softmax, sort, topk, where
from ridgeline.tensors.tensor import Tensor, tensor

_LATE = 16  # tokens after which a GPU is asked whether all rows have come to their end
_SMALLEST = 16  # positions for which programs are made at least


@overload
def generate(
    model: LanguageModel, tokens: Any, max_new_tokens: int, *, temperature: float = ...,
    top_k: int | None = ..., top_p: float | None = ..., eos: int | None = ...,
    pad: int = ..., seed: int | None = ..., stream: Literal[False] = ...,
) -> Tensor: ...  # fmt: skip


@overload
def generate(
    model: LanguageModel, tokens: Any, max_new_tokens: int, *, temperature: float = ...,
    top_k: int | None = ..., top_p: float | None = ..., eos: int | None = ...,
    pad: int = ..., seed: int | None = ..., stream: Literal[True],
) -> Iterator[Tensor]: ...  # fmt: skip


def generate(
    model: LanguageModel,
    tokens: Any,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    pad: int = 0,
    seed: int | None = None,
    stream: bool = False,
) -> Tensor | Iterator[Tensor]:
    """Tokens [batch, length] followed by new ones; with `stream`, each [batch] as it comes.

    A temperature of 0 takes the likeliest token; above it tokens are drawn, among the `top_k`
    likeliest, or the fewest that hold a share `top_p`, where these are given. A row that has
    come to `eos` repeats it, and generation ends when every row has. Prompts of different lengths
    are given as a list of lists; shorter ones begin with `pad`, which the model does not see. The
    model runs in the mode that it is in: call `eval()` first after training with dropout.
    """
    prompt, skipped = _aligned(tokens, pad)
    prompt = prompt.to(model.tokens.weight.device)
    if prompt.dim() != 2 or 0 in prompt.shape or prompt.dtype.is_differentiable:
        raise ShapeError(
            f"a prompt is token numbers [batch, length], got {prompt.dtype} {list(prompt.shape)}",
            help="one prompt is [[…]]",
        )
    total = int(prompt.shape[1]) + max_new_tokens
    if max_new_tokens < 0 or total > model.context:
        raise ArgumentError(
            f"{int(prompt.shape[1])} tokens and {max_new_tokens} new ones do not fit into "
            f"the model's {model.context} positions"
        )
    _check(temperature, top_k, top_p)
    generator = Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    settings = (temperature, top_k, top_p, eos, generator)
    often = 1 if stream or prompt.device == "cpu" else _LATE
    chosen = _chosen(model, prompt, skipped, max_new_tokens, *settings, often)
    if stream:
        return chosen
    columns = [column.unsqueeze(-1) for column in chosen]
    if eos is not None and often > 1 and columns:
        columns = columns[: _ended(cat(columns, 1).cpu().numpy(), eos)]
    return cat([prompt, *columns], 1)


def _ended(tokens: Array, eos: int) -> int:
    """How many columns there are until every row has come to its end, that one included."""
    done = (tokens == eos).all(0)
    return int(done.argmax()) + 1 if done.any() else len(done)


def _aligned(tokens: Any, pad: int) -> tuple[Tensor, Tensor | None]:
    """Prompts that end together, and how much padding each begins with, if any does."""
    if not isinstance(tokens, list | tuple):
        return as_tensor(tokens), None
    lengths = [len(row) if hasattr(row, "__len__") else -1 for row in tokens]
    if not lengths or min(lengths) == max(lengths) or min(lengths) < 0:
        return as_tensor(tokens), None
    if min(lengths) == 0:
        raise ShapeError(f"prompt {lengths.index(0)} of {len(lengths)} is empty")
    rows = [as_tensor(row) for row in tokens]
    padded = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
    return padded, tensor([max(lengths) - length for length in lengths])


def _check(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not temperature >= 0:
        raise ArgumentError(f"a temperature is at least 0, not {temperature}")
    if top_k is not None and top_k < 1:
        raise ArgumentError(f"top_k is at least 1, not {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ArgumentError(f"top_p is a share above 0 and at most 1, not {top_p}")


def _chosen(
    model: LanguageModel,
    prompt: Tensor,
    skipped: Tensor | None,
    count: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    eos: int | None,
    generator: Generator,
    often: int,
) -> Iterator[Tensor]:
    """The new tokens, one [batch] after the other.

    Whether all rows have come to their end is asked after every `often` tokens: a device that is
    not asked works on while the host prepares the next token.
    """
    if count == 0:
        return
    batch, length = (int(n) for n in prompt.shape)
    cache = model.new_cache(batch, _rounded(length + count, model.context))
    padding = _rounded(length, model.context) - length
    home = prompt.device
    padded = tensor(np.pad(prompt.cpu().numpy(), ((0, 0), (0, padding))), device=home)
    skipped = None if skipped is None else skipped.to(home)
    scores = model.step(padded, tensor(0), tensor(length - 1), cache, skipped)
    finished: Tensor | None = None
    last = length + count - 1
    for length_so_far in range(length, last + 1):
        token = pick(scores, temperature, top_k, top_p, generator).to(dtype=prompt.dtype)
        if eos is not None:
            if finished is not None:
                token = where(finished, eos, token)
            finished = token == eos
        yield token
        asked = (length_so_far - length + 1) % often == 0
        if length_so_far == last or (finished is not None and asked and bool(finished.all())):
            return
        scores = model.step(token.unsqueeze(-1), tensor(length_so_far), tensor(0), cache, skipped)


def _rounded(length: int, context: int) -> int:
    """The next power of two, within what the model has positions for."""
    return min(context, max(_SMALLEST, 1 << (length - 1).bit_length()))


def pick(
    scores: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: Generator | None = None,
) -> Tensor:
    """One token for every row of scores [batch, vocabulary]."""
    if temperature == 0:
        return argmax(scores, -1)
    return multinomial(shares(scores, temperature, top_k, top_p), 1, generator=generator)[:, 0]


def shares(scores: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """How likely each token is to be drawn."""
    scores = scores / temperature
    if top_k is None and top_p is None:
        return softmax(scores, -1)
    if top_k is None:
        ordered = sort(scores, -1, descending=True)[0]
    else:
        ordered = topk(scores, min(top_k, int(scores.shape[-1])), -1)[0]
        scores = where(scores < ordered[..., -1:], -np.inf, scores)
    if top_p is not None:
        likely = softmax(ordered, -1)
        before = likely.cumsum(-1) - likely  # the share of all that are likelier
        least = where(before < top_p, ordered, np.inf).amin(-1, keepdim=True)
        scores = where(scores < least, -np.inf, scores)
    return softmax(scores, -1)
