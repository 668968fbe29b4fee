"""Wrong input: errors with codes, both shapes, where operands were made, and what to do."""

from __future__ import annotations

import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.errors import AxisError, DTypeError, RidgelineError, ShapeError

X = rl.ones(2, 4)
WRONG = {
    "broadcast": (ShapeError, lambda: X + rl.ones(3), r"\[2, 4\] and \[3\]"),
    "matmul": (ShapeError, lambda: X @ X, "4 columns on the left, 2 rows"),
    "axis": (AxisError, lambda: X.sum(5), "axis 5 does not exist"),
    "axis_type": (AxisError, lambda: X.sum("a"), "axis"),
    "mean": (DTypeError, lambda: rl.zeros(2, dtype=rl.int64).mean(), "floating"),
    "reshape": (ShapeError, lambda: X.reshape(3, 3), "8 elements"),
    "infer": (ShapeError, lambda: X.view(-1, -1), "only one size"),
    "index": (RidgelineError, lambda: X[5], "outside axis 0"),
    "cat": (ShapeError, lambda: rl.cat([X, rl.ones(3, 3)]), "cannot join"),
    "ragged": (RidgelineError, lambda: rl.tensor([[1, 2], [3]]), "equal lengths"),
    "text": (DTypeError, lambda: rl.tensor("abc"), "no element type"),
    "truth": (ShapeError, lambda: bool(X), "any"),
    "item": (ShapeError, lambda: X.item(), "exactly one element"),
    "conv": (ShapeError, lambda: rl.conv2d(rl.ones(1, 3, 4, 4), rl.ones(2, 4, 3, 3)), "3 channels"),
    "kernel": (ShapeError, lambda: rl.conv2d(rl.ones(1, 1, 2, 2), rl.ones(1, 1, 3, 3)), "larger"),
    "target": (DTypeError, lambda: rl.cross_entropy(X, rl.ones(2)), "class indices"),
    "list": (DTypeError, lambda: rl.exp([1, 2]), "needs a tensor for 'input'"),
    "where": (DTypeError, lambda: rl.where(X > 0, X, "a"), "got str"),
    "device": (RidgelineError, lambda: X.to("tpu"), "no device"),
    "negative": (ShapeError, lambda: rl.zeros(-1), "negative"),
    "einsum": (ShapeError, lambda: rl.einsum("ij,jk", X, X), "sizes 4 and 2"),
    "expand": (ShapeError, lambda: rl.ones(2, 3).expand(4, 5), "only size 1"),
    "permute": (AxisError, lambda: X.permute(0, 0), "every one of the 2 axes"),
    "bits": (DTypeError, lambda: X & X, "not defined for float32"),
    "bool_sub": (DTypeError, lambda: (X > 0) - (X > 0), "bool"),
    "types": (DTypeError, lambda: X @ rl.ones(4, 2, dtype=rl.float64), "one element type"),
    "length": (ShapeError, lambda: len(rl.tensor(1.0)), "no length"),
    "iterate": (ShapeError, lambda: list(rl.tensor(1.0)), "iterated"),
    "pool": (ShapeError, lambda: rl.avg_pool2d(rl.ones(1, 1, 2, 2), 3), "does not fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name):
    kind, program, message = WRONG[name]
    with pytest.raises(kind, match=message) as caught:
        program()
    assert caught.value.code.startswith("RL")


def test_an_error_names_operands_lines_and_the_module():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(9, 3)))
    with pytest.raises(ShapeError) as caught:
        model(X)
    text = str(caught.value)
    assert text.startswith("RL0101: ")
    assert "[2, 8]" in text and "[3, 9]" in text
    assert "in module 1.1" in text
    assert text.count("test_errors.py:") >= 2, "where each operand was made"
    assert "help:" in text


def test_errors_are_raised_where_the_op_is_recorded():
    x = rl.ones(2)
    with pytest.raises(ShapeError) as caught:
        x + rl.ones(3)
    frames = [entry.path.name for entry in caught.traceback]
    assert frames[0] == "test_errors.py"


def test_python_reports_wrong_calls():
    with pytest.raises(TypeError, match="foo"):
        X.softmax(0, foo=1)
    with pytest.raises(TypeError):
        X + "a"
    with pytest.raises(AttributeError):
        X.nonsense  # noqa: B018
