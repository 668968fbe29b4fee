"""torch.types: names for what functions take, for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.tensors.tensor import Tensor

Number = int | float | bool
Device = device | str | int | None
FileLike = Any
_bool, _complex, _dtype, _float, _int, _size = bool, complex, DType, float, int, Sequence[int]
TensorOrTensors = _TensorOrTensors = Tensor | Sequence[Tensor]
