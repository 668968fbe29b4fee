"""Counts per line against counts by hand, occupancy against the table, the page and the command."""

from pathlib import Path

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.cli.main import main
from ridgeline.profile.occupancy import occupancy
from ridgeline.simt import blockIdx, const, f32, f64, i32, out, shared, syncthreads, threadIdx
from ridgeline.simt.launch import LaunchError


def line_with(found: object, text: str) -> object:
    return next(line for line in found.lines if text in line.text).counts


@simt.kernel
def strided(x: f32["n"], y: out[f32["m"]], S: const = 1):
    i = blockIdx.x * 32 + threadIdx.x
    y[i] = x[i * S]


@pytest.mark.parametrize("stride, sectors", [(1, 4), (2, 8), (4, 16), (8, 32), (32, 32)])
def test_sectors_of_strided_loads(stride: int, sectors: int) -> None:
    x = np.zeros(64 * stride, np.float32)
    found = strided.explain(2, 32, x, S=stride, m=64)
    counts = line_with(found, "y[i] = x")
    assert counts.requests == 4
    assert counts.sectors == 2 * sectors + 2 * 4
    assert counts.ideal_sectors == 2 * 4 + 2 * 4


@simt.kernel
def columns(y: out[f32["n"]], W: const = 32):
    tile = shared((32, W), f32)
    tile[threadIdx.x, 0] = 1.0
    syncthreads()
    y[threadIdx.x] = tile[threadIdx.x, 0]


@pytest.mark.parametrize("width, conflicts", [(32, 32), (33, 1), (16, 16), (2, 2), (1, 1)])
def test_bank_conflicts_of_columns(width: int, conflicts: int) -> None:
    found = columns.explain(1, 32, W=width, n=32)
    assert line_with(found, "= 1.0").wavefronts == conflicts


@simt.kernel
def wide(y: out[f64["n"]]):
    tile = shared(32, f64)
    tile[threadIdx.x] = 1.0
    y[threadIdx.x] = tile[threadIdx.x]


def test_doubles_take_two_wavefronts_and_eight_sectors() -> None:
    found = wide.explain(1, 32, n=32)
    assert line_with(found, "= 1.0").wavefronts == 2
    assert line_with(found, "y[threadIdx").sectors == 8


@simt.kernel
def halves(y: out[i32["n"]]):
    if threadIdx.x % 2 == 0:
        y[threadIdx.x] = 1
    else:
        y[threadIdx.x] = 2


def test_divergence_is_counted_by_warps() -> None:
    found = halves.explain(1, 64, n=64)
    branch = line_with(found, "if threadIdx")
    assert (branch.branches, branch.divergent) == (2, 2)
    assert line_with(found, "= 1").active == 16


def test_occupancy_is_the_table_s() -> None:
    found = columns.explain(1, 32, n=32, gpu="a100", registers=64)
    assert found.occupancy == occupancy(80, 32, 64, 4096)


def test_too_much_shared_memory_for_a_gpu() -> None:
    with pytest.raises(LaunchError, match="T4 has 65536"):
        columns.explain(1, 32, n=32, W=600, gpu="t4")


def test_a_page_stands_alone() -> None:
    page = columns.explain(1, 32, n=32).html()
    assert "<svg" in page and "http://" not in page and "<script" not in page
    assert "32-way bank conflicts" in page


PROGRAM = """
import numpy as np
from ridgeline import simt
from ridgeline.simt import shared, syncthreads, threadIdx, f32, out

@simt.kernel
def reverse(x: f32["n"], y: out[f32["n"]]):
    buf = shared(64, f32)
    buf[threadIdx.x] = x[threadIdx.x]
    BARRIER
    y[threadIdx.x] = buf[63 - threadIdx.x]

examples = {"reverse": (1, 64, (np.ones(64, np.float32),))}
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong, page = (tmp_path / name for name in ("right.py", "wrong.py", "page.html"))
    right.write_text(PROGRAM.replace("BARRIER", "syncthreads()"))
    wrong.write_text(PROGRAM.replace("BARRIER", "pass"))
    assert main(["simt", str(right), "--gpu", "h100", "--html", str(page), "--vary"]) == 0
    assert "occupancy" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert main(["simt", str(wrong), "--kernel", "reverse"]) == 1
    assert "shared race" in capsys.readouterr().out
    assert main(["simt", str(wrong), "--kernel", "revers"]) == 2
    assert main(["simt", str(tmp_path / "none.py")]) == 2
