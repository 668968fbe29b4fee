"""Losses as layers; each holds its settings and calls the function of the same meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.nn import functional
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.tensors.tensor import Tensor


class _Loss(Module):
    """A loss of two tensors with settings that are set once, and `weight` as a buffer."""

    function: str

    def __init__(self, reduction: str = "mean", **settings: Any) -> None:
        super().__init__()
        self.settings = (*settings, "reduction")
        for name, value in settings.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self.reduction = reduction

    def forward(self, *operands: Tensor) -> Tensor:
        apply = getattr(functional, self.function)
        result: Tensor = apply(*operands, **{name: getattr(self, name) for name in self.settings})
        return result


class L1Loss(_Loss):
    """|x - y|."""

    function = "l1_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class MSELoss(_Loss):
    """(x - y)²."""

    function = "mse_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class CrossEntropyLoss(_Loss):
    """-log softmax(x)[y]; y are classes, or probabilities of all classes."""

    function = "cross_entropy"

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            reduction, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing
        )


class NLLLoss(_Loss):
    """-x[y], where x are log-probabilities."""

    function = "nll_loss"

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index)


class BCELoss(_Loss):
    """The cross-entropy of probabilities x and targets y in 0…1."""

    function = "binary_cross_entropy"

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class BCEWithLogitsLoss(_Loss):
    """The cross-entropy of sigmoid(x) and targets y in 0…1, computed without overflow."""

    function = "binary_cross_entropy_with_logits"

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above."""

    function = "smooth_l1_loss"

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


class HuberLoss(_Loss):
    """SmoothL1Loss times delta."""

    function = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction, delta=delta)


class KLDivLoss(_Loss):
    """y * (log y - x), where x are log-probabilities."""

    function = "kl_div"

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction, log_target=log_target)


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts y under a Poisson law of rate x, or exp(x)."""

    function = "poisson_nll_loss"

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, log_input=log_input, full=full, eps=eps)


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of y under a normal law of mean x and a given variance."""

    function = "gaussian_nll_loss"

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction, full=full, eps=eps)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-y x)) for y of ±1."""

    function = "soft_margin_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class HingeEmbeddingLoss(_Loss):
    """x where y is 1, max(0, margin - x) where y is -1."""

    function = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class MarginRankingLoss(_Loss):
    """max(0, -y (x1 - x2) + margin)."""

    function = "margin_ranking_loss"

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where y is 1, max(0, cos - margin) where y is -1."""

    function = "cosine_embedding_loss"

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    function = "triplet_margin_loss"

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, margin=margin, p=p, eps=eps, swap=swap)


class MultiMarginLoss(_Loss):
    """Mean over the other classes of max(0, margin - x[y] + x[i])^p."""

    function = "multi_margin_loss"

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, p=p, margin=margin, weight=weight)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of the cross-entropy of sigmoid(x)."""

    function = "multilabel_soft_margin_loss"

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class MultiLabelMarginLoss(_Loss):
    """The hinge loss between the listed classes and all others."""

    function = "multilabel_margin_loss"

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class CTCLoss(_Loss):
    """The likelihood of a sequence of labels under all its alignments with longer scores."""

    function = "ctc_loss"

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction, blank=blank, zero_infinity=zero_infinity)


class TripletMarginWithDistanceLoss(Module):
    """The triplet loss under any distance."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.distance_function, self.margin = distance_function, margin
        self.swap, self.reduction = swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functional.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


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
