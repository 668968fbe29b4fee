"""A layout: how many ranks each way of splitting takes, and what goes with it; and a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ridgeline.planner.shapes import ModelShape

RECOMPUTE = ("none", "selective", "full")
SHARDING = ("none", "optimizer", "gradients", "parameters")
PRECISIONS = ("fp16", "bf16", "fp8", "mxfp8")


@dataclass(frozen=True)
class ParallelLayout:
    """Ranks are numbered with tensor parallelism fastest, then context, data and pipeline."""

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    chunks: int = 1
    microbatch: int = 1
    recompute: str = "none"
    recomputed: float = 1.0
    """Of the layers that `full` recomputation could compute again, the share that it does."""
    sharding: str = "optimizer"
    """What data-parallel ranks share out: ZeRO's stages 0 to 3 by what they shard."""
    split_experts: bool = False
    """Expert ranks are some of the data-parallel ones, and tensor ranks split each expert.

    Where not, experts are whole, and tensor ranks are expert ranks, too, as in Megatron-Core.
    """
    sharers: int = 0
    """How many data-parallel ranks share one copy of it among them; 0 for all."""
    schedule: str = "1f1b"
    data_outermost: bool = False
    """Data-parallel replicas lie outside pipelines, as suits clusters with pods."""

    @property
    def expert_split(self) -> int:
        """Ranks that have a part of the same expert each."""
        return self.tensor if self.split_experts or self.expert == 1 else 1

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.tensor * self.context * self.pipeline * self.data

    def with_(self, **changes: Any) -> ParallelLayout:
        """Another layout, with some fields changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        text = f"TP{self.tensor} CP{self.context} PP{self.pipeline} DP{self.data}"
        if self.expert > 1:
            text += f" EP{self.expert}"
        if self.pipeline > 1:
            text += f" {self.schedule}" + (f"×{self.chunks}" if self.chunks > 1 else "")
        text += f" microbatch {self.microbatch}"
        if self.recompute != "none":
            text += f" recompute {self.recompute}"
            text += f" ({self.recomputed:.0%} of layers)" if self.recomputed < 1 else ""
        kind = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")[SHARDING.index(self.sharding)]
        within = f" within {self.sharers}" if self.sharers and self.sharding != "none" else ""
        return f"{text} {kind}{within}"


@dataclass(frozen=True)
class Job:
    """What is to be trained: a model on sequences of a length, so many a step, in a precision."""

    shape: ModelShape
    length: int
    sequences: int
    """Sequences of a step, over all ranks."""
    precision: str = "bf16"
    document: int = 0
    """Tokens of the samples that are packed into a sequence, which do not see one another."""

    @property
    def seen(self) -> int:
        """Tokens that attention is over."""
        return min(self.document or self.length, self.length)

    @property
    def tokens(self) -> int:
        """Tokens of a step, or samples of a model that was traced (`shape.unit`)."""
        return self.length * self.sequences

    def microbatches(self, layout: ParallelLayout) -> int:
        """How many each data-parallel rank goes through in a step."""
        return self.sequences // (layout.data * layout.microbatch)
