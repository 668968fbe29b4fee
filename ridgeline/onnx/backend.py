"""The interface by which ONNX's own tests run a model: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.model import read_model
from ridgeline.onnx.module import OnnxModule
from ridgeline.tensors.tensor import Tensor


def prepare(model: bytes) -> Callable[[list[Any]], list[Any]]:
    """A function from a list of arrays to a list of arrays."""
    module = OnnxModule(read_model(model))

    def run(inputs: list[Any]) -> list[Any]:
        with rl.no_grad():
            result = module(*inputs)
        return [as_array(each) for each in (result if isinstance(result, tuple) else (result,))]

    return run


def as_array(value: Any) -> Any:
    """A result as NumPy has it."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, list):
        return [as_array(each) for each in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)
