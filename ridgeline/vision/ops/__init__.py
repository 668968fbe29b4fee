"""torchvision.ops: boxes, regions of feature maps, and layers that vision models share."""

from ridgeline.module_paths import unknown as _unknown
from ridgeline.vision.ops import boxes, misc, regions
from ridgeline.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from ridgeline.vision.ops.losses import (
    complete_box_iou_loss,
    distance_box_iou_loss,
    generalized_box_iou_loss,
    sigmoid_focal_loss,
)
from ridgeline.vision.ops.misc import (
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    ConvNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
    StochasticDepth,
    drop_block2d,
    stochastic_depth,
)
from ridgeline.vision.ops.regions import RoIAlign, RoIPool, roi_align, roi_pool

__all__ = [
    "MLP", "Conv2dNormActivation", "Conv3dNormActivation", "ConvNormActivation",
    "FrozenBatchNorm2d", "Permute", "RoIAlign", "RoIPool", "SqueezeExcitation", "StochasticDepth",
    "batched_nms", "box_area", "box_convert", "box_iou", "boxes", "clip_boxes_to_image",
    "complete_box_iou", "complete_box_iou_loss", "distance_box_iou", "distance_box_iou_loss",
    "drop_block2d", "generalized_box_iou", "generalized_box_iou_loss", "masks_to_boxes", "misc",
    "nms", "regions", "remove_small_boxes", "roi_align", "roi_pool", "sigmoid_focal_loss",
    "stochastic_depth",
]  # fmt: skip
__getattr__ = _unknown(__name__)
