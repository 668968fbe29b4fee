"""Parametrized weights against torch's: values, state, copies, removal."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.nn.utils import parametrizations, parametrize

torch = pytest.importorskip("torch")


class Symmetric(nn.Module):
    def forward(self, matrix):
        return matrix.triu() + matrix.triu(1).transpose(-1, -2)

    def right_inverse(self, matrix):
        return matrix.triu()


class Doubled(nn.Module):
    def forward(self, matrix):
        return matrix * 2


def test_reads_go_through_the_module_and_gradients_to_the_original() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(
        nn.ReLU()
    )
    upper = np.triu(before.numpy())
    np.testing.assert_array_equal(layer.weight.detach().numpy(), 2 * (upper + np.triu(upper, 1).T))
    assert set(layer.state_dict()) == {"bias", "parametrizations.weight.original"}
    layer(rl.ones(1, 3)).sum().backward()
    gradient = layer.parametrizations.weight.original.grad.numpy()
    assert gradient[1, 0] == 0 and gradient[0, 1] == 4
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    weight = layer.weight.detach().numpy()
    assert weight[0, 1] == weight[1, 0]


def test_assigning_sets_the_original() -> None:
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    layer.weight = rl.tensor([[1.0, 2.0], [2.0, 3.0]])
    np.testing.assert_array_equal(layer.weight.detach().numpy(), [[1, 2], [2, 3]])


def test_copies_are_independent() -> None:
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Doubled())
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert parametrize.is_parametrized(other, "weight")
    np.testing.assert_array_equal(other.weight.detach().numpy(), 2 * layer.weight.detach().numpy())
    with pytest.raises(RidgelineError, match="cannot be pickled"):
        pickle.dumps(other)


def test_cached() -> None:
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Doubled())
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_follows_torch(dim: int | None) -> None:
    peer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 2), dim=dim)
    mine = parametrizations.weight_norm(nn.Conv1d(3, 4, 2), dim=dim)
    mine.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    ours, theirs = mine(rl.tensor(x)), peer(torch.tensor(x))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-6)
    ours.sum().backward()
    theirs.sum().backward()
    for name, parameter in mine.named_parameters():
        wanted = peer.get_parameter(name).grad.numpy()
        np.testing.assert_allclose(parameter.grad.numpy(), wanted, atol=1e-5, err_msg=name)


def test_spectral_norm_follows_torch() -> None:
    peer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 4))
    mine = parametrizations.spectral_norm(nn.Linear(3, 4))
    mine.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
    x = np.ones((2, 3), np.float32)
    for _ in range(3):
        ours, theirs = mine(rl.tensor(x)), peer(torch.tensor(x))
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-6)
    mine.eval()
    assert np.linalg.norm(mine.weight.detach().numpy(), 2) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_orthogonal_stays_so(shape: tuple[int, int]) -> None:
    layer = parametrizations.orthogonal(nn.Linear(*shape))
    optimizer = rl.optim.SGD(layer.parameters(), lr=0.5)
    before = layer.weight.detach().numpy().copy()
    for _ in range(2):
        optimizer.zero_grad()
        layer(rl.ones(1, shape[0])).sum().backward()
        optimizer.step()
    weight = layer.weight.detach().numpy()
    assert not np.allclose(weight, before)
    gram = weight @ weight.T if shape[0] > shape[1] else weight.T @ weight
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-5)


def test_mistakes() -> None:
    with pytest.raises(RidgelineError, match="no parameter or buffer"):
        parametrize.register_parametrization(nn.Linear(2, 2), "wieght", Doubled())
    with pytest.raises(ShapeError, match="unsafe=True"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0))
    with pytest.raises(RidgelineError, match="not parametrized"):
        parametrize.remove_parametrizations(nn.Linear(2, 2), "weight")
