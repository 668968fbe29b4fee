"""Data parallelism beside torch's DDP over gloo: a GPT, one thread a rank, equal batches.

    python -m benchmarks.distributed --ranks 2
    python -m benchmarks.distributed --ranks 2 4 8 --layers 6 --width 384

Every candidate is a job of as many processes as there are ranks, and is run again in each round, in
turn with the others. The same jobs without communication (each rank trains alone; DDP under
`no_sync`) say what communication costs: a step is as long as the slowest rank's, its *exposed*
share is what it takes longer than without, and *efficiency* is the step without over that with.
Beside a step's time stand the processor seconds that it took of all threads of a rank, which say
more where other programs use the machine; how many wanted it is kept with each job.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.report import write_json

CANDIDATES = ("ridgeline", "ridgeline alone", "torch", "torch alone")
VOCABULARY = 256


@dataclass(frozen=True)
class Setting:
    """The model, and what a rank does."""

    layers: int = 6
    width: int = 384
    length: int = 128
    batch: int = 4  # samples of a rank
    steps: int = 10


def gpt(nn: Any, functional: Any, arange: Callable[[int], Any], setting: Setting) -> Any:
    """A GPT in the words that torch and ridgeline share."""
    width, heads = setting.width, max(1, setting.width // 64)

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            shape = batch, length, heads, width // heads
            parts = self.mixed(self.before(x)).split(width, dim=2)
            q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Gpt(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, width)
            self.places = nn.Embedding(setting.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(setting.layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.tokens(x) + self.places(arange(x.shape[1]))
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h))

    return Gpt()


Seconds = list[tuple[float, float]]  # of the clock and of processors, a pair for each step


def timed(step: Callable[[], float], meet: Callable[[], None], count: int) -> Seconds:
    """Seconds of steps that all ranks begin together, after two that are not counted."""
    found = []
    for number in range(count + 2):
        meet()
        began, busy = time.perf_counter(), time.process_time()
        step()
        if number >= 2:
            found.append((time.perf_counter() - began, time.process_time() - busy))
    return found


def run_ridgeline(setting: Setting, alone: bool) -> tuple[int, Seconds]:
    """Steps of this rank of a mesh, or of one that trains by itself."""
    import numpy as np

    import ridgeline as rl
    from ridgeline import distributed as dist, nn, optim

    rl.config.threads = 1
    rl.manual_seed(0)
    world = dist.world()
    model = gpt(nn, nn.functional, rl.arange, setting)
    batch = setting.batch
    if not alone:
        model = dist.parallelize(model, dist.Mesh(dp=world.size))
        batch *= world.size  # of which each rank takes its share
    optimizer = optim.AdamW(model.parameters(), lr=3e-4)
    random = np.random.default_rng(0)
    x, y = (rl.tensor(random.integers(0, VOCABULARY, (batch, setting.length))) for _ in range(2))

    @rl.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return world.rank, timed(lambda: step(x, y).item(), world.barrier, setting.steps)


def run_torch(setting: Setting, alone: bool) -> tuple[int, Seconds]:
    """Steps of this rank under DDP, or without communication."""
    import torch
    import torch.distributed as group
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    group.init_process_group("gloo")
    model = DistributedDataParallel(gpt(torch.nn, torch.nn.functional, torch.arange, setting))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(group.get_rank())
    x, y = (torch.randint(0, VOCABULARY, (setting.batch, setting.length)) for _ in range(2))

    def step() -> float:
        optimizer.zero_grad()
        with model.no_sync() if alone else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
        optimizer.step()
        return float(loss.item())

    found = timed(step, group.barrier, setting.steps)
    rank = group.get_rank()
    group.destroy_process_group()
    return rank, found


def job(candidate: str, ranks: int, setting: Setting) -> dict[str, float]:
    """The median step of a job, in seconds: of each step the slowest rank's."""
    wanted = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        own = ["-m", "benchmarks.distributed", "--rank-of", candidate, "--into", folder]
        own += ["--setting", json.dumps(asdict(setting))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if candidate.startswith("ridgeline"):
            launch = [sys.executable, "-m", "ridgeline", "launch", "-n", str(ranks), *own]
            subprocess.run(launch, env=environment, check=True)
        else:
            _start_as_torchrun(own, ranks, environment)
        times = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    assert len(times) == ranks, f"{candidate}: {len(times)} of {ranks} ranks came to an end"
    steps = list(zip(*times, strict=True))
    return {
        "step": statistics.median(max(clock for clock, _ in step) for step in steps),
        "processor": statistics.median(max(busy for _, busy in step) for step in steps),
        "load": wanted,
    }


def _start_as_torchrun(command: list[str], ranks: int, environment: dict[str, str]) -> None:
    """Processes with the variables that torchrun gives, which need nothing else here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**shared, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks)},
        )
        for r in range(ranks)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit("a rank of torch's failed")


Rounds = list[dict[str, dict[str, float]]]


def report(ranks: int, rounds: Rounds) -> str:
    """The table of one number of ranks."""
    lines = []
    for what in ("step", "processor"):
        middle = {n: statistics.median(each[n][what] for each in rounds) for n in CANDIDATES}
        ratio = statistics.median(e["ridgeline"][what] / e["torch"][what] for e in rounds)
        unit = "ms" if what == "step" else "ms of a processor"
        lines.append(f"{ranks} ranks, {len(rounds)} rounds: {ratio:.2f} of DDP's {unit} a step")
        for name in ("ridgeline", "torch"):
            step, without = middle[name], middle[f"{name} alone"]
            lines.append(
                f"  {name:<10} {step * 1e3:8.1f} {unit} a step, {without * 1e3:8.1f} without "
                f"communication: exposed {max(0.0, 1 - without / step):6.1%}, "
                f"efficiency {without / step:.2f}"
            )
    most = max(each[name]["load"] for each in rounds for name in CANDIDATES)
    lines.append(f"  programs that wanted a core beside it: up to {most:.1f} of {os.cpu_count()}")
    return "\n".join(lines)


def main() -> None:
    """Measure, or be one rank of what is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    for name, value in asdict(Setting()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for hidden in ("--rank-of", "--into", "--setting"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        setting = Setting(**json.loads(options.setting))
        run = run_ridgeline if options.rank_of.startswith("ridgeline") else run_torch
        rank, times = run(setting, options.rank_of.endswith("alone"))
        Path(options.into, f"{rank}.json").write_text(json.dumps(times))
        return
    setting = Setting(**{name: getattr(options, name) for name in asdict(Setting())})
    print(
        f"GPT {setting.layers}x{setting.width}, {setting.batch} samples of {setting.length} a rank"
    )
    date = datetime.now(UTC).isoformat(timespec="seconds")
    data: dict[str, Any] = {"date": date, "machine": machine.describe(), "ranks": {}}
    data["setting"] = asdict(setting)
    for ranks in options.ranks:
        rounds = [
            {name: job(name, ranks, setting) for name in CANDIDATES} for _ in range(options.rounds)
        ]
        data["ranks"][str(ranks)] = rounds
        print(report(ranks, rounds), flush=True)
    if not options.no_save:
        print(f"stored in {write_json(data, subject='distributed')}", file=sys.stderr)


if __name__ == "__main__":
    main()
