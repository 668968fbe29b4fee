"""Helpers over the parameters of a model, and over sequences, with torch.nn.utils' names."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.nn.utils import parametrizations, parametrize, rnn
from ridgeline.nn.utils.fusing import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
    skip_init,
)
from ridgeline.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from ridgeline.nn.utils.reparametrized import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from ridgeline.nn.utils.tuples import (  # torch has them in nn.modules.utils
    _list_with_default as _list_with_default,
    _ntuple as _ntuple,
    _pair as _pair,
    _quadruple as _quadruple,
    _reverse_repeat_tuple as _reverse_repeat_tuple,
    _single as _single,
    _triple as _triple,
)
from ridgeline.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from ridgeline.reference import describe as _describe

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm",
    "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "vector_to_parameters",
    "weight_norm",
]  # fmt: skip
_describe("nn.utils", {name: globals()[name] for name in __all__})
clip_grad_norm = clip_grad_norm_  # as it was called of old
__getattr__ = _unknown(__name__)
