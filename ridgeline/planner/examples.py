"""Example inputs of models: by the sizes of one sample, or by a name in the model's file."""

from __future__ import annotations

import difflib
import math
import re
from types import ModuleType
from typing import Any

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, InputFileError
from ridgeline.tensors.public import zeros
from ridgeline.tensors.tensor import Tensor

_SAMPLES = 2
"""Of an example of which the sizes are said: norms over a batch need more than one."""
_USUAL = "example"
_KINDS: dict[str, DType] = {
    "float32": dtypes.float32, "float16": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "int64": dtypes.int64, "int32": dtypes.int32, "bool": dtypes.bool_,
}  # fmt: skip
_MOST = 2**40


def sized_example(text: str) -> tuple[Tensor, ...]:
    """Inputs whose samples have such sizes: `3x224x224`, `128:int64`, several with commas."""
    return tuple(_sized(word) for word in text.split(","))


def _sized(word: str) -> Tensor:
    found = re.fullmatch(r"\s*(\d+(?:x\d+)*)?(?::(\w+))?\s*", word)
    if found is None or not (found[1] or found[2]):
        raise BadValueError(
            f"{word!r} is no size of a sample", help="such as 3x224x224, 128:int64, or both: a,b"
        )
    sizes = [int(size) for size in (found[1] or "").split("x") if size]
    if 0 in sizes or math.prod(sizes) > _MOST:
        raise BadValueError(
            f"a sample of {word} has {math.prod(sizes):,} elements",
            help=f"give 1 to {_MOST:,}, such as 3x224x224",
        )
    kind = found[2] or "float32"
    if kind not in _KINDS:
        near = difflib.get_close_matches(kind, _KINDS, 1, 0.0)
        raise BadValueError(f"there is no input of {kind!r}", help=f"the nearest is {near[0]!r}")
    return zeros((_SAMPLES, *sizes), dtype=_KINDS[kind])


def example_of(module: ModuleType, name: str | None, word: str) -> tuple[Any, ...]:
    """What a model's file has as its example: a tensor, a tuple of them, or what makes one."""
    wanted = name or _USUAL
    if not hasattr(module, wanted):
        raise InputFileError(
            f"{word} is no language model of ridgeline.models, and its file has no {wanted!r}: "
            "without an input it cannot be traced",
            help="give --input 3x224x224 (one sample), or in the file "
            f"{wanted} = rl.zeros(8, 3, 224, 224)",
        )
    found = getattr(module, wanted)
    if callable(found) and not isinstance(found, Tensor):
        found = found()
    return tuple(found) if isinstance(found, tuple | list) else (found,)
