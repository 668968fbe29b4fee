"""torch.compile with our backend on a CPU: what a call costs, and a GPT step beside Inductor.

    python -m benchmarks.torch_backend [overhead gpt] [--threads N] [--json]

`overhead`: microseconds of a call of a small function of 1, 10 and 50 tensors. Inference is beside
a backend that does nothing, forward and backward together beside an `autograd.Function` that
computes nothing: it gives a new tensor, and a new one for every input as gradients. Candidates are
interleaved, and a figure is the least of many short blocks.

`gpt`: a training step (`workloads/gpt_step.py`), forward compiled, each candidate in processes of
its own: the first call with empty caches, with those that it left, and the least of later steps,
for which the candidates take turns. "eager" is Dynamo with a backend that does nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import machine
from benchmarks.process import ROOT
from benchmarks.report import write_json
from benchmarks.workloads.gpt_step import SETTINGS, SMALL, network

COUNTS = (1, 10, 50)
BLOCKS, BLOCK_US = 400, 200.0
BACKENDS = ("ridgeline", "inductor", "eager")
TURNS, STEPS = 6, 4

Call = Callable[[], object]


# ---- what a call costs ---------------------------------------------------------------------------


def least(calls: dict[str, Call]) -> dict[str, float]:
    """Microseconds of calls: the least of many blocks, in turns, too short to be interrupted."""
    found = dict.fromkeys(calls, float("inf"))
    gc.disable()
    for _ in range(BLOCKS):
        for name, call in calls.items():
            count = max(1, min(50, int(BLOCK_US / found[name])))
            begin = perf_counter()
            for _ in range(count):
                call()
            found[name] = min(found[name], (perf_counter() - begin) / count * 1e6)
    gc.enable()
    return found


def squares(tensors: list[Any]) -> Any:
    """The sum of squares of tensors."""
    total = tensors[0] * tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor * tensor
    return total


def inference(tensors: list[Any], backend: Any) -> Call:
    """A compiled call."""
    import torch

    run = torch.compile(lambda given: squares(given), backend=backend)
    run(tensors)
    return lambda: run(tensors)


def training(tensors: list[Any], backend: Any) -> Call:
    """A compiled call, and its gradients as `backward` leaves them in tensors."""
    import torch

    run = torch.compile(lambda given: squares(given), backend=backend)
    seed = torch.ones(4)

    def both() -> None:
        torch.autograd.backward(run(tensors), seed)
        for tensor in tensors:
            tensor.grad = None

    both()
    return both


def overhead() -> dict[str, dict[str, float]]:
    """Microseconds by the number of tensors."""
    import torch

    class Empty(torch.autograd.Function):  # type: ignore[misc]  # torch is seen without types
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            return torch.empty(4)

        @staticmethod
        def backward(ctx: Any, given: Any) -> Any:
            return tuple([torch.empty(4) for _ in ctx.saved_tensors])

    def nothing(module: Any, inputs: Any) -> Any:
        made = torch.zeros(4)
        return lambda *args: (made,)

    def empty(module: Any, inputs: Any) -> Any:
        return lambda *args: (Empty.apply(*args),)

    found = {}
    for count in COUNTS:
        torch._dynamo.reset()
        plain = [torch.randn(4) for _ in range(count)]
        variables = [torch.randn(4, requires_grad=True) for _ in range(count)]
        times = least({
            "inference, nothing": inference(plain, nothing),
            "inference, ridgeline": inference(plain, our_backend()),
            "training, empty": training(variables, empty),
            "training, ridgeline": training(variables, our_backend()),
        })  # fmt: skip
        more = {
            kind: times[f"{kind}, ridgeline"] - times[f"{kind}, {other}"]
            for kind, other in (("inference", "nothing"), ("training", "empty"))
        }
        bars = {"inference": 10 + 0.1 * count, "training": 20.0}
        said = [f"{k} +{v:.1f} (bar {bars[k]:.0f})" for k, v in more.items()]
        print(f"{count} tensors: {', '.join(said)} microseconds", flush=True)
        found[str(count)] = times
    return found


def our_backend() -> Any:
    """The backend, which torch does not find by its name in a checkout."""
    from ridgeline.torch_backend import ridgeline

    return ridgeline


# ---- a training step -----------------------------------------------------------------------------


def gpt_step(backend: str) -> Call:
    """A step over one batch."""
    import torch

    torch.manual_seed(0)
    model = network(torch.nn)
    optimizer = torch.optim.AdamW(model.parameters(), **SETTINGS)
    text = torch.randint(SMALL.vocabulary, (SMALL.batch, SMALL.length + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss_of(tokens: Any, targets: Any) -> Any:
        scores = model(tokens).reshape(-1, SMALL.vocabulary)
        return torch.nn.functional.cross_entropy(scores, targets.reshape(-1))

    chosen = our_backend() if backend == "ridgeline" else backend
    forward = torch.compile(loss_of, backend=chosen)

    def step() -> float:
        optimizer.zero_grad()
        loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def serve(backend: str, threads: int) -> None:
    """The first step, and for every line that is read the least of some more."""
    import torch

    torch.set_num_threads(threads)
    step = gpt_step(backend)
    begin = perf_counter()
    loss = step()
    print(json.dumps({"first_s": perf_counter() - begin, "loss": loss}), flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(STEPS):
            begin = perf_counter()
            step()
            times.append(perf_counter() - begin)
        print(json.dumps(times), flush=True)


def started(backend: str, threads: int, caches: Path) -> subprocess.Popen[str]:
    """A process that makes steps, with its caches in a folder."""
    environment = {
        **os.environ,
        "RIDGELINE_CACHE_DIR": str(caches / "ridgeline"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [sys.executable, "-m", "benchmarks.torch_backend", "gpt", "--serve", backend]
    return subprocess.Popen(
        [*command, "--threads", str(threads)], cwd=ROOT, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def answer(process: subprocess.Popen[str], ask: bool = True) -> Any:
    """What a process says next."""
    assert process.stdin is not None and process.stdout is not None
    if ask:
        process.stdin.write("\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


def gpt(threads: int) -> dict[str, Any]:
    """First calls and steps of each backend."""
    found: dict[str, dict[str, Any]] = {name: {} for name in BACKENDS}
    with tempfile.TemporaryDirectory(prefix="ridgeline-torch-") as folder:
        running = {}
        for state in ("cold", "warm"):
            for name in BACKENDS:
                process = started(name, threads, Path(folder, name))
                found[name][state] = answer(process, ask=False)
                if state == "warm":
                    running[name] = process
                else:
                    process.communicate()
        turns: dict[str, list[float]] = {name: [] for name in BACKENDS}
        for _ in range(TURNS):
            for name, process in running.items():
                turns[name] += answer(process)
        for process in running.values():
            process.communicate()
    for name, times in turns.items():
        found[name]["steps_s"] = times
        first = [found[name][state]["first_s"] for state in ("cold", "warm")]
        loss = found[name]["cold"]["loss"]
        print(f"{name}: first call {first[0]:.2f} s cold, {first[1]:.2f} s warm; step "
              f"{min(times) * 1e3:.1f} ms at least, loss {loss:.6f}")  # fmt: skip
    ours, theirs, plain = (found[name] for name in BACKENDS)
    cold = ours["cold"]["first_s"] / theirs["cold"]["first_s"]
    more = ours["warm"]["first_s"] - plain["warm"]["first_s"]
    steady = min(ours["steps_s"]) / min(theirs["steps_s"])
    print(f"cold {cold:.3f} of Inductor (bar 0.2); warm {more:+.2f} s over Dynamo (bar 0.5); "
          f"step {steady:.3f} of Inductor (bar 0.85)", flush=True)  # fmt: skip
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_backend", description=__doc__)
    parser.add_argument("what", nargs="*", help="overhead, gpt (both by default)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="keep a file of the results")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.threads)
        return
    data: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    data["machine"] = machine.describe()
    what = given.what or ["overhead", "gpt"]
    if "overhead" in what:
        data["overhead_us"] = overhead()
    if "gpt" in what:
        data["gpt"] = gpt(given.threads)
    if given.json:
        print(f"stored in {write_json(data, subject='torch-backend')}", file=sys.stderr)


if __name__ == "__main__":
    main()
