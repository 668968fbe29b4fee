"""torch.nn.functional's names, for the functions that exist here.

Most are those of the one table in `ridgeline/functions`; those that write to their arguments or
call a function that they are given are compositions of tensors, in this folder. A name that torch
has and we do not is an AttributeError that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from ridgeline.module_paths import unknown
from ridgeline.nn.functional import attention, embeddings, heads, losses, normalization
from ridgeline.nn.functional.in_place import PLACES, with_inplace
from ridgeline.nn.functional.table import OWN
from ridgeline.record.recorder import taped
from ridgeline.reference import describe
from ridgeline.tensors.arguments import guarded
from ridgeline.tensors.autocast import autocasting
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor

_MODULES = (attention, embeddings, heads, losses, normalization)

NAMES = frozenset((
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid",
    "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "elu", "embedding", "embedding_bag",
    "feature_alpha_dropout", "fold", "fractional_max_pool2d", "fractional_max_pool3d",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "grouped_mm", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss",
    "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "linear_cross_entropy", "local_response_norm", "log_softmax",
    "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d",
    "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6",
    "rms_norm", "rrelu", "scaled_dot_product_attention", "selu", "sigmoid", "silu",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink",
    "softsign", "tanh", "tanhshrink", "threshold", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
))  # fmt: skip


def composed() -> dict[str, Callable[..., Tensor]]:
    """The functions of the modules of this folder."""
    return {name: vars(module)[name] for module in _MODULES for name in NAMES & vars(module).keys()}


_unknown: Callable[[str], Callable[..., Tensor]] = unknown(__name__)


@cache
def _find(name: str) -> Callable[..., Tensor]:
    """The composition of a name if there is one, else the table's function."""
    found = composed().get(name)
    if found is None:
        found = OWN.get(name) or FUNCTIONS[name]
    else:
        found = taped(autocasting(name, guarded(found)))
    describe("nn.functional", {name: found})
    if name in PLACES:
        found = taped(with_inplace(found, PLACES[name]))
    if found is not FUNCTIONS.get(name):
        found.__module__ = __name__  # pickles look for it there
    return found


@cache
def _in_place(name: str) -> Callable[..., Tensor]:
    """The form that writes its result into its input, such as `relu_`."""
    found = _find(name)

    @wraps(found)
    def written(*args: Any, **kwargs: Any) -> Tensor:
        return found(*args, inplace=True, **kwargs)

    written.__name__ = written.__qualname__ = f"{name}_"
    written.__module__ = __name__
    return written


def __getattr__(name: str) -> Callable[..., Tensor]:
    if name.endswith("_") and name[:-1] in PLACES:
        return _in_place(name[:-1])
    if name not in NAMES:
        return _unknown(name)
    found = globals()[name] = _find(name)  # the next one who asks finds it there
    return found


def __dir__() -> list[str]:
    return sorted(NAMES)
