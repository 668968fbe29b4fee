"""`ridgeline train --mesh`: processes under MPI train together, and a run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")


@pytest.mark.slow
def test_the_trainer_runs_on_a_mesh(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 20)
    out = tmp_path / "run"
    command = [
        sys.executable, "-m", "ridgeline", "train", "gpt2", "--mesh", "dp=2,tp=2",
        "--data", str(text), "--out", str(out), "--quiet", "--json",
    ]  # fmt: skip
    settings = ["--epochs", "1", "--batch-size", "8", "--length", "16"]
    environment = {**os.environ, "RIDGELINE_TIER": "interpreter"}
    began = subprocess.run(
        [*command, *settings], capture_output=True, text=True, env=environment, timeout=300
    )
    assert began.returncode == 0, began.stderr
    first = json.loads(began.stdout.strip().splitlines()[-1])
    assert (out / "checkpoint" / "index.json").is_file()
    assert (out / "model.safetensors").is_file()
    resumed = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert resumed.returncode == 0, resumed.stderr
    again = json.loads(resumed.stdout.strip().splitlines()[-1])
    assert again["test_loss"] == first["test_loss"]
