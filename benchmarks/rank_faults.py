"""How soon a job ends when one of its ranks does: seconds from the fault to the launcher's exit.

    python -m benchmarks.rank_faults --ranks 4 --rounds 3

A rank is killed or raises while the others wait for it or compute, in a compiled training step too,
or calls something else than they.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FAULTS = ("killed", "killed beside work", "killed in a step", "raises", "calls something else")


def rank(fault: str, into: Path) -> None:
    """What a rank of the job does: the last one has the fault."""
    import numpy as np

    import ridgeline as rl
    from ridgeline import distributed as dist, nn, optim

    world = dist.world()
    victim = world.rank == world.size - 1
    model = dist.parallelize(nn.Linear(64, 64), dist.Mesh(dp=world.size))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @rl.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = rl.ones(world.size * 4, 64)
    for _ in range(3):
        step(x).item()
    world.barrier()
    if victim:
        time.sleep(1.0)  # the others wait, compute or step meanwhile
        into.write_text(repr(time.time()))
        if fault.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raises":
            raise ValueError("a fault")
        world.all_gather(np.ones(3))
    while fault == "killed beside work":
        np.ones(1 << 16).sum()
    while fault == "killed in a step":
        step(x).item()
    world.all_reduce(np.ones(3))


def seconds(fault: str, ranks: int) -> float:
    """The time that one job takes to end."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "when")
        words = [sys.executable, "-m", "ridgeline", "launch", "-n", str(ranks)]
        words += ["-m", "benchmarks.rank_faults", "--fault", fault, "--into", str(into)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=300)
        ended = time.time()
        assert ran.returncode, f"{fault}: the job ended well"
        return ended - float(into.read_text())


def main() -> None:
    """Measure, or be one rank of what is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fault:
        rank(options.fault, options.into)
        return
    for fault in FAULTS:
        found = [seconds(fault, options.ranks) for _ in range(options.rounds)]
        times = ", ".join(f"{each:.1f}" for each in found)
        print(f"{fault}: {options.ranks} ranks had ended after {times} s", flush=True)


if __name__ == "__main__":
    main()
