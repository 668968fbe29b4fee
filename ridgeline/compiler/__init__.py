"""The compiler: a graph in, a program out. Its body is the list of its stages.

    graph → simplified → stored values → fused groups → loops → schedule → code → plan

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the stages above. What differs between kinds of devices is behind
`Backend`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from ridgeline.codegen.llvm.native import ObjectCache
from ridgeline.collector import paused
from ridgeline.compiler.backend import Backend, backend
from ridgeline.compiler.graph import Graph
from ridgeline.compiler.layout import (
    HostCall,
    KernelCall,
    Layout,
    from_text,
    lay_out,
    to_text,
)
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import CompiledKernel, Stages, device_of, lower_graph
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.node import Node
from ridgeline.graph.passes.checks import with_index_flag
from ridgeline.graph.structure import structure

__all__ = [
    "CompiledKernel", "HostCall", "KernelCall", "Layout", "Program", "Stages", "compile_graph",
    "lay_out", "lower_graph",
]  # fmt: skip

MOST_PROGRAMS = 2048  # kept in the process, the last used ones
_programs: OrderedDict[object, Program] = OrderedDict()
_lock = threading.RLock()


def compile_graph(
    outputs: Sequence[Node], inputs: Sequence[Node], pairs: Sequence[tuple[int, int]] = ()
) -> Program:
    """The program for a graph on one device; compiled once per structure, settings and machine.

    `pairs` are numbers of outputs that replace inputs (or -1: other memory that a run is given).
    """
    target = backend(device_of(outputs, inputs))
    key = (structure(outputs, inputs), target.key(), tuple(pairs))
    with _lock:
        program = _programs.get(key)
        if program is None:
            with paused:
                results, leaves = onto_fresh_leaves(outputs, inputs)
                program = _load_or_compile(key, target, results, leaves, pairs)
            _programs[key] = program
            while len(_programs) > MOST_PROGRAMS:
                _programs.popitem(last=False)
        else:
            _programs.move_to_end(key)
    return program


def _load_or_compile(
    key: object,
    target: Backend,
    results: tuple[Node, ...],
    inputs: tuple[Node, ...],
    pairs: Sequence[tuple[int, int]],
) -> Program:
    results, flag = with_index_flag(results, inputs)
    outputs = results if flag is None else (*results, flag)
    cache = ObjectCache("programs")
    digest = blake2b(f"{target.fingerprint()}{key!r}".encode(), digest_size=20).hexdigest()
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = from_text(head)
        target.load(code, list(layout.symbols()))
    else:
        stages = lower_graph(
            outputs, inputs, target=target, pairs=pairs, checked=flag is not None, ahead=True
        )  # fmt: skip
        layout = lay_out(stages, inputs, target.launch, join=target.join)
        layout = replace(layout, checked=flag is not None)
        own = list(stages.all_kernels())
        code = target.compile(own, stages.whole, stages.together, stages.begun)
        cache.put(digest, to_text(layout).encode() + b"\n" + code)
    graph = Graph(outputs, inputs, target.arrange)
    return Program(layout, target, graph, stages, pairs)
