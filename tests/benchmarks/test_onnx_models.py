"""The benchmark of ONNX files: inputs, differences, and one model from end to end."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ridgeline as rl
from benchmarks import onnx_models
from ridgeline import nn

pytest.importorskip("onnxruntime")


def test_inputs_have_the_sizes_that_are_declared_and_used() -> None:
    ports = [
        SimpleNamespace(name="x", shape=["n", 3, "h", "w"], type="tensor(float)"),
        SimpleNamespace(name="sr", shape=[], type="tensor(int64)"),
        SimpleNamespace(name="other", shape=[None, 7], type="tensor(double)"),
    ]
    made = onnx_models.arrays(Path("ch_rec.onnx"), ports)
    assert made["x"].shape == (1, 3, 48, 320) and made["x"].dtype == np.float32
    assert made["sr"] == 16000 and made["sr"].dtype == np.int64
    assert made["other"].shape == (1, 7) and made["other"].dtype == np.float64


def test_the_difference_of_results() -> None:
    ones = np.ones((2, 2))
    assert onnx_models.apart([ones], [ones]) == 0
    assert onnx_models.apart([ones], [ones * 3]) == 0.5
    assert onnx_models.apart([ones], [np.ones(4)]) == math.inf


def test_a_model_is_measured_beside_onnx_runtime(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), rl.randn(3, 4)
    path = tmp_path / "mlp.onnx"
    rl.onnx.save(model, path, x)
    threads = rl.get_num_threads()
    try:
        row = onnx_models.measured(path, [1], 2)
    finally:
        rl.set_num_threads(threads)
    assert row["error"] < 1e-6 and row["first_s"] > 0
    assert len(onnx_models.ratios(row, "1")) == 3
    assert list(onnx_models.files([tmp_path])) == [path]
