"""Puzzles and samples three ways: simulator, machine code of the CPU, CUDA C++."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.simt import cuda_samples, gpu_puzzles, part_kernels, rodinia, tile_puzzles
from tests.simt.emulated import Emulator
from tests.simt.three_ways import Solved, check_compiles, emulator_of

ALL = [*gpu_puzzles.SOLVED, *tile_puzzles.SOLVED, *cuda_samples.SOLVED, *rodinia.SOLVED,
       *part_kernels.SOLVED]  # fmt: skip
# tensor cores are instructions of PTX, which the emulator has not
EMULATED = [one for one in ALL if one.name != "cudaTensorCoreGemm"]
every = pytest.mark.parametrize("solved", ALL, ids=lambda solved: solved.name)


def test_the_lists_are_whole() -> None:
    lengths = [len(part.SOLVED) for part in (gpu_puzzles, tile_puzzles, cuda_samples, rodinia)]
    assert lengths == [14, 12, 20, 19]


@every
def test_in_the_simulator(solved: Solved) -> None:
    solved.check_simulated()


@every
def test_on_the_host(solved: Solved) -> None:
    solved.check_host()


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: Any) -> Emulator:
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    return emulator_of(EMULATED, tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("solved", EMULATED, ids=lambda solved: solved.name)
def test_as_cuda(solved: Solved, emulator: Emulator) -> None:
    solved.check_emulated(emulator)


def test_nvrtc_takes_all_of_them() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    check_compiles(ALL)
