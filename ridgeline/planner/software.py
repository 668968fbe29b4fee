"""Software profiles: what a framework fuses, keeps for the backward pass, reduces and overlaps."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields, replace
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.planner.shapes import ModelShape


@dataclass(frozen=True)
class Software:
    """One way to run the same model. Shares are of 1; bytes are by element."""

    name: str
    fused_attention: bool = True
    """Scores stay on the chip; where not, they are written, normalised and dropped in memory."""
    fused_dropout: bool = True
    """Attention that drops scores is fused, too."""
    sequence_parallel: bool = True
    """What tensor parallelism leaves whole is split along the sequence."""
    passes: float = 1.0
    """Passes over memory of norms, activations and residuals, in those of fused kernels."""
    plain_passes: float = 0.0
    """The same of models with LayerNorm and GELU, which every framework has as one kernel each."""
    gradient_bytes: float = 4
    """Of an accumulated gradient."""
    reduce_bytes: float = 4
    """Of a gradient that is summed over ranks."""
    reduced_whole: bool = False
    """Every rank gets the sums of all gradients, also of those that others update."""
    owned_tensors: int = 0
    """Of a layer, the tensors that ranks of ZeRO-1 own whole; 0 where states are cut evenly.

    Each rank that owns some is sent their sums, and after the step broadcasts them, as in
    InternEvo's hybrid_zero_optim.py. NCCL does both by rings, with a hop for every rank.
    """
    overlap_data: bool = True
    """Gradients and weights travel while other layers are computed."""
    overlap_tensor: float = 0.0
    """Of the traffic of tensor parallelism, the share that runs behind products."""
    overlap_context: bool = True
    """Keys and values travel around a ring while attention is computed; else they are gathered."""
    overlap_pipeline: bool = True
    """Stages compute while their activations travel."""
    launch: float = 6e-6
    """Host seconds for each kernel: a layer takes at least those of its kernels."""
    kernels: int = 24
    """Kernels of a layer forwards."""
    sorting_kernels: int = 30
    """Those of sorting tokens by their experts, forwards."""
    expert_kernels: int = 30
    """Those of each expert that a rank has, forwards, with what the host does between them."""
    most_gathered: float = math.inf
    """Sharded weights that are whole at once, at most; where it is not said, two layers are."""
    overlap_sharded: float = 0.95
    """Of the time of layers, the share behind which weights of the next ones are gathered."""
    one_card: bool = False
    """Rings go through one network card of a node, whatever number there are."""
    overlap_expert: float = 0.0
    """Of the traffic of experts, the share that runs behind the products of other tokens."""
    split_experts: bool = False
    """Tensor-parallel ranks split each expert; where not, they are expert-parallel ones, too."""
    deduplicated: bool = True
    """A token goes once to each node that has experts for it, and is copied there."""
    attention_ampere: float = 1.0
    """What its attention reaches on an A100 and older GPUs, of what kernels made for one do."""
    attention_hopper: float = 1.0
    """The same on Hopper, for which most published runs had kernels made for an A100."""
    tensor_wait: float = 0.0
    """Seconds in which tensor-parallel ranks wait for one another at each of their collectives."""
    lean: bool = False
    """Results of elementwise work are made again for the backward pass, at the price of passes."""
    gathered_inputs: bool = False
    """What tensor-parallel layers gather along the sequence they keep whole, not gather again."""
    pipeline_buffers: int = 0
    """Activations beside the layers' that a stage keeps for each microbatch."""
    received_buffers: int = 0
    """Buffers that a stage has from the start for what it receives of every microbatch."""
    score_bytes: int = 10
    """For each score of a word: itself, in float32, and its gradient; 4 where a loss is one kernel.

    What the head moves is in proportion to it.
    """
    cast_passes: float = 1.0
    """Passes that turn operands of a float8 product into float8."""
    selective: str = "attention"
    """What selective recomputation computes again: `attention`, or `half` of all products too."""
    frozen_weights: bool = False
    """Weights have no gradients: half of backwards' products are not computed."""
    offloaded_bytes: float = 0.0
    """For each parameter, what goes to the host and back where the optimizer is there."""
    host_passes: float = 0.0
    """Bytes that the host reads and writes for each parameter that it updates."""
    optimizer_passes: float = 30.0
    """Bytes that an optimizer reads and writes for each parameter it updates."""
    weight_bytes: float = 2
    """Of a weight as it is kept, beside the optimizer's copies."""
    table_bytes: float = 0
    """Of those of the embedding and the head; 0 where they are kept as others are."""
    gathered_bytes: float = 2
    """Of a sharded weight as it travels."""
    unpacked_bytes: float = 0.0
    """For each weight of a layer, what making it a 16-bit number before products moves."""
    adapter_rank: int = 0
    """Of LoRA's matrices beside products; 0 where there are none."""
    adapted_attention: bool = False
    """They are beside queries, keys and values alone."""
    optimizer_bytes: float = 12
    """Of the optimizer's copies of a parameter: a float32 master and two moments."""
    workspace: float = 1.0
    """GB of communicators, libraries and the driver's own."""
    zero_bubble: bool = False
    """Whether backward passes may be split, so that gradients of weights fill idle time."""
    interleaved: bool = True
    """Whether stages may hold several chunks."""

    def passes_of(self, shape: ModelShape) -> float:
        """Passes over memory of a model's elementwise work, in those of fused kernels."""
        return self.plain_passes if self.plain_passes and not shape.gated else self.passes

    def fuses(self, shape: ModelShape) -> bool:
        """Whether a model's attention is one kernel here."""
        return self.fused_attention and (self.fused_dropout or not shape.drops_scores)


PROFILES = {
    profile.name: profile
    for profile in (
        Software(
            "megatron-2021", fused_attention=False, sequence_parallel=False, overlap_data=False,
            overlap_pipeline=False, reduce_bytes=2,
        ),
        Software(
            "megatron-deepspeed", fused_attention=False, sequence_parallel=False,
            overlap_data=False, overlap_pipeline=False, gradient_bytes=2, reduce_bytes=2,
            optimizer_bytes=16, reduced_whole=True, pipeline_buffers=1, workspace=6.0,
            interleaved=False, tensor_wait=1.4e-3, most_gathered=1e9,
        ),
        Software(
            "deepspeed", kernels=45, gradient_bytes=2, reduce_bytes=2, selective="half",
            gathered_inputs=True, interleaved=False, sequence_parallel=False, workspace=6.0,
            most_gathered=1e9,
        ),
        Software("megatron-core", overlap_tensor=0.7, attention_hopper=0.78),
        Software(
            "fsdp-eager", passes=2.0, plain_passes=1.0, kernels=45, selective="half",
            weight_bytes=4, optimizer_bytes=8, attention_ampere=0.65, attention_hopper=0.45,
            score_bytes=12, gathered_inputs=True, received_buffers=2,
        ),
        Software(
            "fsdp-compile", kernels=20, selective="half", weight_bytes=4, optimizer_bytes=8,
            attention_hopper=0.55, score_bytes=12, lean=True, gathered_inputs=True,
            received_buffers=2,
        ),
        Software(
            "ridgeline", launch=0.0, lean=True, zero_bubble=True, fused_dropout=False,
            score_bytes=4, split_experts=True, deduplicated=False,
        ),
    )
}  # fmt: skip


def software_named(text: str) -> Software:
    """The profile of a name, with what is set beside it: `fsdp-eager reduce_bytes=2`."""
    name, *settings = text.replace(",", " ").split() or [""]
    if name not in PROFILES:
        raise BadValueError(
            f"there is no software profile {name!r}", help=f"take one of {', '.join(PROFILES)}"
        )
    return replace(PROFILES[name], **dict(map(_setting, settings)))


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SETTINGS: dict[str, type] = {
    each.name: type(each.default) for each in fields(Software) if each.name != "name"
}


def _setting(word: str) -> tuple[str, Any]:
    """A field of a profile and its value, of `field=value`."""
    name, found, value = word.partition("=")
    if name not in _SETTINGS or not found:
        near = difflib.get_close_matches(name, _SETTINGS, 1, 0.0)[0]
        raise BadValueError(
            f"{word!r} is no setting of a software profile",
            help=f"the nearest is {near}={getattr(PROFILES['ridgeline'], near)}; all are in "
            "ridgeline/planner/software.py",
        )
    kind = _SETTINGS[name]
    try:
        if kind is bool:
            return name, _TRUTH[value.lower()]
        if kind is str:
            return name, value
        number = float(value)
        if not 0 <= number < math.inf:
            raise ValueError
        return name, int(number) if kind is int and number.is_integer() else number
    except (KeyError, ValueError):
        raise BadValueError(
            f"{name} is {value!r}, expected {'yes or no' if kind is bool else 'a number'}",
            help=f"such as {name}={getattr(PROFILES['ridgeline'], name)}",
        ) from None
