"""torch.onnx.export's arguments: names, axes that vary, open files, and what is refused."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.errors import BadValueError

onnx = pytest.importorskip("onnx")


def _model() -> nn.Module:
    rl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).eval()


def test_names_and_axes_are_those_that_are_given(tmp_path: Path) -> None:
    model, x = _model(), rl.randn(3, 4)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rl.onnx.export(
            model, x, str(path), input_names=["images"], output_names=["scores"],
            opset_version=11, do_constant_folding=True, export_params=True, verbose=False,
            dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
        )  # fmt: skip
    assert any("opset 18 is written, not 11" in str(one.message) for one in said)
    graph = onnx.load(path).graph
    assert [v.name for v in graph.input] == ["images"]
    assert [v.name for v in graph.output] == ["scores"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    again, more = rl.onnx.load(str(path)), rl.randn(5, 4)
    np.testing.assert_allclose(
        again(more).detach().numpy(), model(more).detach().numpy(), atol=1e-6
    )


def test_a_list_of_axes_and_an_open_file() -> None:
    model, x = _model(), rl.randn(3, 4)
    file = io.BytesIO()
    rl.onnx.export(model, (x,), file, input_names=["x"], dynamic_axes={"x": [0]})
    again = rl.onnx.load(file.getvalue())
    np.testing.assert_allclose(
        again(x[:2]).detach().numpy(), model(x[:2]).detach().numpy(), atol=1e-6
    )


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    model, x = _model(), rl.randn(3, 4)
    with pytest.raises(BadValueError, match="writes a file"):
        rl.onnx.export(model, (x,))
    with pytest.raises(BadValueError, match="output_names has 2 names for 1"):
        rl.onnx.export(model, (x,), tmp_path / "m.onnx", output_names=["a", "b"])
    assert list(tmp_path.iterdir()) == []
