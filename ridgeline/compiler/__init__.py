"""The compiler: a graph in, a program out. Its body is the list of its stages.

    graph → stored values → fused groups → loops → schedule → code → plan

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the stages above. What differs between kinds of devices is behind
`Backend`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from ridgeline.codegen.llvm.native import ObjectCache
from ridgeline.compiler.backend import Backend, backend
from ridgeline.compiler.graph import Graph
from ridgeline.compiler.layout import (
    HostCall,
    KernelCall,
    Layout,
    lay_out,
    layout_data,
    layout_from,
)
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import CompiledKernel, Stages, device_of, lower_graph
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.node import Node, topological
from ridgeline.ops.index_checks import index_flag

__all__ = [
    "CompiledKernel", "HostCall", "KernelCall", "Layout", "Program", "Stages", "compile_graph",
    "lay_out", "lower_graph", "structure",
]  # fmt: skip

_programs: dict[object, Program] = {}
_lock = threading.RLock()


def structure(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[object, ...]:
    """What a graph computes, without which leaves it computes it from."""
    number: dict[Node, int] = {}
    rows: list[object] = []
    for node in inputs:
        if node not in number:
            number[node] = len(number)
            rows.append(node.types)
        else:  # the same node given twice reads one buffer
            rows.append(number[node])
    given = set(inputs)
    for node in topological(outputs, stop=given.__contains__):
        if node not in number:
            number[node] = len(number)
            rows.append((node.op.name, node.attrs, tuple(number[i] for i in node.inputs)))
    return (tuple(rows), tuple(number[o] for o in outputs))


def compile_graph(outputs: Sequence[Node], inputs: Sequence[Node]) -> Program:
    """The program for a graph on one device; compiled once per structure, settings and machine."""
    target = backend(device_of(outputs, inputs))
    key = (structure(outputs, inputs), target.facts())
    with _lock:
        program = _programs.get(key)
        if program is None:
            results, leaves = onto_fresh_leaves(outputs, inputs)
            program = _programs[key] = _load_or_compile(key, target, results, leaves)
    return program


def _load_or_compile(
    key: object, target: Backend, results: tuple[Node, ...], inputs: tuple[Node, ...]
) -> Program:
    flag = index_flag(results, inputs)
    outputs = results if flag is None else (*results, flag)
    cache = ObjectCache("programs")
    digest = blake2b(f"{target.fingerprint()}{key!r}".encode(), digest_size=20).hexdigest()
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = layout_from(json.loads(head))
        target.load(code, [c.symbol for c in layout.calls if isinstance(c, KernelCall)])
    else:
        stages = lower_graph(outputs, inputs, target=target)
        layout = replace(lay_out(stages, inputs, target.launch), checked=flag is not None)
        code = target.compile([k.kernel for k in stages.kernels])
        cache.put(digest, json.dumps(layout_data(layout)).encode() + b"\n" + code)
    return Program(layout, target, Graph(outputs, inputs), stages)
