"""Probability distributions with torch's names: sampling, densities, moments, divergences."""

from ridgeline.distributions import constraints, kl, transforms
from ridgeline.distributions.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    Weibull,
)
from ridgeline.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from ridgeline.distributions.distribution import Distribution
from ridgeline.distributions.gammas import (
    Beta,
    Chi2,
    Dirichlet,
    FisherSnedecor,
    Gamma,
    InverseGamma,
    StudentT,
)
from ridgeline.distributions.joint import (
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    TransformedDistribution,
)
from ridgeline.distributions.kl import kl_divergence, register_kl
from ridgeline.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from ridgeline.module_paths import unknown as _unknown
from ridgeline.reference import describe as _describe

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential",
    "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Laplace", "LogNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "SigmoidTransform", "SoftplusTransform", "StudentT",
    "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "Weibull", "constraints",
    "identity_transform", "kl", "kl_divergence", "register_kl", "transforms",
]  # fmt: skip
_describe("distributions", {name: globals()[name] for name in __all__})
__getattr__ = _unknown(__name__)
