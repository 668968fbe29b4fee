"""`ridgeline onnx check|run|bench`."""

from __future__ import annotations

from pathlib import Path

import pytest

import ridgeline as rl
from ridgeline.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> str:
    function = lambda x, n: (x.exp().sum(1), n + 1)  # noqa: E731
    args = rl.ones(3, 4), rl.ones(2, dtype=rl.int64)
    return str(rl.onnx.save(function, tmp_path / "f.onnx", *args, dynamic={"x": {0: "rows"}}))


def test_check_lists_what_is_inside(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "check", path]) == 0
    text = capsys.readouterr().out
    assert "input   x: float['rows', 4]" in text and "Exp 1" in text and "opset 18" in text


def test_run_compares_with_the_runtime(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "run", path, "--size", "rows=6", "--fill", "n=4"]) == 0
    text = capsys.readouterr().out
    assert "output_0: float32[6], within" in text and "output_1: int64[2], within 0.0e+00" in text


def test_bench_times_both(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "bench", path, "--input", "x=2,4", "--threads", "1", "--repeat", "2"]) == 0
    assert "1 threads: " in (text := capsys.readouterr().out) and "ONNX Runtime" in text


@pytest.mark.parametrize("arguments", [["--size", "rows"], ["--size", "rows=many"]])
def test_wrong_options(path: str, arguments: list[str]) -> None:
    assert main(["onnx", "run", path, *arguments]) == 2


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"hello")
    assert main(["onnx", "check", str(tmp_path / "m.onnx")]) == 2
    assert "is no ONNX model" in capsys.readouterr().err
