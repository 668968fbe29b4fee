"""Operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ridgeline as rl
from ridgeline.config import config
from ridgeline.onnx.backend import as_array

onnxruntime.set_default_logger_severity(4)
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
TREE = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
    "nodes_featureids": [0, 0, 0, 1, 2, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "BRANCH_GT", "LEAF", "LEAF", "LEAF"],
    "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.3, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0, 1, 3, 0, 0, 0], "nodes_falsenodeids": [2, 0, 0, 2, 4, 0, 0, 0],
}  # fmt: skip
LEAVES = [(0, 1), (0, 2), (1, 2), (1, 3), (1, 4)]
WEIGHTS = [0.5, 1.0, 2.0, 0.25, 1.5]
SUPPORT = {
    "coefficients": [1.0, -2.0], "rho": [0.3], "n_supports": 2,
    "kernel_params": [0.5, 1.0, 3.0], "support_vectors": [0.1, 0.2, 0.3, -1.0, 0.5, 2.0],
}  # fmt: skip
CLASSES = {
    "coefficients": [0.5, 1.0, -0.7, 0.2, -1.0, 0.4, 0.9, -0.3, 0.6, -1.1, 0.8, -0.2],
    "rho": [0.1, -0.2, 0.05], "kernel_params": [0.5, 1.0, 3.0], "vectors_per_class": [2, 3, 1],
    "support_vectors": np.random.default_rng(1).standard_normal(18).round(2).tolist(),
    "classlabels_ints": [4, 5, 6],
}  # fmt: skip
PAIR = {
    **CLASSES, "coefficients": [0.5, 1.0, -0.7, 0.2, -1.0, 0.4], "rho": [0.1],
    "vectors_per_class": [4, 2], "classlabels_ints": [0, 1],
}  # fmt: skip
COEFFICIENTS = [1.0, -2.0, 0.5, 0.1, 0.2, 0.3, 1.0, 1.0, 1.0]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "scaler": ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 1.0]}),
    "manhattan": ("Normalizer", {"norm": "L1"}),
    "euclidean": ("Normalizer", {"norm": "L2"}),
    "imputer": (
        "Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": float(X[0, 0])}
    ),
    "regression": (
        "LinearRegressor",
        {"coefficients": COEFFICIENTS[:6], "intercepts": [0.5, 1.0], "targets": 2},
    ),
    "classes": (
        "LinearClassifier",
        {
            "coefficients": COEFFICIENTS, "intercepts": [0.5, 1.0, 0.1],
            "classlabels_ints": [4, 5, 6], "post_transform": "SOFTMAX", "multi_class": 1,
        },
    ),
    "radial": ("SVMRegressor", {**SUPPORT, "kernel_type": "RBF"}),
    "polynomial": ("SVMRegressor", {**SUPPORT, "kernel_type": "POLY"}),
    "votes": ("SVMClassifier", {**CLASSES, "kernel_type": "RBF"}),
    "probabilities": (
        "SVMClassifier",
        {
            **CLASSES, "kernel_type": "POLY", "prob_a": [-1.0, -1.5, -0.5],
            "prob_b": [0.1, 0.0, -0.1],
        },
    ),
    "two classes": ("SVMClassifier", {**PAIR, "kernel_type": "SIGMOID"}),
    "two shares": ("SVMClassifier", {**PAIR, "post_transform": "SOFTMAX"}),
    "trees": (
        "TreeEnsembleRegressor",
        {
            **TREE, "n_targets": 2, "target_treeids": [t for t, _ in LEAVES],
            "target_nodeids": [n for _, n in LEAVES], "target_ids": [0, 1, 0, 1, 1],
            "target_weights": WEIGHTS,
        },
    ),
    "forest": (
        "TreeEnsembleClassifier",
        {
            **TREE, "class_treeids": [t for t, _ in LEAVES],
            "class_nodeids": [n for _, n in LEAVES], "class_ids": [0, 1, 2, 1, 0],
            "class_weights": WEIGHTS, "classlabels_int64s": [7, 8, 9],
            "post_transform": "SOFTMAX",
        },
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    with config.override(tier="interpreter"):
        yield


@pytest.mark.parametrize("name", CASES)
def test_like_the_runtime(name: str) -> None:
    op, attributes = CASES[name]
    count = 2 if op.endswith("Classifier") else 1
    outputs = [f"y{number}" for number in range(count)]
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    kinds = [TensorProto.INT64, TensorProto.FLOAT][-count:]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 3])],
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(outputs, kinds)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=imports)
    proto.ir_version = 8
    content = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found = rl.onnx.load(content)(rl.tensor(X))
    for one, other in zip(found if count == 2 else [found], session.run(None, {"x": X})):
        np.testing.assert_allclose(as_array(one), other, rtol=1e-4, atol=1e-5)
        assert as_array(one).dtype == other.dtype
