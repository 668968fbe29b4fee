"""Record every example program, planted and repaired, as torch.profiler traces.

    python benchmarks/traces/record.py --device cuda --out runs/traces

writes one `.json.gz` a form and `times.<device>.json` with the step times measured without the
profiler. `trim.py` then makes them small enough to keep as test data.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from pathlib import Path

import compute_programs
import input_programs
import launch_programs
import torch
import tuned_programs
from harness import Program, record

ALL: tuple[Program, ...] = (
    *input_programs.PROGRAMS,
    *launch_programs.PROGRAMS,
    *compute_programs.PROGRAMS,
    *tuned_programs.PROGRAMS,
)


def record_all(device: torch.device, only: set[str], out: Path) -> dict[str, dict[str, float]]:
    """Record both forms of each program; one that fails is reported and left out."""
    times: dict[str, dict[str, float]] = {}
    for program in ALL:
        if device.type not in program.devices or (only and program.name not in only):
            continue
        for repaired in (False,) if program.rule == "none" else (False, True):
            form = "repaired" if repaired else "planted"
            start = time.perf_counter()
            try:
                recording = record(program, device, repaired, out)
            except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError):
                traceback.print_exc()
                print(f"{program.name:22} {form:9} FAILED", flush=True)
                continue
            times.setdefault(program.name, {})[form] = round(recording.step_ms, 4)
            size = recording.path.stat().st_size / 1e6
            print(
                f"{program.name:22} {form:9} {recording.step_ms:9.3f} ms/step "
                f"{size:7.2f} MB  took {time.perf_counter() - start:5.1f} s",
                flush=True,
            )
        (out / f"times.{device.type}.json").write_text(json.dumps(times, indent=1) + "\n")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    if arguments.device == "cpu":
        # One thread: a busy machine then lengthens a step instead of upsetting it.
        torch.set_num_threads(1)
    record_all(torch.device(arguments.device), set(arguments.only), arguments.out)


if __name__ == "__main__":
    main()
