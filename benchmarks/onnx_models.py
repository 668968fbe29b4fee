"""Models in ONNX files beside ONNX Runtime: the largest difference, and the time of a call.

    python -m benchmarks.onnx_models FILES AND FOLDERS… [--threads 1,2] [--rounds 40] [--json PATH]

Files are those inside public packages, say: `python -m pip download --no-deps rapidocr`, of which
the wheel is unpacked. Each model has a process of its own; its module is jitted and called in turns
with ONNX Runtime, each call by itself. Ratios are of medians and of least times, and with one
thread of the least times of the processor, which say most on a machine with other work. Inputs are
random, of the sizes that the packages use (`USES`), and 1 where nothing is known of an axis.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.process import ROOT

SECONDS = 600  # for one model
LEAST = 0.05  # seconds of rounds at the least
_SPEECH = {"waveforms": (1, 16000), "waveforms_lens": (1,)}
_STATE = {"state": (2, 1, 128), "h": (2, 1, 64), "c": (2, 1, 64)}
# by the name of a file and of what goes in: the shapes of inputs
USES: tuple[tuple[str, dict[str, tuple[int, ...]]], ...] = (
    (r"det", {"x": (1, 3, 640, 640)}),
    (r"rec", {"x": (1, 3, 48, 320)}),
    (r"PP-OCRv2_rec", {"x": (1, 3, 32, 100)}),
    (r"cls", {"x": (1, 3, 48, 192)}),
    (r"orientation", {"x": (1, 3, 224, 224)}),
    (r"320n", {"images": (1, 3, 320, 320)}),
    (r"common", {"input1": (1, 1, 64, 192)}),
    (r"plcmos", {"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)}),
    (r"Run_", {"input": (1, 3, 200, 160)}),
    (r"silero_vad_v6|16k_sequence", {"input": (32, 576)}),
    (r"silero", {"input": (1, 576), **_STATE}),
    (r"onnx_asr", _SPEECH),
)
NUMBERS = {"sr": 16000, "waveforms_lens": 16000}  # what an input holds
HIGHEST = {"bytes": 256}  # of random integers
TIMES = ("ours_s", "theirs_s", "ours_cpu_s", "theirs_cpu_s")  # of calls: by the clock, then used


def arrays(path: Path, inputs: Any) -> dict[str, Any]:
    """Random inputs of a model."""
    draw = np.random.default_rng(0)
    known: dict[str, tuple[int, ...]] = {}
    for pattern, shapes in reversed(USES):
        known |= shapes if re.search(pattern, path.name) else {}
    made = {}
    for port in inputs:
        declared = [n if isinstance(n, int) else None for n in port.shape]
        wanted = known.get(port.name, (1,) * len(declared))
        if len(wanted) != len(declared):
            wanted = (1,) * len(declared)
        shape = tuple(b if a is None else a for a, b in zip(declared, wanted))
        kind = np.dtype({"float": "f4", "double": "f8"}.get(port.type[7:-1], port.type[7:-1]))
        if port.name in NUMBERS:
            made[port.name] = np.full(shape, NUMBERS[port.name], kind)
        elif kind.kind == "f":
            made[port.name] = (draw.standard_normal(shape) * 0.5).astype(kind)
        else:
            made[port.name] = draw.integers(0, HIGHEST.get(port.name, 2), shape).astype(kind)
    return made


def session(path: Path, threads: int) -> Any:
    """The model in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)


def measured(path: Path, threads: list[int], rounds: int) -> dict[str, Any]:
    """The figures of one model, in this process."""
    import ridgeline as rl

    given = arrays(path, session(path, 1).get_inputs())
    module = rl.onnx.load(path).eval()
    jitted = rl.jit(module)
    tensors = {name: rl.tensor(array) for name, array in given.items()}

    def ours() -> list[Any]:
        with rl.no_grad():
            found = jitted(*[tensors[port.name] for port in module.model.inputs])
        several = found if isinstance(found, tuple) else (found,)
        return [each.numpy() if isinstance(each, rl.Tensor) else each for each in several]

    data: dict[str, Any] = {"inputs": {n: list(a.shape) for n, a in given.items()}}
    for count in threads:
        rl.set_num_threads(count)
        theirs = session(path, count)
        begin = perf_counter()
        found = ours()
        data.setdefault("first_s", perf_counter() - begin)
        data.setdefault("error", apart(found, theirs.run(None, given)))
        times = in_turns([ours, lambda theirs=theirs: theirs.run(None, given)], rounds)
        data[str(count)] = dict(zip(TIMES, times))
    return data


def apart(found: list[Any], expected: list[Any]) -> float:
    """The largest difference, by 1 and the largest number of a result."""
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if np.shape(one) != np.shape(other):
            return math.inf
        a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
        worst = max(worst, float(np.max(np.abs(a - b), initial=0) / (1 + np.abs(b).max(initial=0))))
    return worst


def in_turns(calls: list[Any], rounds: int) -> list[list[float]]:
    """Seconds of calls that take turns by the clock, and then of the processor.

    Some calls of each come before that are not counted.
    """
    clock: list[list[float]] = [[] for _ in calls]
    used: list[list[float]] = [[] for _ in calls]
    for call in calls * 3:
        call()
    while len(clock[0]) < rounds or sum(clock[0]) < LEAST:
        for number, call in enumerate(calls):
            begin, before = perf_counter(), process_time()
            call()
            used[number].append(process_time() - before)
            clock[number].append(perf_counter() - begin)
    return [*clock, *used]


def in_process(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.onnx_models", str(path.resolve()), "--one"]
    command += ["--threads", given.threads, "--rounds", str(given.rounds)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {SECONDS} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().split("\n")[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def files(paths: list[Path]) -> Iterator[Path]:
    """The files among paths, and those in folders."""
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def ratios(row: dict[str, Any], threads: str) -> list[float]:
    """Our time by ONNX Runtime's: of medians, of the least, of the processor's with one thread."""
    ours, theirs, ours_cpu, theirs_cpu = (row[threads][name] for name in TIMES)
    found = [median(ours) / median(theirs), min(ours) / min(theirs)]
    return [*found, min(ours_cpu) / min(theirs_cpu)] if threads == "1" else found


def shown(numbers: list[float]) -> str:
    """Ratios for people."""
    first, *rest = (f"{number:.2f}" for number in numbers)
    return f"{first} ({', '.join(rest)})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_models", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    counts = [int(n) for n in given.threads.split(",")]
    if given.one:
        print(json.dumps(measured(given.paths[0], counts, given.rounds)))
        return
    rows: dict[str, dict[str, Any]] = {}
    for path in files(given.paths):
        row = rows[path.name] = in_process(path, given)
        if "failed" in row:
            print(f"{path.name}: {row['failed']}", flush=True)
            continue
        said = [
            f"{n} threads {min(row[str(n)]['ours_s']) * 1e3:.3f} ms, {shown(ratios(row, str(n)))}"
            for n in counts
        ]
        print(f"{path.name}: error {row['error']:.1e}; {'; '.join(said)}", flush=True)
    done = [row for row in rows.values() if "failed" not in row]
    for n in counts if done else ():
        columns = list(zip(*(ratios(row, str(n)) for row in done)))
        mean, highest = shown([*map(geometric_mean, columns)]), shown([*map(max, columns)])
        print(f"{len(done)} models, {n} threads: geometric mean {mean}; highest {highest}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
