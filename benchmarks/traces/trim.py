"""Make recorded traces small and anonymous: what the rules read stays, the rest goes.

    python benchmarks/traces/trim.py runs/traces tests/profile/traces

drops flow arrows, frames of library code and identifiers of the machine, and shortens paths.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

LIBRARY = re.compile(
    r"^(<|torch/|torchvision/|nn\.Module|multiprocessing/|importlib/|collections/|json/|logging/"
    r"|(threading|typing|contextlib|functools|queue|selectors|random|copy|enum|abc|inspect|weakref"
    r"|dataclasses|traceback|linecache|tokenize|re|os|posixpath|subprocess|ast|types|operator"
    r"|warnings|socket|tempfile|signal|pickle|string|uuid|textwrap|copyreg|gettext|runpy|heapq"
    r"|bisect|platform|sysconfig|shutil|hashlib|hmac|base64|struct|gzip|statistics|numbers)\.py)"
    r"|site-packages|dist-packages|/lib/python3|sympy/|numpy/|triton/|optree/|encodings/|asyncio/"
)
ARGUMENTS = frozenset(
    ("External id", "Sequence number", "Input Dims", "Input type", "Input Strides",
     "Concrete Inputs", "correlation", "stream", "device", "grid", "block", "bytes",
     "registers per thread", "shared memory", "est. achieved occupancy %", "Total Allocated",
     "Total Reserved", "Bytes", "Device Type", "Device Id")
)  # fmt: skip
UNUSED_FIELDS = ("host_name", "trace_id", "traceName")


def kept(event: dict[str, Any]) -> bool:
    """Whether an event is one the rules may look at."""
    if event.get("ph") in ("s", "f", "t") or event.get("cat") in ("overhead", "Trace"):
        return False
    if event.get("cat") == "python_function":
        return not LIBRARY.search(event["name"])
    return event.get("ph") != "M" or event.get("name") == "process_name"


def shortened(event: dict[str, Any]) -> dict[str, Any]:
    """The event without arguments nobody reads and without the path of a checkout."""
    arguments = {k: v for k, v in event.get("args", {}).items() if k in ARGUMENTS}
    if event.get("cat") == "python_function":
        event["name"] = re.sub(r"^/.*/(?=[^/(]+\.py\()", "", event["name"])
    if arguments.get("Concrete Inputs") and event["name"] not in CONCRETE:
        del arguments["Concrete Inputs"]
    event.pop("args", None)
    return {**event, "args": arguments} if arguments else event


CONCRETE = {"aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::to",
            "aten::convolution_backward", "aten::mkldnn_convolution"}  # fmt: skip


def trim(source: Path, target: Path) -> None:
    """Write the trimmed form of one `.json.gz` trace."""
    with gzip.open(source, "rt") as stream:
        trace = json.load(stream)
    for name in UNUSED_FIELDS:
        trace.pop(name, None)
    events = [shortened(event) for event in trace.pop("traceEvents") if kept(event)]
    body = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    head = json.dumps(trace, separators=(",", ":"))[:-1]
    # mtime=0 keeps the file the same when nothing in it changed.
    with open(target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream:
        stream.write(f'{head},"traceEvents":[\n{body}\n]}}\n'.encode())


def main(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.json.gz")):
        trim(path, target / path.name)
        print(f"{path.name}: {path.stat().st_size} -> {(target / path.name).stat().st_size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
