"""Labels that name no class are errors, also where they are not known yet."""

from __future__ import annotations

import math

import pytest

import ridgeline as rl
from ridgeline.errors import IndexRangeError
from ridgeline.nn.functional import cross_entropy, nll_loss


@pytest.mark.parametrize("label", [3, -1])
def test_known_labels_are_checked(label: int) -> None:
    scores = rl.randn(2, 3)
    for loss in (cross_entropy, nll_loss):
        with pytest.raises(IndexRangeError, match=rf"label {label} is not one of the 3 classes"):
            loss(scores, rl.tensor([0, label]))
    cross_entropy(scores, rl.tensor([0, label]), ignore_index=label)


def test_under_jit_they_are_checked_when_the_work_runs() -> None:
    scores = rl.randn(2, 3)
    loss = rl.jit(lambda labels: cross_entropy(scores, labels))
    assert math.isfinite(float(loss(rl.tensor([0, 2]))))
    assert math.isfinite(float(loss(rl.tensor([0, -100]))))
    for label in (3, -1):
        with pytest.raises(IndexRangeError, match=f"label {label}"):
            float(loss(rl.tensor([0, label])))
