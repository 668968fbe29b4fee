"""Losses as layers; each holds its settings and calls the function of the same meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.nn import functional
from ridgeline.nn.applied import Applied
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.tensors.tensor import Tensor


class _Loss(Applied):
    """A loss of two tensors with settings that are set once, and `weight` as a buffer."""

    inputs = "input target"

    def extra_repr(self) -> str:
        return ""


class L1Loss(_Loss):
    """|x - y|."""

    function = "l1_loss"
    reduction: str = "mean"


class MSELoss(_Loss):
    """(x - y)²."""

    function = "mse_loss"
    reduction: str = "mean"


class CrossEntropyLoss(_Loss):
    """-log softmax(x)[y]; y are classes, or probabilities of all classes."""

    function = "cross_entropy"
    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0


class NLLLoss(_Loss):
    """-x[y], where x are log-probabilities."""

    function = "nll_loss"
    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"


class BCELoss(_Loss):
    """The cross-entropy of probabilities x and targets y in 0…1."""

    function = "binary_cross_entropy"
    weight: Tensor | None = None
    reduction: str = "mean"


class BCEWithLogitsLoss(_Loss):
    """The cross-entropy of sigmoid(x) and targets y in 0…1, computed without overflow."""

    function = "binary_cross_entropy_with_logits"
    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above."""

    function = "smooth_l1_loss"
    reduction: str = "mean"
    beta: float = 1.0


class HuberLoss(_Loss):
    """SmoothL1Loss times delta."""

    function = "huber_loss"
    reduction: str = "mean"
    delta: float = 1.0


class KLDivLoss(_Loss):
    """y * (log y - x), where x are log-probabilities."""

    function = "kl_div"
    reduction: str = "mean"
    log_target: bool = False


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts y under a Poisson law of rate x, or exp(x)."""

    function = "poisson_nll_loss"
    inputs = "log_input target"
    log_input: bool = True
    full: bool = False
    eps: float = 1e-08
    reduction: str = "mean"


class GaussianNLLLoss(_Loss, kw_only=True):
    """The negative log-likelihood of y under a normal law of mean x and a given variance."""

    function = "gaussian_nll_loss"
    inputs = "input target var"
    full: bool = False
    eps: float = 1e-06
    reduction: str = "mean"


class SoftMarginLoss(_Loss):
    """log(1 + exp(-y x)) for y of ±1."""

    function = "soft_margin_loss"
    reduction: str = "mean"


class HingeEmbeddingLoss(_Loss):
    """x where y is 1, max(0, margin - x) where y is -1."""

    function = "hinge_embedding_loss"
    margin: float = 1.0
    reduction: str = "mean"


class MarginRankingLoss(_Loss):
    """max(0, -y (x1 - x2) + margin)."""

    function = "margin_ranking_loss"
    inputs = "input1 input2 target"
    margin: float = 0.0
    reduction: str = "mean"


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where y is 1, max(0, cos - margin) where y is -1."""

    function = "cosine_embedding_loss"
    inputs = "input1 input2 target"
    margin: float = 0.0
    reduction: str = "mean"


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    function = "triplet_margin_loss"
    inputs = "anchor positive negative"
    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-06
    swap: bool = False
    reduction: str = "mean"


class MultiMarginLoss(_Loss):
    """Mean over the other classes of max(0, margin - x[y] + x[i])^p."""

    function = "multi_margin_loss"
    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    reduction: str = "mean"


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of the cross-entropy of sigmoid(x)."""

    function = "multilabel_soft_margin_loss"
    weight: Tensor | None = None
    reduction: str = "mean"


class MultiLabelMarginLoss(_Loss):
    """The hinge loss between the listed classes and all others."""

    function = "multilabel_margin_loss"
    reduction: str = "mean"


class CTCLoss(_Loss):
    """The likelihood of a sequence of labels under all its alignments with longer scores."""

    function = "ctc_loss"
    inputs = "log_probs targets input_lengths target_lengths"
    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False


class TripletMarginWithDistanceLoss(_Loss, kw_only=True):
    """The triplet loss under any distance."""

    function = "triplet_margin_with_distance_loss"
    inputs = "anchor positive negative"
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"


class LinearCrossEntropyLoss(Module):
    """A linear layer and the cross-entropy of its scores, as one."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: dtypes.DType | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.num_classes = in_features, num_classes
        self.out_features, self.reduction = tuple(out_features), reduction
        self.ignore_index = -100 if ignore_index is None else ignore_index
        self.label_smoothing = label_smoothing
        scores = num_classes * math.prod(self.out_features)
        self.linear = Linear(in_features, scores, bias, device, dtype)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        scores = self.linear(input)
        lead = tuple(input.shape[:-1])
        return functional.cross_entropy(
            scores.reshape((*lead, self.num_classes, *self.out_features)),
            target,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
        )
