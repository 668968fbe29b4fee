"""`ridgeline run`: a program written for torch runs as it is, workers and all, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import argparse, sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms
from helper import scale

class Numbers(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 2

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    given = parser.parse_args()
    assert type(torch).__module__ == "ridgeline.as_torch", torch
    assert torch.__version__.startswith("2.") and not torch.distributed.is_available()
    cudnn.benchmark = True
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=given.lr)
    for x, y in DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=1):
        optimizer.zero_grad()
        F.cross_entropy(net(scale(x)), y).backward()
        optimizer.step()
    fake = datasets.FakeData(3, (1, 8, 8), transform=transforms.ToTensor())
    print(fake[0][0].shape, sys.argv[1:], __name__)
    if given.lr > 5:
        torch.ao.quantization.prepare(net)

if __name__ == "__main__":
    main()
"""


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ridgeline", *arguments]
    space = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=cwd, env=space, capture_output=True, text=True, timeout=240)


def test_a_program_runs_with_its_workers_and_lists_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text(
        "import torch\ndef scale(x):\n    return torch.mull(x, 2)\n"
    )
    listed = run("run", "--check", "train.py", cwd=tmp_path)
    assert listed.returncode == 1
    assert (
        "train.py:34: torch.ao.quantization.prepare (integers as weights are not offered)"
        in listed.stderr
    )
    assert "helper.py:3: torch.mull (near: mul" in listed.stderr
    (tmp_path / "helper.py").write_text("def scale(x):\n    return x / 12\n")
    ran = run("run", "train.py", "--lr", "0.1", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Size([1, 8, 8]) ['--lr', '0.1'] __main__" in ran.stdout
    assert run("run", "nothing.py", cwd=tmp_path).returncode == 2


FAILING = """
import sys
import torch
def step(x):
    return {wrong}
traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
print(len(traced.graph.nodes), flush=True)
step(torch.ones(2))
"""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("x @ torch.ones(3)", "RL0101"),
        ("open('nothing.txt')", "No such file or directory: 'nothing.txt'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_of_the_program_is_shown_as_python_shows_it(
    tmp_path: Path, wrong: str, said: str
) -> None:
    (tmp_path / "train.py").write_text(FAILING.format(wrong=wrong))
    for way in (["run", "train.py"], ["run", "-m", "train"]):
        ran = run(*way, cwd=tmp_path)
        assert ran.returncode == 1
        assert ran.stdout == "4\n", ran.stderr
        lines = ran.stderr.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[1].endswith('train.py", line 8, in <module>'), ran.stderr
        assert said in ran.stderr


def test_a_program_of_the_benchmarks_gives_torchs_losses(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    text = """
from benchmarks.programs.draws import same_draws
from benchmarks.programs.switch import Framework, start
import torch
for name in ("gcn", "quantile_regression"):
    with same_draws(torch):
        step = start(name, Framework("torch"), True)
        print(*[step(number).item() for number in range(3)])
"""
    (tmp_path / "program.py").write_text(text)
    ours = run("run", str(tmp_path / "program.py"), cwd=ROOT)
    assert ours.returncode == 0, ours.stderr
    theirs = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    numbers = [[float(n) for n in result.stdout.split()] for result in (ours, theirs)]
    torch.testing.assert_close(*map(torch.tensor, numbers), rtol=1e-4, atol=1e-5)


def test_as_torch_is_refused_where_torch_is_there_already(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text("import torch, ridgeline.as_torch")
    found = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "torch itself is imported already" in found.stderr
