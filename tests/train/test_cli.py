"""`ridgeline train` as a user runs it: results, files, interruption, and clear errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

BATCH = "480"  # three steps an epoch


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ridgeline", "train", *arguments]


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, env=environment
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    out = tmp_path_factory.mktemp("run") / "new" / "folder"
    done = train("lenet", "--epochs", "2", "--batch-size", BATCH, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


def test_prints_the_result_and_plain_progress(finished: tuple[Path, str, str]) -> None:
    out, stdout, stderr = finished
    assert stdout.startswith("test accuracy ") and str(out) in stdout
    assert "LeNet-5 on handwritten digits, 1442 images" in stderr
    assert "epoch 2/2  loss " in stderr and " samples/s " in stderr and "\x1b" not in stderr


def test_leaves_weights_checkpoint_and_log(finished: tuple[Path, str, str]) -> None:
    out, stdout, _ = finished
    weights = load_file(out / "model.safetensors")
    assert weights["0.weight"].shape == (6, 1, 3, 3) and weights["11.bias"].shape == (10,)
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events] == ["start", "epoch", "epoch", "test"]
    assert f"{events[-1]['test_accuracy']:.2%}" in stdout
    assert sorted(p.name.split(".out.")[0] for p in out.iterdir()) == [
        "checkpoint.safetensors", "events", "log.jsonl", "model.safetensors",
    ]  # fmt: skip


def test_ctrl_c_saves_and_the_run_goes_on_exactly(
    finished: tuple[Path, str, str], tmp_path: Path
) -> None:
    out = tmp_path / "stopped"
    process = subprocess.Popen(
        command("lenet", "--epochs", "2", "--batch-size", BATCH, "--out", str(out)),
        stderr=subprocess.PIPE,
        text=True,
    )
    log = out / "log.jsonl"
    while process.poll() is None and not (log.exists() and '"start"' in log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "--resume" in stderr and (out / "checkpoint.safetensors").exists()
    assert not (out / "model.safetensors").exists()
    done = train("lenet", "--out", str(out), "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert 0 <= json.loads(done.stdout)["test_accuracy"] <= 1
    whole, parts = (load_file(p / "model.safetensors") for p in (finished[0], out))
    assert all((whole[name] == parts[name]).all() for name in whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lenet", "--epochs", "0"], "'0' is not a whole number above 0"),
        (["lenet", "--lr", "nan"], "'nan' is not a finite number above 0"),
        (["lenet", "--lr", "fast"], "'fast' is not a finite number"),
        (["lenet", "--seed", "-1"], "--seed"),
        (["alexnet"], "invalid choice: 'alexnet'"),
        (["lenet", "--ema", "1"], "'1' is not between 0 and 1"),
        (["lenet", "--device", "tpu"], "there is no device 'tpu'"),
        ([], "model"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    done = train(*arguments)
    assert done.returncode == 2 and message in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_folders_and_checkpoints(finished: tuple[Path, str, str], tmp_path: Path) -> None:
    done = train("lenet", "--out", str(tmp_path / "none"), "--resume")
    assert done.returncode == 2 and "cannot read" in done.stderr
    (tmp_path / "file").write_text("x")
    done = train("lenet", "--out", str(tmp_path / "file"))
    assert done.returncode == 2 and "cannot write" in done.stderr
    broken = tmp_path / "broken"
    broken.mkdir()
    data = (finished[0] / "checkpoint.safetensors").read_bytes()
    (broken / "checkpoint.safetensors").write_bytes(data[: len(data) // 2])
    done = train("lenet", "--out", str(broken), "--resume")
    assert done.returncode == 2 and "not a whole safetensors file" in done.stderr
    done = train("lenet", "--out", str(finished[0]), "--resume", "--lr", "0.5")
    assert done.returncode == 2 and "lr: the checkpoint has 0.1, this run 0.5" in done.stderr
    done = train("lenet", "--batch-size", "5000", "--out", str(tmp_path / "big"))
    assert done.returncode == 2 and "larger than the 1442 training images" in done.stderr
    for process in (done,):
        assert "Traceback" not in process.stderr
