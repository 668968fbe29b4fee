"""Kernels have the same text in every process: the cache on disk finds them by it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from ridgeline import dtypes
from ridgeline.compiler import lower_graph
from ridgeline.functions.sorting import median
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.text.printer import print_kernel

x = leaf(TensorType((64,), dtypes.float32))
for made in lower_graph(Graph.below([median(x)])).all_kernels():
    print(print_kernel(made.kernel))
"""


def text(seed: int) -> str:
    variables = {**os.environ, "PYTHONHASHSEED": str(seed)}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_text_of_kernels_does_not_depend_on_hashes() -> None:
    first, *others = map(text, (1, 2, 3))
    assert first.count("kernel")
    assert others == [first] * 2
