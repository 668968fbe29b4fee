"""Transforms beside torch's: values, inverses, stretches, shapes; and transforms onto sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl

LIBRARIES = (rl, torch)


def transforms(lib: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Transforms with the shape of an argument."""
    d = lib.distributions
    affine, exp = d.AffineTransform(0.5, 2.0), d.ExpTransform()
    normal = d.Normal(*(lib.tensor(v, dtype=lib.float64) for v in (0.0, 1.5)))
    stick, corr = d.StickBreakingTransform(), d.CorrCholeskyTransform()
    return {
        "stick": (stick, (4, 3)), "corr": (corr, (2, 6)), "corr of two": (corr, (1,)),
        "independent": (d.IndependentTransform(exp, 1), (4, 3)),
        "reshape": (d.ReshapeTransform((3, 2), (6,)), (4, 3, 2)),
        "cat": (d.CatTransform([exp, affine], dim=-1, lengths=[2, 1]), (4, 3)),
        "cat of rows": (d.CatTransform([exp, affine], dim=0, lengths=[3, 1]), (4, 3)),
        "stack": (d.StackTransform([exp, affine, exp], dim=-1), (4, 3)),
        "cumulative": (d.CumulativeDistributionTransform(normal), (4, 3)),
        "composed": (d.ComposeTransform([affine, stick]), (4, 3)),
        "reshaped": (d.ComposeTransform([d.ReshapeTransform((3, 2), (6,)), corr]), (5, 3, 2)),
        "inverse": (d.ComposeTransform([exp, d.ReshapeTransform((3,), (3, 1))]), (4, 3)),
        "softmax": (d.SoftmaxTransform(), (4, 3)), "lower": (d.LowerCholeskyTransform(), (2, 3, 3)),
        "definite": (d.PositiveDefiniteTransform(), (2, 3, 3)),
    }  # fmt: skip


WITHOUT_STRETCH = ("softmax", "lower", "definite")


def argument(lib: Any, shape: tuple[int, ...]) -> Any:
    values = np.random.default_rng(0).normal(size=shape)
    return lib.tensor(values.tolist(), dtype=lib.float64)


@pytest.mark.parametrize("name", transforms(torch))
def test_values_inverses_and_stretches_are_torchs(name: str) -> None:
    def found(lib: Any) -> list[Any]:
        transform, shape = transforms(lib)[name]
        x = argument(lib, shape)
        y = transform(x)
        back = transform.inv(y)
        stretch = [] if name in WITHOUT_STRETCH else [transform.log_abs_det_jacobian(x, y)]
        return [y, back, *stretch]

    for ours, theirs in zip(*map(found, LIBRARIES), strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", transforms(torch))
def test_shapes_and_sets_are_torchs(name: str) -> None:
    def found(lib: Any) -> list[Any]:
        transform, shape = transforms(lib)[name]
        forward = transform.forward_shape(lib.Size(shape))
        back = transform.inverse_shape(forward)
        return [
            tuple(forward), tuple(back), transform.domain.event_dim, transform.codomain.event_dim,
            bool(transform.codomain.check(transform(argument(lib, shape))).all()),
        ]  # fmt: skip

    assert found(rl) == found(torch)


def test_transformed_laws_are_torchs() -> None:
    def found(lib: Any) -> list[Any]:
        d = lib.distributions
        loc = argument(lib, (4, 3))
        base = d.Normal(loc, lib.ones(4, 3, dtype=lib.float64))
        laws = [
            d.TransformedDistribution(base, d.StickBreakingTransform()),
            d.TransformedDistribution(base, [d.ExpTransform(), d.ReshapeTransform((3,), (3, 1))]),
            d.TransformedDistribution(base, d.CorrCholeskyTransform()),
            d.TransformedDistribution(d.Independent(base, 1), d.AffineTransform(1.0, 2.0)),
        ]
        values = [law.transforms[0](loc * 0.5) for law in laws]
        values[1] = values[1].unsqueeze(-1)
        shapes = [(tuple(law.batch_shape), tuple(law.event_shape)) for law in laws]
        drawn = [tuple(law.sample((2,)).shape) for law in laws]
        densities = [law.log_prob(value).numpy() for law, value in zip(laws, values, strict=True)]
        return [shapes, drawn, *densities]

    ours, theirs = map(found, LIBRARIES)
    assert ours[:2] == theirs[:2]
    for mine, wanted in zip(ours[2:], theirs[2:], strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9)


def sets(lib: Any) -> list[Any]:
    c = lib.distributions.constraints
    return [
        c.real, c.positive, c.nonnegative, c.greater_than(2.0), c.less_than(1.0), c.unit_interval,
        c.interval(-1.0, 3.0), c.half_open_interval(0.0, 2.0), c.simplex, c.corr_cholesky,
        c.real_vector, c.independent(c.positive, 1), c.lower_cholesky, c.positive_definite,
        c.stack([c.positive, c.real, c.unit_interval], -1), c.cat([c.positive, c.real], -1, [2, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("index", range(len(sets(torch))))
def test_transforms_onto_sets_are_torchs(registry: str, index: int) -> None:
    def found(lib: Any) -> Any:
        onto = getattr(lib.distributions, registry)(sets(lib)[index])
        shape = (2, 3, 3) if onto.domain.event_dim == 2 else (2, 3)
        y = onto(argument(lib, shape))
        assert bool(sets(lib)[index].check(y).all())
        return y.numpy()

    try:
        wanted = found(torch)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="no transform onto"):
            found(rl)
        return
    np.testing.assert_allclose(found(rl), wanted, rtol=1e-9)


def test_a_set_of_ones_own() -> None:
    constraints = rl.distributions.constraints
    even = constraints.Constraint("Even()", lambda x: x % 2 == 0, is_discrete=True)
    with pytest.raises(NotImplementedError, match="Even"):
        rl.distributions.biject_to(even)
    rl.distributions.biject_to.register(even, lambda _: rl.distributions.ExpTransform())
    assert isinstance(rl.distributions.biject_to(even), rl.distributions.ExpTransform)


def test_what_lies_outside_of_sets() -> None:
    def found(lib: Any) -> list[bool]:
        c = lib.distributions.constraints
        eye = lib.eye(3, dtype=lib.float64)
        upper, negative = eye + 1, -eye
        sheared = eye.clone()
        sheared[0, 1] = 0.5
        matrices = [eye, upper, negative, sheared]
        kinds = [
            c.lower_triangular, c.lower_cholesky, c.corr_cholesky, c.symmetric, c.square,
            c.positive_definite, c.positive_semidefinite,
        ]  # fmt: skip
        return [bool(kind.check(matrix)) for kind in kinds for matrix in matrices]

    assert found(rl) == found(torch)


def test_numbers_that_fill_no_triangle() -> None:
    with pytest.raises(rl.RidgelineError, match="triangle"):
        rl.distributions.CorrCholeskyTransform()(rl.zeros(4))
    with pytest.raises(rl.RidgelineError, match="does not end in"):
        rl.distributions.ReshapeTransform((2,), (1, 2))(rl.zeros(3))
