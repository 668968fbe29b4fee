"""torch.nn.attention.flex_attention: attention whose scores a function changes or leaves out.

The functions get the numbers of batch, head, query and key as tensors that broadcast against one
another, so that one call gives all scores; what it computes fuses with the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ridgeline import dtypes
from ridgeline.functions.operands import defaults
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import arange, logsumexp, matmul, ones
from ridgeline.tensors.tensor import Tensor

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """Keep everything."""
    return ones((), dtype=dtypes.bool_, device=q_idx.device)


def _indices(sizes: tuple[int, ...], device: Any) -> list[Tensor]:
    """The numbers along four axes, each lying along its own."""
    return [
        arange(size, device=device).reshape([-1 if own == axis else 1 for own in range(4)])
        for axis, size in enumerate(sizes)
    ]


def create_mask(
    mod_fn: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """Which keys [batch, head, query, key] a function keeps."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return mod_fn(*_indices(sizes, device or defaults.device)).expand(sizes)


@dataclass(frozen=True, eq=False)
class BlockMask:
    """Which keys every query sees: a function, and what it says of all of them."""

    seen: Tensor
    mask_mod: MaskMod
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE

    @property
    def shape(self) -> Any:
        """Batches, heads, queries and keys."""
        return self.seen.shape

    def to(self, device: Any) -> BlockMask:
        """The same mask on another device."""
        return BlockMask(self.seen.to(device), self.mask_mod, self.BLOCK_SIZE)

    def to_dense(self) -> Tensor:
        """One for every pair that is seen, zero elsewhere."""
        return self.seen.to("int32")

    def sparsity(self) -> float:
        """How many of a hundred pairs are left out."""
        return 100 * (1 - float(self.seen.float().mean()))


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
) -> BlockMask:
    """A mask for `flex_attention` from a function of batch, head, query and key."""
    return BlockMask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod, BLOCK_SIZE)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Keep what all of some masks keep."""

    def kept(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            made = made & mod(b, h, q_idx, kv_idx)
        return made

    return kept


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Keep what one of some masks keeps."""

    def kept(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = ~noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            made = made | mod(b, h, q_idx, kv_idx)
        return made

    return kept


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
) -> Any:
    """softmax(score_mod(q kᵀ * scale)) v over what the mask keeps; rows without a key are zero.

    >>> x = rl.ones(1, 2, 4, 8)
    >>> flex = rl.nn.attention.flex_attention.flex_attention
    >>> flex(x, x, x, score_mod=lambda score, b, h, q, k: score - (q - k).abs()).shape
    ridgeline.Size([1, 2, 4, 8])
    """
    if enable_gqa:
        shares = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(shares, 1) for t in (key, value))
    factor = 1 / math.sqrt(int(query.shape[-1])) if scale is None else scale
    scores = matmul(query, key.transpose(-2, -1)) * factor
    if score_mod is not None:
        scores = score_mod(scores, *_indices(tuple(scores.shape), scores.device))
    if block_mask is not None:
        seen = block_mask.seen[..., : scores.shape[-2], : scores.shape[-1]]
        scores = choose(seen, scores, -math.inf)
    total = logsumexp(scores, -1)
    empty = total == -math.inf
    weights = (scores - choose(empty, 0.0, total).unsqueeze(-1)).exp()
    result = matmul(weights, value).to(query.dtype)
    return (result, total) if return_lse else result
