"""Programs from C: loaded and linked in, by a compiler from a wheel, against an old C library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.cli.main import main
from tests.deploy import compilers

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "deploy"


def exported(folder: Path, name: str) -> np.ndarray:
    """A program in a folder, with its input and its header; what it gives."""
    rl.manual_seed(4)
    model, x = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 9)), rl.randn(300, 40)
    jitted = rl.jit(model)
    jitted.export(folder / name, x)
    x.numpy().tofile(folder / "x.bin")
    with rl.no_grad():
        return jitted(x).numpy()


def answers(folder: Path, want: np.ndarray, *command: str, **options: object) -> None:
    """Run the program in C: it says what is wrong with wrong calls, and computes the same bits."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    memory, none, askew, missing, chosen = ran.stdout.splitlines()
    assert memory == "there is not enough memory" and "not opened" in none
    assert askew == missing == "the address of output 0 (output_0) is null or no multiple of 64"
    assert chosen.startswith("native")
    got = np.fromfile(folder / "y.bin", np.float32).reshape(4, *want.shape)
    for each in got:
        np.testing.assert_array_equal(each, want)


def test_a_file_is_linked_by_the_wheels_compiler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want = exported(tmp_path, "f.rlx")
    assert main(["export", "--header", str(tmp_path / "f.rlx")]) == 0
    (tmp_path / "f.h").write_text(capsys.readouterr().out)
    compiler = compilers.wheel() or compilers.system()
    shutil.copy(tmp_path / "f.rlx", tmp_path / "libf.so")
    source = str(HERE / "call.c")
    compilers.compile_c(compiler, tmp_path, source, "-I.", "-L.", "-lf", "-Wl,-rpath,.", "-o", "c")
    answers(tmp_path, want, "./c")


def test_a_static_executable_needs_nothing(tmp_path: Path) -> None:
    """An object in an executable that runs with an empty environment, and an empty root."""
    want = exported(tmp_path, "f.o")
    compiler = compilers.system()
    if compiler is None:
        pytest.skip("no system compiler; the long form has the wheel's")
    source = str(HERE / "call.c")
    compilers.compile_c(compiler, tmp_path, "-static", source, "f.o", "-I.", "-lm", "-o", "c")
    answers(tmp_path, want, "./c", env={})
    if os.geteuid() == 0:
        root = tmp_path / "root"
        root.mkdir()
        for name in ("c", "x.bin"):
            shutil.copy(tmp_path / name, root)
        (tmp_path / "y.bin").unlink()
        enter = f"import os; os.chroot({str(root)!r}); os.chdir('/'); os.execve('/c', ['c'], {{}})"
        answers(root, want, sys.executable, "-c", enter)


@pytest.mark.slow
def test_a_static_executable_of_the_wheels_compiler(tmp_path: Path) -> None:
    want = exported(tmp_path, "f.o")
    compiler = compilers.wheel()
    if compiler is not None:
        compiler[-1] = "x86_64-linux-musl"
    source = str(HERE / "call.c")
    compilers.compile_c(compiler, tmp_path, "-static", source, "f.o", "-I.", "-lm", "-o", "c")
    answers(tmp_path, want, "./c", env={})


def test_lenet_learns_in_c_as_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example: one epoch from C gives the loss to the bit that the same step has in Python."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    lenet = __import__("lenet")
    monkeypatch.chdir(tmp_path)
    lenet.export(tmp_path, ["native"])
    compiler = compilers.wheel() or compilers.system()
    sources = (str(EXAMPLE / "train_lenet.c"), "step.o", "predict.o")
    compilers.compile_c(compiler, tmp_path, *sources, "-I.", "-lm", "-o", "train")
    feed = [sys.executable, str(EXAMPLE / "lenet.py"), "feed", "--epochs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    data = subprocess.run(feed, capture_output=True, check=True, env=environment).stdout
    ran = subprocess.run("./train", input=data, capture_output=True, check=True).stdout.decode()
    model, optimizer = lenet.model_and_optimizer()

    @rl.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for rate, momentum, x, y in lenet.batches(1):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.param_groups[0]["momentum"] = momentum
        loss = step(rl.tensor(x), rl.tensor(y)).item()
    assert f"22 steps, the last loss {loss:.9g}" in ran and "test accuracy 0." in ran
