"""torchvision's models: its names of weights, its counts, and gradients that reach every weight."""

from __future__ import annotations

import pytest

import ridgeline as rl
from ridgeline.vision import models

# numbers of parameters as torchvision's documentation has them
COUNTS = {
    "resnet18": 11_689_512, "squeezenet1_0": 1_248_424, "squeezenet1_1": 1_235_496,
    "mobilenet_v2": 3_504_872, "mobilenet_v3_large": 5_483_032, "mobilenet_v3_small": 2_542_856,
    "efficientnet_b0": 5_288_548, "convnext_tiny": 28_589_128,
}  # fmt: skip
NAMES = {
    "resnet18": ("layer2.0.downsample.1.running_var", "layer4.1.bn2.num_batches_tracked"),
    "squeezenet1_0": ("features.12.expand3x3.bias", "classifier.1.weight"),
    "squeezenet1_1": ("features.12.expand3x3.bias", "features.9.squeeze.weight"),
    "mobilenet_v2": ("features.1.conv.0.0.weight", "features.18.1.weight"),
    "mobilenet_v3_large": ("features.4.block.2.fc1.bias", "classifier.3.bias"),
    "mobilenet_v3_small": ("features.1.block.1.fc2.weight", "features.12.0.weight"),
    "efficientnet_b0": ("features.2.0.block.2.fc1.weight", "features.8.0.weight"),
    "convnext_tiny": ("features.0.1.weight", "features.2.1.bias", "features.7.2.layer_scale"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_weights_have_torchvisions_names_and_numbers(name: str) -> None:
    net = models.get_model(name)
    assert sum(p.numel() for p in net.parameters()) == COUNTS[name]
    assert set(NAMES[name]) <= net.state_dict().keys()


@pytest.mark.parametrize("way", ["deferred", "eager", "jit"])
def test_gradients_reach_every_weight(way: str) -> None:
    rl.manual_seed(0)
    net = models.VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=4)
    rl.nn.init.normal_(net.heads.head.weight)
    x = rl.randn(2, 3, 16, 16)

    def step(x: rl.Tensor) -> rl.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        return loss

    if way == "eager":
        with rl.eager():
            step(x)
    else:
        (rl.jit(step) if way == "jit" else step)(x)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum().item() > 0, name


def test_small_networks_give_scores_and_weights_are_not_fetched() -> None:
    net = models.mobilenet_v3_small(num_classes=7).eval()
    with rl.no_grad(), rl.config.override(tier="interpreter"):
        assert net(rl.randn(1, 3, 32, 32)).shape == (1, 7)
    assert "resnet50" in models.list_models()
    with pytest.raises(rl.RidgelineError, match="weights are not fetched"):
        models.resnet50(weights=models.ResNet50_Weights.DEFAULT)
    with pytest.raises(rl.RidgelineError, match="there is no model"):
        models.get_model("resnet19")
