"""Attack: one training script, twice, in processes of their own on a busy machine.

With `config.deterministic` both end with the same bits: undecorated and jitted, with convolutions,
embeddings, scatters and dropout, whatever else runs and sleeps in between.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.cuda.emit import functions_of
from ridgeline.runtime.cpu import backend
from ridgeline.runtime.cpu.calibration import Calibration
from ridgeline.schedules.gpu.machine import H200
from tests.attacks.attack import Attack
from tests.cuda.lowering import schedule
from tests.cuda.programs import call, given
from tests.fuzz.faults import Fault

SCRIPT = """
import hashlib, random, sys, threading, time
import numpy as np
import ridgeline as rl
from ridgeline import nn

kind, busy, device = sys.argv[1], float(sys.argv[2]), sys.argv[3]
rl.config.deterministic = True
noise = random.Random()  # not of the seed: every run is disturbed in its own way
stop = threading.Event()

def spin():
    while not stop.is_set():
        end = time.perf_counter() + noise.random() * 0.004
        while time.perf_counter() < end:
            pass
        time.sleep(noise.random() * busy)

others = [threading.Thread(target=spin, daemon=True) for _ in range(2)]
for other in others:
    other.start()
rl.manual_seed(7)
draw = np.random.default_rng(3)
images = rl.tensor(draw.normal(size=(16, 3, 12, 12)).astype(np.float32), device=device)
words = rl.tensor(draw.integers(0, 40, (16, 9)), device=device)
labels = rl.tensor(draw.integers(0, 5, 16), device=device)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(40, 24), nn.Linear(24, 5)

    def forward(self, x):
        held = self.table(x)
        places = rl.tensor([0, 3, 3, 1, 0, 5, 5, 5, 10], device=device)
        spread = rl.zeros(16, 11, 24, device=device).index_add(1, places, held)
        return self.last(spread.sum(1))

conv = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3),
    nn.Conv2d(8, 4, 3, stride=2), nn.Flatten(), nn.Linear(100, 5),
)
dense = nn.Sequential(
    nn.Flatten(), nn.Linear(432, 48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 5)
)
model, data = {"conv": (conv, images), "words": (Words(), words)}.get(kind, (dense, images))
model = model.to(device)
rule = rl.optim.AdamW(model.parameters(), lr=3e-3)

def step(x):
    rule.zero_grad()
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    rule.step()
    return loss

train = rl.jit(step) if kind == "jit" else step
digest = hashlib.sha256()
for number in range(14):
    digest.update(train(data).detach().cpu().numpy().tobytes())
    time.sleep(noise.random() * busy)
for value in model.parameters():
    digest.update(value.detach().cpu().numpy().tobytes())
stop.set()
print(digest.hexdigest())
"""
KINDS = ("words", "dense", "jit", "conv")


def runs(kind: str, seed: int, count: int = 2, device: str = "cpu") -> list[str]:
    """What some runs of a script end with; all of them side by side."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "RIDGELINE_CALIBRATE": "1", "RIDGELINE_THREADS": "2"}
        children = []
        for number in range(count):
            # half of them find what another has compiled, or is compiling
            settings["RIDGELINE_CACHE_DIR"] = os.path.join(folder, str(number // 2))
            command = [sys.executable, "-c", SCRIPT, kind, str(0.002 * (seed % 3)), device]
            children.append(
                subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True)
            )
        said = [child.communicate()[0].strip() for child in children]
    assert all(said), f"a run of {kind} failed"
    return said


def check_facts() -> None:
    """What schedules go by does not depend on what was measured."""
    with rl.config.override(deterministic=True, calibrate=True):
        facts = backend.machine()
        with patch.object(backend, "calibration", lambda: Calibration(1e9, 5e9, 20e-6)):
            assert backend.machine() == facts, "schedules go by measured rates"


def check_scatters() -> None:
    """A GPU adds floats into shared places in one order, and integers as they come."""
    for dtype in (dtypes.float32, dtypes.float64, dtypes.int32):
        x, index, y = given(dtype, 300, 8), given(dtypes.int64, 300, 8), given(dtype, 300, 8)
        added = call("scatter_add", x, 0, index, y)
        kernels = schedule([added], [x, index, y], replace(H200, one_order=True))
        text = "".join(str(functions_of(each.kernel)) for each in kernels)
        joined = "atomicAdd(" in text
        assert joined == (dtype is dtypes.int32), f"{dtype.name} is added as threads come"


def trial(seed: int) -> None:
    """One script, twice, and what its schedules go by."""
    check_facts()
    check_scatters()
    kind = KINDS[seed % len(KINDS)]
    for one, other in pairwise(runs(kind, seed)):
        assert one == other, f"two runs of {kind!r} differ"


ATTACK = Attack(
    "determinism",
    "under config.deterministic two runs of a training script end with the same bits",
    trial,
    short=2,
    faults=(
        Fault(
            "schedules go by measured rates",
            "runtime.cpu.backend",
            "machine",
            "config.deterministic or ",
            "",
        ),
        Fault(
            "updates of floats are threads",
            "schedules.gpu.own_loops",
            "_joins",
            "not (gpu.one_order and rounds)",
            "True",
        ),
    ),
)
