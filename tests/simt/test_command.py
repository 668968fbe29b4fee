"""`ridgeline simt`: verdicts that programs read, launches by options, and variations."""

import json
from pathlib import Path

import pytest

from ridgeline.cli.main import main

TEXT = '''
import numpy as np
from ridgeline import simt
from ridgeline.simt import *

@simt.kernel
def scaled(x: f32["n"], y: out[f32["n"]], a: f32, K: const):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < x.shape[0]:
        y[i] = a * x[i] + K

@simt.kernel
def reverse(d: inout[i32["n"]]):
    s = shared(64, i32)
    s[threadIdx.x] = d[threadIdx.x]
    d[threadIdx.x] = s[63 - threadIdx.x]

@simt.kernel
def turned(d: inout[i32["n"]]):
    s = shared(dynamic, i32)
    s[threadIdx.x] = d[threadIdx.x]
    syncthreads()
    d[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]

@simt.kernel
def neighbours(x: i32["n"], y: inout[i32["n"]]):
    """Right in blocks of one warp alone."""
    s = shared(1024, i32)
    t = threadIdx.x
    i = blockIdx.x * blockDim.x + t
    s[t] = x[i]
    syncwarp()
    y[i] = s[t] + s[t ^ 32 if blockDim.x > 32 else t]

@simt.kernel
def scattered(to: i32["n"], y: inout[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < to.shape[0]:
        y[to[i]] = i

@simt.kernel
def of_64(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 64 + t]
    syncthreads()
    y[blockIdx.x * 64 + t] = s[63 - t]

numbers = np.arange(64, dtype=np.int32)
examples = {
    "reverse": (1, 64, (numbers,)),
    "turned": (np.int64(1), 64, [numbers], {"shared": 256}),
}

def neighbours_example():
    return 4, 32, (np.zeros(128, np.int32), np.zeros(128, np.int32))

def scattered_example():
    return 2, 32, (numbers[::-1].copy(), np.zeros(64, np.float32))

def of_64_example():
    return 2, 64, (np.arange(128, dtype=np.int32), np.zeros(128, np.int32))
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(TEXT)
    return str(path)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_of_json_for_each_kernel(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simt", file, "--json", "--kernel", "reverse", "--kernel", "turned"]) == 1
    wrong, right = lines(capsys)
    assert (wrong["kernel"], wrong["verdict"]) == ("reverse", "shared race")
    (finding,) = wrong["findings"]
    assert finding["level"] == "error"
    assert finding["line"] == 16
    assert finding["other"]["line"] == 15
    assert finding["thread"] == [0, 0, 0]
    assert finding["count"] == 64
    assert (right["verdict"], right["findings"], right["block"]) == ("clean", [], [64, 1, 1])


def test_all_kernels_with_examples_of_all_files(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("from ridgeline import simt\n@simt.kernel\ndef k(a: simt.f32['n']):\n    b\n")
    assert main(["simt", file, str(broken), "--json"]) == 2
    *found, refused = lines(capsys)
    assert [one["kernel"] for one in found] == [
        "reverse", "turned", "neighbours", "scattered", "of_64"
    ]  # fmt: skip
    assert refused["verdict"] == "refused"
    assert "broken.py:4" in refused["error"]


def test_launches_by_options(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simt", file, "--json", "--kernel", "scaled"]
    assert main([*command, "--set", "K=3", "--set", "a=0.5", "--size", "n=100"]) == 0
    assert main([*command, "--set", "K=3", "--size", "33", "--block", "32", "--grid", "2"]) == 0
    assert [one["verdict"] for one in lines(capsys)] == ["clean", "clean"]
    for wrong, what in (
        ([], "constant K"), (["--set", "q=1"], "no scalar"),
        (["--set", "K=1", "--size", "m=3"], "no size"), (["--set", "K=x"], "no value"),
        (["--set", "K=1", "--size", "-3"], "no size"),
    ):  # fmt: skip
        assert main([*command, *wrong]) == 2
        (refused,) = lines(capsys)
        assert what in refused["error"]
    assert main(["simt", file, "--kernel", "turned", "--check", "--shared", "128"]) == 1
    assert "turned: out of bounds" in capsys.readouterr().out


def varied(file: str, kernel: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = main(["simt", file, "--json", "--vary", "--kernel", kernel])
    (found,) = lines(capsys)
    assert found["verdict"] == "clean"
    return code, {v["what"]: (v["fits"], len(v["findings"])) for v in found["variations"]}


def test_a_barrier_missing_in_larger_blocks(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = varied(file, "neighbours", capsys)
    assert code == 1
    assert found["blocks of 64x1x1"] == (True, 1)
    assert found["blocks of 16x1x1"] == (True, 0)


def test_indices_that_meet(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = varied(file, "scattered", capsys)
    assert code == 1
    assert found["equal data"] == (True, 1)
    assert found["shuffled data"] == (True, 0)
    assert found["n = 63"] == (False, 0), "an index leaves the shorter array"


def test_launches_that_a_kernel_is_not_for_are_no_mistakes(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = varied(file, "of_64", capsys)
    assert code == 0
    assert found["blocks of 128x1x1"] == (False, 0), "its tile has 64 elements"
    assert found["n = 127"] == (False, 0), "it is for whole tiles"


def test_compiled_code_has_the_lines_of_a_file_named_from_here(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.chdir(Path(file).parent)
    for name in ("kernels.py", "./kernels.py"):
        assert main(["simt", name, "--kernel", "of_64", "--gpu", "h100"]) == 0
        text = capsys.readouterr().out
        assert "as compiled: " in text and "left in the compiled code" not in text
