"""Two programs for C, LeNet-5's training step and its prediction, and the data to train with.

    python lenet.py export                        writes step.o, predict.o and their headers
    python lenet.py feed --epochs 60 | ./train_lenet    after train_lenet.c was compiled with these

The settings are those of `ridgeline train lenet`.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import ridgeline as rl
from ridgeline import nn
from ridgeline.data import DataLoader, TensorDataset, digits
from ridgeline.data.digits import BACKGROUND
from ridgeline.data.transforms import RandomAffine
from ridgeline.models import lenet5

BATCH, RATE = 64, 0.1


def model_and_optimizer() -> tuple[nn.Module, rl.optim.Optimizer]:
    rl.manual_seed(0)
    model = lenet5()
    return model, rl.optim.SGD(
        model.parameters(), RATE, momentum=0.9, weight_decay=5e-4, nesterov=True
    )


def export(folder: Path, instruction_sets: Sequence[str] = ()) -> None:
    model, optimizer = model_and_optimizer()

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @rl.jit
    def predict(x: rl.Tensor, parameters: dict[str, rl.Tensor]) -> rl.Tensor:
        return rl.func.functional_call(model, parameters, (x,))

    x, y = rl.zeros(BATCH, 1, 32, 32), rl.zeros(BATCH, dtype=rl.int64)
    sets = {"instruction_sets": instruction_sets}
    step.export(folder / "step.o", x, y, prefix="step", **sets)
    given = {name: p.detach() for name, p in model.named_parameters()}
    predict.export(folder / "predict.o", x, given, prefix="predict", **sets)


def batches(epochs: int) -> Iterator[tuple[float, float, np.ndarray, np.ndarray]]:
    """What every step learns from, with its learning rate and momentum."""
    train = digits("train", 32)
    augment = RandomAffine(15.0, 3.0, 0.15, 10.0, fill=BACKGROUND)
    loader = DataLoader(
        TensorDataset(train.images, train.labels), BATCH, shuffle=True, drop_last=True, seed=0,
        transform=augment,
    )  # fmt: skip
    _, optimizer = model_and_optimizer()
    steps = epochs * len(loader)
    schedule = rl.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    for _ in range(epochs):
        for x, y in loader:
            group = optimizer.param_groups[0]
            yield group["lr"], group["momentum"], x.numpy(), y.numpy()
            schedule.step()


def feed(epochs: int) -> None:
    out = sys.stdout.buffer
    for rate, momentum, x, y in batches(epochs):
        out.write(struct.pack("<iidd", 1, BATCH, rate, momentum) + x.tobytes() + y.tobytes())
    test = digits("test", 32)
    for first in range(0, len(test), BATCH):
        x, y = test.images[first : first + BATCH], test.labels[first : first + BATCH]
        missing = BATCH - len(y)
        padded = np.concatenate([x, np.zeros((missing, 1, 32, 32), np.float32)])
        labels = np.concatenate([y, np.zeros(missing, np.int64)])
        out.write(struct.pack("<iidd", 2, len(y), 0, 0) + padded.tobytes() + labels.tobytes())
    out.write(struct.pack("<ii", 0, 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("export", "feed"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    if arguments.action == "export":
        export(arguments.folder)
    else:
        feed(arguments.epochs)


if __name__ == "__main__":
    main()
