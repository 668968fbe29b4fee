"""Models against torch's or NumPy's form of the same computation, with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ridgeline import models, nn, optim
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.models.gcn import GraphConvolution
from ridgeline.models.vgg import VGG
from ridgeline.random import manual_seed
from ridgeline.tensors.tensor import tensor

BATCH_NORM = ("running_mean", "running_var", "weight", "bias")  # in functional.batch_norm's order


@pytest.fixture(autouse=True)
def interpreted() -> Any:
    manual_seed(0)
    with config.override(tier="interpreter"):
        yield


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def weights(module: nn.Module) -> dict[str, Any]:
    """All values, in torch's tensors."""
    return {name: torch.tensor(as_array(t)) for name, t in module.state_dict().items()}


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(as_array(ours), theirs.detach().numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("layers", "count"),
    [(11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)],
)
def test_vgg_has_the_published_size(layers: int, count: int) -> None:
    with nn.deferred():
        model = models.vgg(layers)
    assert sum(p.numel() for p in model.parameters()) == count
    with pytest.raises(RidgelineError, match="not 12"):
        models.vgg(12)


def test_vgg_with_batch_norm() -> None:
    model = VGG((1, 2), 5, batch_norm=True, widths=(4, 6), hidden=8).eval()
    w, x = weights(model), torch.tensor(normal(2, 3, 16, 16))
    images = x
    for conv, norm, pools in ((0, 1, True), (4, 5, False), (7, 8, True)):
        x = F.conv2d(x, w[f"features.{conv}.weight"], w[f"features.{conv}.bias"], padding=1)
        state = (
            w[f"features.{norm}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        x = F.relu(F.batch_norm(x, *state))
        x = F.max_pool2d(x, 2) if pools else x
    x = F.adaptive_avg_pool2d(x, 7).flatten(1)
    for number in (0, 3, 6):
        x = F.linear(x, w[f"classifier.{number}.weight"], w[f"classifier.{number}.bias"])
        x = F.relu(x) if number < 6 else x
    close(model(tensor(images.numpy())), x)


def test_unet() -> None:
    model = models.UNet(2, 3, (4, 6, 8)).eval()
    w, images = weights(model), torch.tensor(normal(2, 2, 8, 12))

    def twice(x: Any, name: str) -> Any:
        for conv, norm in ((0, 1), (3, 4)):
            x = F.conv2d(x, w[f"{name}.{conv}.weight"], padding=1)
            state = (
                w[f"{name}.{norm}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
            )
            x = F.relu(F.batch_norm(x, *state))
        return x

    fine = twice(images, "first")
    middle = twice(F.max_pool2d(fine, 2), "down.0")
    x = twice(F.max_pool2d(middle, 2), "down.1")
    for number, kept in enumerate((middle, fine)):
        grown = F.conv_transpose2d(x, w[f"up.{number}.weight"], w[f"up.{number}.bias"], 2)
        x = twice(torch.cat([kept, grown], 1), f"merge.{number}")
    close(model(tensor(images.numpy())), F.conv2d(x, w["last.weight"], w["last.bias"]))
    with pytest.raises(ShapeError, match="multiples of 4"):
        model(tensor(normal(1, 2, 6, 8)))


def test_gcn_is_the_normalised_adjacency() -> None:
    edges = np.array([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    features, layer = normal(5, 3), GraphConvolution(3, 2)
    adjacency = np.eye(5)
    adjacency[edges[1], edges[0]] = 1
    scale = np.diag(adjacency.sum(1) ** -0.5)
    weight = as_array(layer.linear.weight)
    wanted = scale @ adjacency @ scale @ features @ weight.T
    found = as_array(layer(tensor(features), tensor(edges)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="edges are"):
        layer(tensor(features), tensor(edges.T))


def test_gcn_learns_two_cliques_from_two_labels() -> None:
    cliques = [range(6), range(6, 12)]
    pairs = [(a, b) for c in cliques for a in c for b in c if a != b] + [(0, 6), (6, 0)]
    edges, features = tensor(np.array(pairs).T.copy()), tensor(np.eye(12, dtype=np.float32))
    model = models.GCN((12, 4, 2), dropout=0.0)
    optimizer = optim.Adam(model.parameters(), 0.05)
    for _ in range(40):
        optimizer.zero_grad()
        scores = model(features, edges)[tensor([1, 8])]
        nn.functional.cross_entropy(scores, tensor([0, 1])).backward()
        optimizer.step()
    assert as_array(model(features, edges)).argmax(1).tolist() == [0] * 6 + [1] * 6


def test_vae_loss_is_the_bound() -> None:
    model = models.VAE((6, 5), code=3).eval()
    x = np.random.default_rng(1).uniform(size=(4, 6)).astype(np.float32)
    w, data = weights(model), torch.tensor(x)
    inner = F.relu(F.linear(data, w["encoder.0.0.weight"], w["encoder.0.0.bias"]))
    mean, log_variance = (
        F.linear(inner, w[f"{n}.weight"], w[f"{n}.bias"]) for n in ("mean", "log_variance")
    )
    out = F.relu(F.linear(mean, w["decoder.0.weight"], w["decoder.0.bias"]))
    out = torch.sigmoid(F.linear(out, w["decoder.2.weight"], w["decoder.2.bias"]))
    prior = torch.distributions.Normal(0.0, 1.0)
    own = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    bound = F.binary_cross_entropy(out, data, reduction="sum")
    bound = bound + torch.distributions.kl_divergence(own, prior).sum()
    close(model.loss(tensor(x)), bound / 4)
    close(model.decode(tensor(mean.numpy())), out)


def test_vae_draws_codes_while_training() -> None:
    model, x = models.VAE((6, 5), code=3), tensor(np.full((2, 6), 0.5, np.float32))
    first, second = (as_array(model(x).reconstruction) for _ in range(2))
    assert not np.array_equal(first, second)
    model.loss(x).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_denoising_autoencoder_learns_a_line() -> None:
    data = np.outer(np.linspace(-2, 2, 32), [1, -1, 2, 0.5]).astype(np.float32)
    model = models.DenoisingAutoencoder((4, 8, 1), noise=0.1)
    optimizer = optim.Adam(model.parameters(), 0.03)
    for _ in range(80):
        optimizer.zero_grad()
        model.loss(tensor(data)).backward()
        optimizer.step()
    assert float(model.eval().loss(tensor(data))) < 0.05 * data.var()


def test_gan_losses_train_their_own_side() -> None:
    model = models.GAN(1, noise=4, width=2)
    real = tensor(normal(3, 1, 32, 32))
    assert tuple(model.sample(2).shape) == (2, 1, 32, 32)
    model.discriminator_loss(real).backward()
    assert all(p.grad is None for p in model.generator.parameters())
    assert all(p.grad is not None for p in model.discriminator.parameters())
    model.zero_grad()
    model.generator_loss(3).backward()
    assert all(np.isfinite(as_array(p.grad)).all() for p in model.generator.parameters())


def test_gan_losses_are_cross_entropies() -> None:
    model = models.GAN(1, noise=4, width=2).eval()
    real = tensor(normal(3, 1, 32, 32))
    manual_seed(5)
    made = model.sample(3)
    scores = [torch.tensor(as_array(model.discriminator(images))) for images in (real, made)]
    manual_seed(5)
    wanted = -F.logsigmoid(scores[0]).mean() - F.logsigmoid(-scores[1]).mean()
    close(model.discriminator_loss(real), wanted)
    manual_seed(5)
    close(model.generator_loss(3), -F.logsigmoid(scores[1]).mean())


def test_lstm_goes_on_from_its_state() -> None:
    model = models.LSTMLanguageModel(11, 6, 8).eval()
    text = np.random.default_rng(0).integers(0, 11, (2, 7))
    whole, _ = model(tensor(text))
    first, state = model(tensor(text[:, :4]))
    second, _ = model(tensor(text[:, 4:]), state)
    parts = np.concatenate([as_array(first), as_array(second)], 1)
    np.testing.assert_allclose(parts, as_array(whole), rtol=1e-4, atol=1e-6)
