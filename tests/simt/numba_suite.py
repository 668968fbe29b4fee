"""numba-cuda's own tests over our kernels: `python -m tests.simt.numba_suite FOLDER [test_sm …]`.

`FOLDER` is `numba_cuda/numba/cuda/tests/cudapy` of a checkout of NVIDIA/numba-cuda. Every launch of
theirs runs in the simulator and on the CPU (`numba_shim`). Prints what each file's tests came to,
and the last line of those that failed; `KNOWN` has the reasons of those that are to fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import types
import unittest

from tests.simt import numba_shim

FILES = ("test_sm", "test_sync", "test_atomics", "test_intrinsics", "test_warp_ops")
_OTHER_NAN = "of a number and NaN the result is NaN, as of max and min elsewhere"
_BEFORE = "a variable has its first value before the branch"
_FORWARD = "parts of arrays count forwards"
_ROUNDS = "rounding to digits is the shim's, and scales once"
_LITERAL = "our error has other words"
KNOWN = {
    "test_atomic_max_nan_val": _OTHER_NAN, "test_atomic_min_nan_val": _OTHER_NAN,
    "test_atomic_nanmax_double_oneindex": _OTHER_NAN,
    "test_atomic_nanmin_double_oneindex": _OTHER_NAN,
    "test_round_to_f4_halfway": _ROUNDS, "test_round_to_f8": _ROUNDS,
    "test_independent_scheduling": _BEFORE, "test_issue_2393": "an integer becomes no float",
    "test_dynshared_slice_nonunit_reverse_stride": _FORWARD,
    "test_dynshared_slice_write_backwards": _FORWARD,
    "test_shared_recarray": "elements are numbers", "test_invalid_array_type": _LITERAL,
    "test_vote_sync_type_validation": _LITERAL,
    "test_nonliteral_grid_error": _LITERAL, "test_nonliteral_gridsize_error": _LITERAL,
}  # fmt: skip
_PACKAGE = "cudapy"


def load(folder: str, name: str) -> types.ModuleType:
    """A file of theirs; what it needs of numba's own extensions is not there."""
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [folder]
        sys.modules[_PACKAGE] = package
        sys.modules[f"{_PACKAGE}.extensions_usecases"] = numba_shim.loose("extensions_usecases")
    spec = importlib.util.find_spec(f"{_PACKAGE}.{name}")
    assert spec is not None and spec.loader is not None, f"no {name}.py in {folder}"
    module = importlib.util.module_from_spec(spec)
    vars(module)["exec"] = numba_shim.recorded_exec
    sys.modules[f"{_PACKAGE}.{name}"] = module
    spec.loader.exec_module(module)
    return module


def run(folder: str, name: str) -> int:
    """Run one file and print what came of it; how many failed that are not known to."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(load(folder, name))
    found = unittest.TestResult()
    numba_shim.SEEN.clear()
    suite.run(found)
    failed = {test.id().split(" ")[0]: text for test, text in found.failures + found.errors}
    fresh = {n: t for n, t in failed.items() if n.rpartition(".")[2] not in KNOWN}
    skipped = {test.id().split(" ")[0] for test, _ in found.skipped}
    print(
        f"{name}: {found.testsRun} tests, {len(skipped)} skipped, {len(failed)} failed, of them "
        f"{len(failed) - len(fresh)} known; {len(numba_shim.SEEN)} findings of the simulator"
    )
    for test, text in fresh.items():
        print(f"  {test}: {text.strip().splitlines()[-1]}")
    for finding in numba_shim.SEEN:
        print(f"  {finding.text().splitlines()[0]}")
    return len(fresh)


def main() -> None:
    """Run the files that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", default=FILES)
    asked = parser.parse_args()
    numba_shim.install()
    sys.exit(min(1, sum(run(asked.folder, name) for name in asked.names)))


if __name__ == "__main__":
    main()
