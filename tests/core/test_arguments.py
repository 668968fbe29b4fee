"""Arguments of the wrong kind: named, never left to Python's or NumPy's own errors."""

from __future__ import annotations

import pytest

import ridgeline as rl

X = rl.zeros(2, 3)


@pytest.mark.parametrize("call, message", [
    (lambda: X.topk("a"), "topk needs an int for 'k', got str 'a'"),
    (lambda: X.topk(1.5), "topk needs an int for 'k', got float"),
    (lambda: X.roll(X), "roll needs an int or a list of ints for 'shifts', got a tensor"),
    (lambda: rl.cat(X), "cat needs a list of tensors for 'tensors', got a tensor"),
    (lambda: rl.stack([X, 1]), "stack needs a list of tensors"),
    (lambda: X.repeat_interleave([2]), "needs an int or a tensor for 'repeats', got a list of 1"),
    (lambda: X.clone().masked_scatter_(1, X), "needs a tensor for 'mask', got int 1"),
    (lambda: X.diagonal("a"), "diagonal needs an int for 'offset'"),
    (lambda: rl.full("ab", 1), "size"),
    (lambda: rl.meshgrid(1, 2), "meshgrid needs tensors, got int"),
    (lambda: X.histc(X), "histc needs an int for 'bins'"),
    (lambda: rl.zeros(()).split(1), "at least one axis"),
    (lambda: X.tile(-1), "at least 0"),
])  # fmt: skip
def test_the_argument_is_named(call, message: str) -> None:
    with pytest.raises(rl.RidgelineError, match=message):
        call()


def test_a_call_with_too_few_arguments_is_pythons_to_explain() -> None:
    with pytest.raises(TypeError, match="topk"):
        X.topk()
