"""Kernels over graphs, written from templates with and without planted mistakes.

The shapes are those of graph analytics: a vertex for a thread, a warp or a block, once or in a
grid-stride loop, its neighbours forwards or backwards, and what is done with them: count, maximum,
pull, push, worklist, path compression. A mistake takes out an atomic, a barrier or a bound, or
reads plainly before an atomic. Labels follow from the template and not from any tool.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

VERTICES = 40
BLOCK = 64
Lines = list[str]


@dataclass(frozen=True)
class GraphKernel:
    """One kernel's text, launch and label; `error` is None where it has no mistake."""

    name: str
    text: str
    launch: tuple[int, int]
    error: str | None


def graph() -> dict[str, Any]:
    """A ring with chords and a hub: all vertices but one have neighbours on both sides."""
    draw = np.random.default_rng(5)
    neighbours: list[list[int]] = []
    for v in range(VERTICES):
        near = {(v + 1) % VERTICES, (v - 1) % VERTICES, *draw.integers(0, VERTICES, 3).tolist()}
        neighbours.append(sorted(near - {v}))
    neighbours[0] = list(range(1, VERTICES))
    neighbours[VERTICES - 1] = []
    starts = np.cumsum([0, *map(len, neighbours)]).astype(np.int32)
    flat = np.array(list(itertools.chain(*neighbours)), np.int32)
    return {
        "nindex": starts,
        "nlist": flat,
        "data1": np.full(len(flat), 1000, np.int32),
        "data2": np.arange(len(flat), dtype=np.int32) % 97,
    }


def _indented(lines: Lines, depth: int = 1) -> Lines:
    return ["    " * depth + line for line in lines]


def _vertices(unit: str, persistent: bool, bounds: bool, body: Lines) -> Lines:
    """The loop or the guard over vertices, of a thread, a warp or a block."""
    first = {
        "thread": "threadIdx.x + blockIdx.x * blockDim.x",
        "warp": "(threadIdx.x + blockIdx.x * blockDim.x) // 32",
        "block": "blockIdx.x",
    }[unit]
    step = {"thread": "gridDim.x * blockDim.x", "warp": "gridDim.x * blockDim.x // 32",
            "block": "gridDim.x"}[unit]  # fmt: skip
    limit = "numv + 1" if bounds else "numv"
    if persistent:
        return [f"for i in range({first}, {limit}, {step}):", *_indented(body)]
    return [f"i = {first}", f"if i < {limit}:", *_indented(body)]


def _neighbours(unit: str, backwards: bool, body: Lines, cond: bool) -> Lines:
    """The loop over a vertex's neighbours, and a condition that picks some of them."""
    offset = {"thread": "0", "warp": "lane", "block": "threadIdx.x"}[unit]
    step = {"thread": "1", "warp": "32", "block": "blockDim.x"}[unit]
    loop = f"range(beg + {offset}, end, {step})"
    if backwards:
        loop = f"range(end - 1 - {offset}, beg - 1, -{step})"
    inner = ["if i < nei:", *_indented(body)] if cond else body
    return [f"for j in {loop}:", "    nei = nlist[j]", *_indented(inner)]


EDGES = ["beg = nindex[i]", "end = nindex[i + 1]"]


def _update(op: str, element: str, value: str, bug: str) -> Lines:
    """An atomic update, or what people write instead of it."""
    plain = {"add": f"{element} += {value}", "max": f"{element} = max({element}, {value})",
             "min": f"{element} = min({element}, {value})"}[op]  # fmt: skip
    if bug == "atomic":
        return [plain]
    change = f"atomic_{op}({element}, {value})"
    if bug == "guard":
        return [f"if {element} {'<' if op == 'max' else '>'} {value}:", f"    {change}"]
    if bug == "scope":
        return [f'atomic_{op}({element}, {value}, scope="block")']
    return [change]


def _push(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    update = _update("min", "data1[nei]", "data2[i]", bug)
    body = [*EDGES, *_neighbours(unit, backwards, update, cond)]
    return _vertices(unit, persistent, bug == "bounds", body)


def _worklist(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    take = ["pos = data2[0]", "data2[0] = pos + 1"]
    if bug != "atomic":
        take = ["pos = atomic_add(data2[0], 1)"]
    body = [*EDGES, *_neighbours(unit, backwards, [*take, "data1[pos] = j"], cond)]
    return _vertices(unit, persistent, bug == "bounds", body)


def _maximum(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    """The greatest value of all neighbours, through registers and shared memory to one element."""
    gather = _neighbours(unit, backwards, ["val = max(val, data2[nei])"], cond)
    last = _update("max", "data1[0]", "val", bug)
    if unit == "thread":
        body = [*EDGES, "val = 0", *gather, *last]
    elif unit == "warp":
        body = [*EDGES, "val = 0", *gather, *_butterfly("max"), "if lane == 0:", *_indented(last)]
    else:
        body = ["syncthreads()", *EDGES, "val = 0", *gather, *_block_tree("max", bug),
                "if t == 0:", "    val = s[0]", *_indented(last)]  # fmt: skip
    return _vertices(unit, persistent, bug == "bounds", body)


def _pull(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    gather = _neighbours(unit, backwards, ["val += data2[nei]"], cond)
    if unit == "thread":
        body = [*EDGES, "val = 0", *gather, "data1[i] += val"]
    elif unit == "warp":
        body = [*EDGES, "val = 0", *gather, *_butterfly("add"), "if lane == 31:",
                "    data1[i] += val"]  # fmt: skip
    else:
        body = ["syncthreads()", *EDGES, "val = 0", *gather, *_block_warps(bug)]
    return _vertices(unit, persistent, bug == "bounds", body)


def _count(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    """How many edges lead upwards, by votes."""
    last = _update("add", "data1[0]", "total", bug)
    if unit == "thread":
        body = [*EDGES, "total = 0", *_neighbours(unit, backwards, ["total += 1"], True), *last]
    elif unit == "warp":
        body = [*EDGES, "total = 0", "j = beg + lane", "while simt.any(j < end):",
                "    nei = nlist[j] if j < end else i", "    total += popc(ballot(i < nei))",
                "    j += 32", "if lane == 0:", *_indented(last)]  # fmt: skip
    else:
        body = [*EDGES, "total = 0", "j = beg + t", "while syncthreads_or(j < end):",
                "    nei = nlist[j] if j < end else i", "    total += syncthreads_count(i < nei)",
                "    j += blockDim.x", "if t == 0:", *_indented(last)]  # fmt: skip
    return _vertices(unit, persistent, bug == "bounds", body)


def _butterfly(op: str) -> Lines:
    join = "val = max(val, shfl_xor(val, d))" if op == "max" else "val += shfl_xor(val, d)"
    return ["for d in (1, 2, 4, 8, 16):", f"    {join}"]


def _block_tree(op: str, bug: str) -> Lines:
    join = "s[t] = max(s[t], s[t + half])" if op == "max" else "s[t] += s[t + half]"
    return ["s[t] = val", *([] if bug == "sync" else ["syncthreads()"]),
            "half = blockDim.x // 2", "while half > 0:", "    if t < half:", f"        {join}",
            "    syncthreads()", "    half //= 2"]  # fmt: skip


def _block_warps(bug: str) -> Lines:
    """A sum of the block: each warp in registers, their sums through shared memory."""
    return [*_butterfly("add"), "if lane == 0:", "    s[warp] = val",
            *([] if bug == "sync" else ["syncthreads()"]),
            "if warp == 0:", "    val = s[lane]", *_indented(_butterfly("add")),
            "    if lane == 0:", "        data1[i] += val"]  # fmt: skip


def _compress(unit: str, persistent: bool, backwards: bool, cond: bool, bug: str) -> Lines:
    """Every vertex finds its root; others rewrite the paths meanwhile."""
    del unit, backwards, cond
    if bug == "atomic":
        body = ["v = i", "while v > data2[v]:", "    v = data2[v]", "data2[i] = v"]
    else:
        body = ["v = i", "p = atomic_load(data2, v)", "while v > p:", "    v = p",
                "    p = atomic_load(data2, v)", "atomic_store(data2, i, v)"]  # fmt: skip
    return _vertices("thread", persistent, bug == "bounds", body)


PATTERNS = {
    # pattern: how it is written, for which units, with which mistakes
    "push": (_push, ("thread", "warp", "block"), ("", "atomic", "guard", "scope", "bounds")),
    "worklist": (_worklist, ("thread", "warp", "block"), ("", "atomic", "bounds")),
    "maximum": (_maximum, ("thread", "warp", "block"),
                ("", "atomic", "guard", "scope", "bounds", "sync")),
    "pull": (_pull, ("thread", "warp", "block"), ("", "bounds", "sync")),
    "count": (_count, ("thread", "warp", "block"), ("", "atomic", "scope", "bounds")),
    "compress": (_compress, ("thread",), ("", "atomic", "bounds")),
}  # fmt: skip
ERRORS = {"": None, "atomic": "global race", "guard": "global race", "scope": "global race",
          "bounds": "out of bounds", "sync": "shared race"}  # fmt: skip


def _launch(unit: str, persistent: bool) -> tuple[int, int]:
    """Grid and block; vertices of single threads fill two small blocks."""
    block = 32 if unit == "thread" else BLOCK
    if persistent:
        return 7 if unit != "thread" else 2, block
    threads = {"thread": 1, "warp": 32, "block": BLOCK}[unit]
    return -(-(VERTICES + 1) * threads // block), block


def graph_kernels() -> Iterator[GraphKernel]:
    """Every pattern in every form, with each mistake that fits it."""
    for pattern, (write, units, bugs) in PATTERNS.items():
        choices = itertools.product(units, (False, True), (False, True), (False, True), bugs)
        for unit, persistent, backwards, cond, bug in choices:
            if bug == "sync" and unit != "block":
                continue
            if pattern in ("compress", "count") and (backwards or cond):
                continue
            flags = [w for w, on in (("grid", persistent), ("back", backwards), ("if", cond)) if on]
            name = "_".join([pattern, unit, *flags, bug or "ok"])
            text = [
                f'def {name}(nindex: i32["k"], nlist: i32["e"], data1: inout[i32["e"]], '
                'data2: inout[i32["e"]], numv: i32):',
                "    s = shared(64, i32)", "    t = threadIdx.x", "    s[t] = 0",
                *_indented(write(unit, persistent, backwards, cond, bug)),
            ]  # fmt: skip
            yield GraphKernel(name, "\n".join(text), _launch(unit, persistent), ERRORS[bug])


def graph_arguments(kernel: GraphKernel) -> list[Any]:
    """The graph, and data that fit a pattern."""
    given = graph()
    if kernel.name.startswith("worklist"):
        given["data2"][0] = 0
    if kernel.name.startswith(("maximum", "count")):
        given["data1"][0] = 0
    if kernel.name.startswith("compress"):
        parents = np.arange(len(given["nlist"]), dtype=np.int32)
        given["data2"] = np.maximum(0, parents - 1)[:VERTICES].copy()
        given["data1"] = given["data1"][:VERTICES]
        given["nlist"] = given["nlist"][:VERTICES]
    return [*given.values(), VERTICES]
