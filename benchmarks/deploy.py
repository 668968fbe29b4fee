"""Program files beside `jit`: size, seconds to export and load, a call, equal bits.

    python -m benchmarks.deploy [lenet resnet18 gpt]

Calls of both are interleaved; a figure is the least of several rounds. The call from C is timed by
a loop in C, where there is a compiler (the wheel `ziglang`, or the system's).
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.models import GPT2, GPT2Config, lenet5, resnet18

ROUNDS = 12
_LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "f.h"
int main(int count, char **arguments) {
  int calls = atoi(arguments[count - 1]);
  const rlx_description *about = f_describe();
  void *x = calloc(1, about->inputs[0].bytes), *y = NULL;
  posix_memalign(&y, 64, about->outputs[0].bytes);
  const void *inputs[] = {x};
  void *outputs[] = {y};
  rlx_program *program;
  if (f_open(NULL, &program)) return 1;
  double best = 1e18;
  for (int round = 0; round < 20; round++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < calls; i++)
      if (f_run(program, inputs, outputs, NULL)) return 2;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double time = ((b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) * 1e-9) / calls;
    if (time < best) best = time;
  }
  printf("%.9f\n", best);
  return 0;
}
"""


def workload(name: str) -> tuple[Any, Any]:
    """A model and its input."""
    rl.manual_seed(0)
    if name == "lenet":
        return lenet5(), rl.randn(1, 1, 32, 32)
    if name == "resnet18":
        return resnet18().eval(), rl.randn(1, 3, 224, 224)
    config = GPT2Config(
        vocab_size=512, n_positions=128, n_embd=256, n_layer=4, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2(config).eval(), rl.randint(0, 512, (1, 128))


def compiler() -> list[str] | None:
    """A C compiler, if there is one."""
    found = shutil.which("cc")
    if found:
        return [found]
    wheel = importlib.util.find_spec("ziglang") is not None
    return [sys.executable, "-m", "ziglang", "cc"] if wheel else None


def seconds(call: Callable[[], object], calls: int) -> float:
    """Seconds of a call, over several."""
    begin = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begin) / calls


def from_c(jitted: Any, x: Any, folder: Path, calls: int) -> float | None:
    """Seconds of a call in a loop in C."""
    found = compiler()
    if found is None:
        return None
    jitted.export(folder / "f.o", x, prefix="f")
    (folder / "loop.c").write_text(_LOOP)
    made = [*found, "-O2", "-w", "-D_GNU_SOURCE", "loop.c", "f.o", "-lm", "-o", "loop"]
    subprocess.run(made, cwd=folder, check=True)
    said = subprocess.run(["./loop", str(calls)], cwd=folder, capture_output=True, check=True)
    return float(said.stdout)


def measure(name: str) -> None:
    """Print the figures of one model."""
    model, x = workload(name)
    jitted = rl.jit(model)
    weights = sum(p.numel() * p.dtype.itemsize for p in model.parameters())
    weights += sum(b.numel() * b.dtype.itemsize for b in model.buffers())
    with tempfile.TemporaryDirectory() as made, rl.no_grad():
        folder = Path(made)
        path = folder / "f.rlx"
        cold = seconds(lambda: jitted.export(path, x), 1)
        warm = seconds(lambda: jitted.export(path, x), 1)
        load = min(seconds(lambda: rl.load_program(path), 1) for _ in range(5))
        program = rl.load_program(path)
        result = jitted(x)
        want = (result if isinstance(result, rl.Tensor) else result[0]).numpy()
        given = program(x)
        got = (given if isinstance(given, rl.Tensor) else given[0]).numpy()
        once = seconds(lambda: jitted(x), 3)
        calls = max(1, int(0.05 / once))
        times = [
            (seconds(lambda: jitted(x), calls), seconds(lambda: program(x), calls))
            for _ in range(ROUNDS)
        ]
        own, file = (min(column) for column in zip(*times))
        native = from_c(jitted, x, folder, calls)
        same = "equal to the bit" if np.array_equal(want, got) else "NOT EQUAL"
        print(
            f"{name}: {path.stat().st_size:,} bytes ({path.stat().st_size - weights:,} besides "
            f"weights), export {cold:.2f} s, again {warm:.2f} s, load {load * 1e3:.2f} ms; "
            f"jit {own * 1e6:.1f} us, file from Python {file * 1e6:.1f} us"
            + ("" if native is None else f", from C {native * 1e6:.1f} us ({native / own:.2f})")
            + f"; {same}",
            flush=True,
        )


if __name__ == "__main__":
    for each in sys.argv[1:] or ("lenet", "resnet18", "gpt"):
        measure(each)
