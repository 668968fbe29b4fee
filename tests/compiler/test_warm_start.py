"""A second process finds every program of the first one on disk, whatever its hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ridgeline.runtime.cpu.backend import machine

_PROGRAM = """
import ridgeline as rl
from ridgeline import nn
from ridgeline.nn import functional as F

rl.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.25), nn.LayerNorm(16), nn.Linear(16, 4))
optimizer = rl.optim.AdamW(model.parameters(), lr=0.1)

@rl.jit
def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

@rl.jit
def looped(x):
    return rl.while_loop(lambda x: x.sum() < 100, lambda x: x * 1.5, x)

x = rl.arange(32.0).reshape(4, 8) / 32
print([step(x, rl.tensor([0, 1, 2, 3])).item() for _ in range(3)])
print(model.state_dict()["0.weight"].tolist())
print(looped(x).tolist(), rl.jit(lambda y: y.flatten().sort(descending=True))(x)[1].tolist())
print(rl.jit(lambda y: rl.linalg.inv(y @ y.T + rl.eye(4)).sum())(x).item())
"""


def _run(cache: Path, seed: str) -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed, "RIDGELINE_CACHE_DIR": str(cache)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, {path.name for path in cache.rglob("*") if path.is_file()}


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    (cache := tmp_path / "cache").mkdir(mode=0o700)
    cold, warm = (_run(cache, seed) for seed in ("1", "2"))
    assert cold == warm
    assert len(warm[1]) > 5


def test_the_facts_of_a_machine_print_in_order() -> None:
    found = machine().instructions
    assert list(found) == sorted(found)
