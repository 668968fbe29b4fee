"""pytest plugin: einops' own tests (inside its wheel) on the backend in ridgeline/interop.

usage: EINOPS_TEST_BACKENDS=ridgeline python -m pytest -p tests.array_api.einops_plugin \\
           --pyargs einops.tests
"""

from __future__ import annotations

from typing import Any

from einops import tests

from ridgeline.interop.einops import RidgelineBackend


def _backends(symbolic: bool = False, layers: bool = False) -> list[Any]:
    return [] if symbolic or layers else [RidgelineBackend()]


tests.collect_test_backends = _backends
