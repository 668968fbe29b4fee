"""Run test suites that others wrote, whole, and print one line of counts for each.

Nothing of these suites is part of this repository: give the places where they lie.

    python tools/run_suites.py --array-api CHECKOUT   data-apis/array-api-tests, with its array-api
                                                      submodule filled in at the pinned commit
    python tools/run_suites.py --einops               the tests inside the einops wheel
    python tools/run_suites.py --adapters FOLDER      scripts that take a module's name and print a
                                                      JSON line: dlpack_check.py, einsum_fuzz.py,
                                                      gradcheck_xp.py
    python tools/run_suites.py --adapters FOLDER --opinfo CASES...
                                                      torch's OpInfo samples, frozen by the folder's
                                                      opinfo_dump.py, run by its opinfo_run.py

Needs pytest, pytest-json-report, hypothesis and ndindex for the first, einops for the second,
opt_einsum for the third. `--tier` picks how programs run: interpreter, compiled or auto. `--device
cuda` runs OpInfo's samples on a GPU, `--jobs` in several processes. Allowed exceptions, with
reasons, are listed in tests/array_api/exceptions.md and docs/conformance.md. The status is the
number of suites in which something failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS: dict[str, tuple[str, ...]] = {  # a script and its options
    "dlpack_check.py": (), "einsum_fuzz.py": (), "gradcheck_xp.py": ("--second",),
}  # fmt: skip
LOOSE = ("--rtol", "2e-2", "--atol", "2e-2")  # bfloat16 has two to three digits


def environment(tier: str, **more: str) -> dict[str, str]:
    """The variables a suite runs with: this tree first, one tier."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "RIDGELINE_TIER": tier, **more}


def pytest_counts(
    arguments: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Run pytest in a folder; outcomes counted, failures named."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.json")
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line",
            "--json-report", "--json-report-omit=collectors,log,streams,warnings",
            f"--json-report-file={report}", *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
        if not report.exists():
            raise SystemExit(f"pytest gave no report:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        tests = json.loads(report.read_text())["tests"]
    outcomes = collections.Counter(test["outcome"] for test in tests)
    failed = [test["nodeid"] for test in tests if test["outcome"] in ("failed", "error")]
    return {"tests": len(tests), **outcomes, "failures": failed}


def array_api(checkout: Path, tier: str, examples: int, version: str) -> dict[str, Any]:
    """The suite of the Array API standard, derandomised so that two runs agree."""
    variables = environment(
        tier,
        ARRAY_API_TESTS_MODULE="ridgeline.array_api",
        ARRAY_API_TESTS_VERSION=version,
    )
    options = ["--max-examples", str(examples), "--derandomize", "--disable-deadline"]
    return pytest_counts(["array_api_tests/", *options], checkout, variables)


def einops(tier: str) -> dict[str, Any]:
    """The tests inside the einops wheel, on the backend in ridgeline/interop."""
    variables = environment(tier, EINOPS_TEST_BACKENDS="ridgeline")
    plugin = ["-p", "tests.array_api.einops_plugin", "-c", os.devnull]
    return pytest_counts([*plugin, "--pyargs", "einops.tests"], ROOT, variables)


def adapter(script: Path, tier: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """A script that checks a module and prints a JSON line."""
    command = [sys.executable, str(script), "ridgeline", *options]
    done = subprocess.run(command, env=environment(tier), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    failures = found.get("failed") or found.get("first_bad") or found.get("bad") or []
    return {**found, "failures": list(failures)}


def opinfo(runner: Path, cases: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Frozen OpInfo samples in value and gradient; every entry that is not clean is named."""
    with open(cases, "rb") as file:
        labels = list(dict.fromkeys(_label(op) for op in pickle.load(file)["ops"]))
    parts = [labels[start :: options.jobs] for start in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(partial(_opinfo_part, runner, cases, options), parts)
        entries = [entry for part in found for entry in part]
    statuses = collections.Counter(entry["status"] for entry in entries)
    samples, gradients = collections.Counter[str](), collections.Counter[str]()
    for entry in entries:
        count = entry["cases"]  # of an entry that is missing, just a number
        samples.update(count if isinstance(count, dict) else {entry["status"]: count})
        gradients.update(entry.get("grads", {}))
    bad = [
        f"{entry['op']}: {entry['status']} {entry.get('why', '')}"
        for entry in entries
        if entry["status"] != "pass" or entry["grads"].get("fail")
    ]
    counts = {"entries": dict(statuses), "cases": dict(samples), "grads": dict(gradients)}
    return {**counts, "failures": bad}


def _label(op: Mapping[str, Any]) -> str:
    """The name under which the runner knows an entry."""
    return f"{op['name']}.{op['variant']}" if op["variant"] else str(op["name"])


def _opinfo_part(
    runner: Path, cases: Path, options: argparse.Namespace, labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Records of some entries, run in a process of their own; one that ends it has crashed."""
    found: list[dict[str, Any]] = []
    left = list(labels)
    while left:
        records, ending = _opinfo_process(runner, cases, options, left)
        found += records
        done = {record["op"] for record in records}
        left = [label for label in left if label not in done]
        if ending and left:
            found.append({"op": left.pop(0), "status": "crash", "cases": 1, "why": ending})
        elif left:
            raise SystemExit(f"{cases.name}: nothing was said about {left}")
    return found


def _opinfo_process(
    runner: Path, cases: Path, options: argparse.Namespace, labels: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """What a process recorded, and how it ended if not well."""
    match = f"^({'|'.join(map(re.escape, labels))})$"
    place = "like:ridgeline" if options.device == "cpu" else "on_gpu:OnGpu"
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "entries.jsonl")
        command = [sys.executable, "-X", "faulthandler", str(runner), str(cases), place, "--grads"]
        command += ["--match", match, "--out", str(lines), "--per-entry", str(options.samples)]
        command += LOOSE if "bfloat16" in cases.name else ()
        variables = environment(options.tier)
        variables["PYTHONPATH"] += os.pathsep + str(ROOT / "tools")
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode > 0:
            raise SystemExit(f"{cases.name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        records = [json.loads(line) for line in lines.read_text().splitlines()]
    ended = f"signal {-done.returncode}\n{done.stderr[-2000:]}" if done.returncode else ""
    return records, ended


def chosen(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """The suites that were asked for, by name."""
    suites: dict[str, Callable[[], dict[str, Any]]] = {}
    if options.array_api:
        suites["array-api"] = lambda: array_api(
            options.array_api, options.tier, options.examples, options.version
        )
    if options.einops:
        suites["einops"] = lambda: einops(options.tier)
    if options.adapters and not options.opinfo:
        for name, more in ADAPTERS.items():
            suites[name] = partial(adapter, options.adapters / name, options.tier, more)
    if options.adapters:
        for cases in options.opinfo:
            runner = options.adapters / "opinfo_run.py"
            suites[f"opinfo {cases.stem}"] = partial(opinfo, runner, cases, options)
    return suites


def main() -> int:
    """Run the suites that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--array-api", type=Path, metavar="CHECKOUT")
    parser.add_argument("--einops", action="store_true")
    parser.add_argument("--adapters", type=Path, metavar="FOLDER")
    parser.add_argument("--opinfo", type=Path, metavar="CASES", nargs="+", default=[])
    parser.add_argument(
        "--tier", default="interpreter", choices=("interpreter", "compiled", "auto")
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of --opinfo")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share --opinfo")
    parser.add_argument("--samples", type=int, default=10**9, help="of each entry of --opinfo")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--version", default="2025.12")
    options = parser.parse_args()
    if options.opinfo and not options.adapters:
        parser.error("--opinfo needs --adapters, the folder with opinfo_run.py")
    suites = chosen(options)
    if not suites:
        parser.error("name at least one suite")
    broken = 0
    for name, run in suites.items():
        begin = time.monotonic()
        counts = run()
        failures = counts.pop("failures")
        print(f"{name} {json.dumps(counts)} {time.monotonic() - begin:.0f} s", flush=True)
        for failure in failures:
            print("  failed:", failure)
        broken += bool(failures)
    return broken


if __name__ == "__main__":
    sys.exit(main())
