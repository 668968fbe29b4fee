"""torch.nn.functional's names, for the functions that exist here.

Most are those of the one table in `ridgeline/functions`; the rest are compositions of them, in
this folder. A name that torch has and we do not is an AttributeError that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ridgeline.nn.functional import (
    activations,
    attention,
    dropouts,
    embeddings,
    fractional,
    losses,
    normalization,
    resizing,
    shuffles,
    windows,
)
from ridgeline.nn.functional.in_place import PLACES, with_inplace
from ridgeline.tensors.arguments import guarded
from ridgeline.tensors.autocast import autocasting
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor

_MODULES = (
    activations, attention, dropouts, embeddings, fractional, losses, normalization, resizing,
    shuffles, windows,
)  # fmt: skip

NAMES = frozenset((
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid",
    "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "elu", "embedding", "embedding_bag",
    "feature_alpha_dropout", "fold", "fractional_max_pool2d", "fractional_max_pool3d",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss",
    "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "linear_cross_entropy", "local_response_norm", "log_softmax",
    "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d",
    "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6",
    "rms_norm", "rrelu", "scaled_dot_product_attention", "selu", "sigmoid", "silu",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink",
    "softsign", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
))  # fmt: skip


@cache
def _find(name: str) -> Callable[..., Tensor]:
    """The composition of a name if there is one, else the table's function."""
    found = FUNCTIONS.get(name)
    for module in _MODULES:
        if name in vars(module):
            found = autocasting(name, guarded(vars(module)[name]))
    if found is None:
        raise KeyError(name)
    return with_inplace(found, PLACES[name]) if name in PLACES else found


def _known() -> list[str]:
    composed = {name for module in _MODULES for name in vars(module)}
    return sorted(NAMES & (FUNCTIONS.keys() | composed))


def __getattr__(name: str) -> Callable[..., Tensor]:
    if name.endswith("_") and name[:-1] in PLACES:
        return partial(_find(name[:-1]), inplace=True)
    if name not in NAMES:
        raise AttributeError(f"nn.functional.{name} does not exist")
    try:
        return _find(name)
    except KeyError:
        raise AttributeError(f"nn.functional.{name} is not implemented yet") from None


def __dir__() -> list[str]:
    return _known()
