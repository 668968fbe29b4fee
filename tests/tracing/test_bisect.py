"""`jit(f).bisect(x)` blames the pass that was broken, or says that it is none of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from tests.fuzz.faults import Fault, planted

FAULTS = {
    "simplify": Fault("a strided slice starts too early", "graph.passes.canonicalize.movement",
                      "_slice", "attrs.starts, below.steps", "attrs.starts, attrs.steps"),
    "precise_moments": Fault("the mean is that of one element more",
                             "graph.passes.contractions.precise_moments", "_squares",
                             "full_like(total, count))\n    found",
                             "full_like(total, count + 1))\n    found"),
    "schedule": Fault("the last element of a remainder is left out", "loops.steps.nest",
                      "Split._split", "piece(ir.index(whole * factor), rest)",
                      "piece(ir.index(whole * factor), max(rest - 1, 1))"),
    "": Fault("the remainder has the dividend's sign", "codegen.llvm.scalar_ops",
              "ScalarEmitter._float_mod", "self.both(nonzero, differ)", "nonzero"),
}  # fmt: skip


def energy(x: rl.Tensor) -> rl.Tensor:
    tail = (x * 2)[:, ::2][:, 2:]
    rest = rl.remainder(tail - 9, 5)
    weights = rl.softmax(tail / 10, dim=1) * x.var(1, keepdim=True)
    return (weights * x.mean(1, keepdim=True) + rest).cumsum(0)


X = rl.tensor(np.arange(4 * 79, dtype=np.float32).reshape(4, 79) % 17)


def test_a_right_result_is_nobodys_fault(capsys: pytest.CaptureFixture[str]) -> None:
    rl.jit(energy).bisect(X)
    assert "agree" in capsys.readouterr().out


@pytest.mark.parametrize("name", FAULTS)
def test_the_pass_that_errs_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with planted(FAULTS[name]), rl.config.override(cache_max_bytes=0):
        rl.jit(energy).bisect(X)
    said = capsys.readouterr().out
    assert re.search("output 0, element .* instead of", said)
    assert (f"wrong after {name} (ridgeline/" if name else "no more passes ran than") in said


def test_nothing_changes_and_what_is_hoisted_runs_too(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    step = rl.jit(lambda x: model(x) + rl.rand(2, 8, 6, 6))
    x = rl.rand(2, 3, 8, 8)
    rl.manual_seed(5)
    with rl.no_grad():
        step.bisect(x)
        assert "agree" in capsys.readouterr().out
        drawn = step(x).numpy()
        rl.manual_seed(5)
        np.testing.assert_array_equal(step(x).numpy(), drawn)
