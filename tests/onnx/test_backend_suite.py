"""The tests inside the package `onnx`: a sample of them here, all of them in the long form."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx.backend.base as base
import onnx.backend.test as backend_test
import pytest

from ridgeline.onnx.backend import prepare

# What no other implementation computes either: numbers of NumPy's own generator, a result that
# was rounded to half precision between its steps, one that is nearer to zero than what is expected,
# and a comparison that fails for any list with a number in it.
OTHER_RANDOM_NUMBERS = {
    "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded",
    "test_bernoulli_expanded", "test_bernoulli_seed", "test_bernoulli_seed_expanded",
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}  # fmt: skip
OTHER_ROUNDING = {
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded", "test_dft_inverse",
    "test_dft_inverse_opset19",
}  # fmt: skip
NOT_COMPARABLE = {"test_loop16_seq_none"}
EXPECTED = OTHER_RANDOM_NUMBERS | OTHER_ROUNDING | NOT_COMPARABLE


class _Rep(base.BackendRep):  # type: ignore[misc]
    def __init__(self, run: Callable[[list[Any]], list[Any]]) -> None:
        self.run_model = run

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        return self.run_model(arrays)


class _Backend(base.Backend):  # type: ignore[misc]
    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> _Rep:
        return _Rep(prepare(model.SerializeToString()))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


@cache
def cases() -> list[tuple[str, Callable[..., Any]]]:
    """All tests that fetch nothing, by name."""
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite = backend_test.BackendTest(_Backend, __name__)
    return [
        (name.removesuffix("_cpu"), by_name[name].func)
        for group, by_name in suite._test_items.items()
        if not group.startswith("Real")
        for name in sorted(by_name)
        if name.endswith("_cpu")
    ]


def failures(chosen: list[tuple[str, Callable[..., Any]]]) -> dict[str, str]:
    found = {}
    for name, function in chosen:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                function(None)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]
    return {name: why for name, why in found.items() if name not in EXPECTED}


def test_a_sample_of_the_suite() -> None:
    assert failures(cases()[::7]) == {}


@pytest.mark.slow
def test_the_whole_suite() -> None:
    assert len(cases()) >= 2000
    assert failures(cases()) == {}
