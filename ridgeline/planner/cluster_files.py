"""A cluster of one's own, as TOML; measured ceilings and `nccl-tests` results take a model's place.

gpu = "h100"                 # a name of `ridgeline gpu list`
gpus = 512                   # in all, unless --gpus says otherwise
price = 2.5                  # dollars a GPU and hour

[node]
gpus = 8
link = 450                   # GB/s to peers, in each direction

[network]
bandwidth = 50               # GB/s a GPU, in each direction
latency = 5                  # microseconds
pod = 256                    # GPUs with full bisection; 0 for all
oversubscription = 2         # between pods

[measured]
product_share = 0.68         # of peak, a large 16-bit product
memory_share = 0.85          # of bandwidth, a copy
memory = 77                  # GB of a GPU that a program can have
nccl_node = "node.txt"       # output of nccl-tests' all_reduce_perf, on one node
nccl_network = "net.txt"     # and over several
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.errors import BadValueError, InputFileError, MissingFileError
from ridgeline.planner.machines import Cluster, gpu_named, usual_cluster

_KNOWN: dict[str, dict[str, type]] = {
    "": {"gpu": str, "gpus": int, "price": float},
    "node": {"gpus": int, "link": float},
    "network": {"bandwidth": float, "latency": float, "pod": int, "oversubscription": float},
    "measured": {
        "product_share": float, "memory_share": float, "memory": float, "nccl_node": str,
        "nccl_network": str,
    },
}  # fmt: skip


def read_cluster(path: str | Path) -> tuple[Cluster, int | None]:
    """The cluster that a file describes, and how many GPUs it has where it says so."""
    file = Path(path)
    if file.is_char_device() or file.is_block_device():
        raise InputFileError(f"{path} is a device", help="give a file of TOML")
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from None
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputFileError(
            f"{path} is not TOML: {error}", help='a line is `name = value`, such as gpu = "h100"'
        ) from None
    values = _checked(found, str(path))
    if "gpu" not in values[""]:
        raise InputFileError(f"{path} does not say which GPU it has", help='add gpu = "h100"')
    return _cluster(values, file.parent), values[""].get("gpus")


def _checked(found: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The settings by table, each of its kind; unknown ones are refused with the nearest."""
    tables: dict[str, dict[str, Any]] = {"": {}, "node": {}, "network": {}, "measured": {}}
    for name, value in found.items():
        if isinstance(value, dict):
            if name not in _KNOWN:
                raise _unknown(name, [t for t in _KNOWN if t], where, "table")
            for inner, one in value.items():
                tables[name][inner] = _value(name, inner, one, where)
        else:
            tables[""][name] = _value("", name, value, where)
    return tables


def _value(table: str, name: str, value: Any, where: str) -> Any:
    kind = _KNOWN[table].get(name)
    if kind is None:
        raise _unknown(name, list(_KNOWN[table]), where, "setting")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = {int: "a whole number", float: "a number", str: "a text in quotes"}
        named = f"{table}.{name}" if table else name
        raise InputFileError(
            f"{where}: {named} is {value!r}, expected {kinds[kind]}",
            help=f"such as {name} = {_EXAMPLES[kind]}",
        )
    if isinstance(value, int | float):
        _check_number(table, name, value, where)
    return value


_EXAMPLES = {int: "8", float: "50.0", str: '"h100"'}
# Least and most of what machines have; beyond is a slip of the pen or of the unit.
_BOUNDS = {
    "gpus": (1, 10_000_000), "price": (0, 1e6), "link": (1e-3, 1e6), "bandwidth": (1e-3, 1e6),
    "latency": (1e-3, 1e6), "pod": (0, 10_000_000), "oversubscription": (0, 1e6),
    "product_share": (1e-3, math.inf), "memory_share": (1e-3, math.inf), "memory": (0.1, 1e5),
}  # fmt: skip


def _check_number(table: str, name: str, value: float, where: str) -> None:
    least, most = _BOUNDS[name]
    said = f"{where}: {table}.{name}" if table else f"{where}: {name}"
    if not (0 if least == 0 else math.ulp(0.0)) <= value < math.inf:
        raise InputFileError(f"{said} is {value}, expected more than 0")
    if not least <= value <= most:
        span = f"{least:g} to {most:g}" if most < math.inf else f"at least {least:g}"
        raise InputFileError(f"{said} is {value:g}, expected {span}")
    if name.endswith("_share") and value > 1:
        raise InputFileError(
            f"{said} is {value}, expected a share of 1", help=f"such as {value / 100:g}"
        )
    if name == "oversubscription" and value < 1:
        raise InputFileError(
            f"{said} is {value}, expected how many times narrower pods are linked",
            help="1 where they are not",
        )


def _unknown(name: str, known: list[str], where: str, what: str) -> BadValueError:
    near = difflib.get_close_matches(name, known, 1, 0.0)
    return BadValueError(
        f"{where}: there is no {what} {name!r}", help=f"the nearest is {near[0]!r}"
    )


def _cluster(values: dict[str, dict[str, Any]], folder: Path) -> Cluster:
    cluster = usual_cluster(gpu_named(values[""]["gpu"]))
    node, network, measured = values["node"], values["network"], values["measured"]
    changes: dict[str, Any] = {
        "node": node.get("gpus", cluster.node),
        "link": node.get("link", cluster.link),
        "network": network.get("bandwidth", cluster.network),
        "latency": network.get("latency", cluster.latency * 1e6) / 1e6,
        "pod": network.get("pod", 0),
        "oversubscription": network.get("oversubscription", 1.0),
        "price": values[""].get("price", cluster.price),
        "product_share": measured.get("product_share", 0.0),
        "memory_share": measured.get("memory_share", 0.0),
        "memory_measured": measured.get("memory", 0.0),
    }
    for key, field in (("nccl_node", "link_measured"), ("nccl_network", "network_measured")):
        if key in measured:
            reached = bus_bandwidth(folder / measured[key])
            # A ring over nodes is as fast as all of a node's cards.
            changes[field] = reached / (changes["node"] if key == "nccl_network" else 1)
    return replace(cluster, **changes)


def bus_bandwidth(path: Path) -> float:
    """The highest bus bandwidth, in GB/s, that the output of `nccl-tests` shows."""
    if path.exists() and not path.is_file():
        raise InputFileError(f"{path} cannot be read: it is no file")
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path} is no text: {error}") from None
    best = 0.0
    for line in lines:
        if not line.lstrip().startswith("#") and re.match(r"\s*\d+\s+\d+\s+\w+", line):
            # size, count, type, operation, root, then time, algorithm and bus bandwidth, errors
            numbers = [float(word) for word in line.split() if re.fullmatch(r"-?\d+(\.\d+)?", word)]
            if len(numbers) >= 6:
                best = max(best, numbers[5] if numbers[2] < 0 else numbers[4])
    if not best:
        raise InputFileError(
            f"{path} shows no bus bandwidth", help="give the output of nccl-tests' all_reduce_perf"
        )
    return best
