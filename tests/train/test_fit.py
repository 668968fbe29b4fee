"""`fit` and its options against the same loop written out by hand; failures that leave files."""

from __future__ import annotations

import copy
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgeline import nn, optim
from ridgeline.data import DataLoader, TensorDataset
from ridgeline.data.dataset import as_array
from ridgeline.errors import InputFileError, OutputFileError
from ridgeline.interop.safetensors import pack_tensors
from ridgeline.nn.state import StateDictError
from ridgeline.optim.lr_scheduler import StepLR
from ridgeline.random import manual_seed
from ridgeline.tensors.tensor import tensor
from ridgeline.train import (
    CheckpointMismatchError,
    Fitted,
    Step,
    classification,
    fit,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from ridgeline.train.loop import CHECKPOINT


def data(batch: int = 8) -> DataLoader:
    source = np.random.default_rng(0)
    labels = source.integers(0, 2, 40)
    points = (source.standard_normal((40, 2)) + 3 * labels[:, None]).astype(np.float32)
    return DataLoader(TensorDataset(points, labels), batch, shuffle=True, seed=3)


def network(dropout: float = 0.0) -> nn.Sequential:
    manual_seed(1)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))


def train(out: Path, epochs: int = 3, dropout: float = 0.2, **options: Any) -> Fitted:
    model = network(dropout)
    optimizer = optim.AdamW(model.parameters(), 0.05)
    schedule = StepLR(optimizer, 4)
    return fit(
        model, data(), classification, optimizer, epochs=epochs, out=out, scheduler=schedule,
        quiet=True, **options,
    )  # fmt: skip


def values(model: nn.Module) -> list[Any]:
    return [as_array(p).tolist() for p in model.parameters()]


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    small, large = network(), network()
    steps = [
        Step(m, optim.SGD(m.parameters(), 0.5), classification, accumulate=n, clip=0.3)
        for m, n in ((small, 4), (large, 1))
    ]
    for batch in data(32):
        if len(batch[0]) == 32:
            x, y = batch
            for k in range(0, 32, 8):
                assert steps[0].settled == (k == 0)
                steps[0](x[k : k + 8], y[k : k + 8])
            steps[1](x, y)
    for a, b in zip(small.parameters(), large.parameters()):
        np.testing.assert_allclose(as_array(a), as_array(b), atol=1e-6)


def test_the_average_is_exponential(tmp_path: Path) -> None:
    model = network()
    kept = copy.deepcopy(model)
    optimizer = optim.SGD(model.parameters(), 0.5)
    result = fit(model, data(), classification, optimizer, epochs=2, out=tmp_path, ema=0.8,
                 quiet=True)  # fmt: skip
    other = network()
    plain = optim.SGD(other.parameters(), 0.5)
    loader = data()
    for _ in range(2):
        for x, y in loader:
            plain.zero_grad()
            nn.functional.cross_entropy(other(x), y).backward()
            plain.step()
            for average, value in zip(kept.parameters(), other.parameters()):
                average.data.copy_(0.8 * average.data + 0.2 * value.data)
    for a, b in zip(result.model.parameters(), kept.parameters()):
        np.testing.assert_allclose(as_array(a), as_array(b), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "clip": 1.0, "ema": 0.9}])
def test_a_run_in_two_parts_is_the_whole_run(options: dict[str, Any], tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 4, **options)
    train(tmp_path / "parts", 2, **options)
    rest = train(tmp_path / "parts", 4, resume=True, **options)
    assert rest.finished and values(rest.model) == values(whole.model)
    assert rest.progress.total_steps == whole.progress.total_steps == 20
    with pytest.raises(CheckpointMismatchError, match="other settings"):
        train(tmp_path / "parts", 4, resume=True, clip=0.1)


PROGRAM = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from test_fit import *
    import ridgeline.data.loader as loader

    whole = loader.DataLoader._batches
    def counted(self, *arguments):
        for number, batch in enumerate(whole(self, *arguments)):
            if self.epoch == 1 and number == 2:
                os.kill(os.getpid(), {signal})
            yield batch

    loader.DataLoader._batches = counted
    result = train(Path({out!r}), 4, accumulate=2)
    print(result.finished, result.progress.epoch, result.progress.step)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_exactly(number: int, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    code = textwrap.dedent(PROGRAM).format(
        tests=str(Path(__file__).parent), signal=int(number), out=str(out)
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "1", "4"], done.stderr  # where an update is complete
    rest = train(out, 4, accumulate=2, resume=True)
    assert values(rest.model) == values(train(tmp_path / "whole", 4, accumulate=2).model)
    lines = (out / "log.jsonl").read_text().splitlines()
    names = [json.loads(line)["event"] for line in lines]
    assert names == ["start", "epoch", "interrupted", "start", "epoch", "epoch", "epoch"]


def test_validation_after_every_epoch(tmp_path: Path) -> None:
    held_out = DataLoader(data().dataset, 16)  # batches of unequal size
    done = train(tmp_path, 2, dropout=0.5, validation=held_out, ema=0.5)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    points, labels = (tensor(array) for array in data().dataset.tensors)
    done.model.eval()
    scores = done.model(points)
    loss = float(nn.functional.cross_entropy(scores, labels))
    assert abs(lines[-1]["validation_loss"] - loss) < 1e-5
    right = float((scores.argmax(1) == labels).sum()) / 40
    assert lines[-1]["validation_accuracy"] == right
    plain = train(tmp_path / "plain", 2, dropout=0.5, ema=0.5)
    assert values(plain.model) == values(done.model), "validation changes nothing"
    assert done.model.training is False and [e["event"] for e in lines].count("epoch") == 2


# ---- failures ------------------------------------------------------------------------------------


def test_corrupt_checkpoints(tmp_path: Path) -> None:
    train(tmp_path, 1)
    path = tmp_path / CHECKPOINT
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(InputFileError):
            load_checkpoint(path)
    for length in (0, 7, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match=str(path)):
            train(tmp_path, 2, resume=True)
    path.write_bytes(pack_tensors({}, {"format": "pt"}))
    with pytest.raises(InputFileError, match="not a checkpoint"):
        train(tmp_path, 2, resume=True)


def test_missing_keys_and_wrong_shapes(tmp_path: Path) -> None:
    train(tmp_path, 1)
    state = load_checkpoint(tmp_path / CHECKPOINT)
    del state["model"]["0.bias"]
    save_checkpoint(tmp_path / CHECKPOINT, state)
    with pytest.raises(StateDictError, match=r"0\.bias"):
        train(tmp_path, 2, resume=True)
    del state["optimizer"]
    save_checkpoint(tmp_path / CHECKPOINT, {**state, "model": network().state_dict()})
    with pytest.raises(CheckpointMismatchError, match="optimizer"):
        train(tmp_path, 2, resume=True)
    model = network()
    before = values(model)
    save_weights(tmp_path / "w", nn.Sequential(nn.Linear(3, 8)).state_dict())
    with pytest.raises(StateDictError, match=r"0\.weight"):
        model.load_state_dict(load_weights(tmp_path / "w"))
    assert values(model) == before


def test_a_file_size_limit_while_saving(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"n": 1})
    before = (tmp_path / "c").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputFileError, match="File too large"):
            save_checkpoint(tmp_path / "c", {"model": nn.Linear(100, 100).state_dict()})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "c").read_bytes() == before and os.listdir(tmp_path) == ["c"]


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs more rights")
    try:
        save_checkpoint(disk / "c", {"n": 1})
        before = (disk / "c").read_bytes()
        with pytest.raises(OutputFileError, match="No space left"):
            save_checkpoint(disk / "c", {"model": nn.Linear(200, 200).state_dict()})
        assert (disk / "c").read_bytes() == before and os.listdir(disk) == ["c"]
        with pytest.raises(OutputFileError, match="No space left"):
            (disk / "filler").write_bytes(bytes(60_000 - len(before)))
            train(disk, 1)
        assert (disk / "c").read_bytes() == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)
