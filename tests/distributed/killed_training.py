"""A run that may be killed: it goes on from its last checkpoint, and writes every loss down.

    killed_training.py FOLDER STEPS [RANK MOMENT …]

The n-th start of the job (counted by the launcher) is ended by the n-th pair: that rank kills
itself at the moment "7+0.02", 0.02 s after its seventh step, whatever it is doing then, or where
a checkpoint is half written if the moment is "checkpoint".
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import ridgeline as rl
from ridgeline import data, distributed as dist, nn, optim
from ridgeline.distributed import checkpoints


class Killer:
    """Ends this process without a warning."""

    def __init__(self, moment: str) -> None:
        steps, _, seconds = moment.partition("+")
        self._left, self._seconds = (int(steps), float(seconds)) if seconds else (-1, 0.0)
        if moment == "checkpoint":
            vars(checkpoints)["write_tensors"] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        self._look()

    def step(self) -> None:
        """One more step was made."""
        self._left -= 1
        self._look()

    def _look(self) -> None:
        if self._left == 0:
            threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        time.sleep(self._seconds)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    kills = list(zip(sys.argv[3::2], sys.argv[4::2]))
    mesh = dist.Mesh(dp=2)
    attempt = int(os.environ["RIDGELINE_RESTART"])
    is_victim = attempt < len(kills) and int(kills[attempt][0]) == mesh.rank
    killer = Killer(kills[attempt][1] if is_victim else "")
    rl.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 1))
    model = dist.parallelize(net, mesh, dist.Plan(zero=2))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x = np.random.default_rng(0).standard_normal((37, 6)).astype(np.float32)
    loader = data.DataLoader(data.TensorDataset(x), 8, shuffle=True, seed=3, mesh=mesh)
    step = 0
    if dist.find_checkpoint(folder / "last"):
        step = dist.load_checkpoint(folder / "last", model, optimizer, loader)["step"]
    while step < steps:
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = (model(batch) - 1).square().mean()
            loss.backward()
            optimizer.step()
            step += 1
            killer.step()
            if mesh.rank == 0:
                with (folder / "losses").open("a") as file:
                    file.write(f"{step} {loss.item().hex()}\n")
            if step % 3 == 0:
                place, extra = folder / "last", {"step": step}
                dist.save_checkpoint(place, model, optimizer, loader, extra, asynchronous=True)
            if step == steps:
                break


if __name__ == "__main__":
    main()
