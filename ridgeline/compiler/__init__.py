"""The compiler: a graph in, a program out. `pipeline.py` is the list of its passes.

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the passes. What differs between kinds of devices is behind `Backend`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b

from ridgeline.codegen.llvm.machine_code import ObjectCache
from ridgeline.collector import paused
from ridgeline.compiler.background import background
from ridgeline.compiler.libraries.numpy_call import NumpyCalls
from ridgeline.compiler.memory_plan import (
    HostCall,
    KernelCall,
    Layout,
    from_text,
    lay_out,
    to_text,
)
from ridgeline.compiler.passes import Compilation
from ridgeline.compiler.pipeline import check, compilation, lower, lower_graph, optimize
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.graph.graph import Graph, structure
from ridgeline.weak import Recent

__all__ = [
    "CompiledKernel", "HostCall", "KernelCall", "Layout", "Program", "Stages", "compile_graph",
    "lay_out", "lower_graph",
]  # fmt: skip

# Kept in the process, the last used ones: a node of a program takes some 5 KB with all that is
# known of it. The others come back from disk.
MOST_PROGRAMS, MOST_NODES = 128, 1 << 14
_programs: Recent[Hashable, Program] = Recent(MOST_PROGRAMS, MOST_NODES)
# Those that keep how they were made, which is most of their memory; others make it again if asked.
_shown: Recent[Hashable, Program] = Recent(32, 1 << 12)
_lock = threading.Lock()  # over these tables
_compiling = threading.RLock()


def compile_graph(graph: Graph, pairs: Sequence[tuple[int, int]] = ()) -> Program:
    """The program for a graph on one device; compiled once per structure, settings and machine.

    `pairs` are numbers of outputs that replace inputs (or -1: other memory that a run is given).
    """
    to = compilation(graph, pairs=tuple(pairs), ahead=True)
    key = (structure(graph), to.target.key(), to.pairs, *sorted(to.left_out))
    program = _known(key)
    if program is None:
        with background.needed(), _compiling:
            program = _known(key)  # compiled by another thread in the meantime?
            if program is None:
                with paused:
                    program = _load_or_compile(key, graph.on_fresh_leaves(), to)
                _keep(key, program, len(graph.order))
    return program


def _known(key: Hashable) -> Program | None:
    with _lock:
        return _programs.get(key)


def _keep(key: Hashable, program: Program, nodes: int) -> None:
    with _lock:
        _programs.keep(key, program, nodes)
        for old in _shown.keep(key, program, nodes):
            old.forget_stages()


def _load_or_compile(key: Hashable, graph: Graph, to: Compilation) -> Program:
    graph, checked = check(graph, to)
    to = replace(to, checked=checked)
    cache, target = ObjectCache("programs"), to.target
    digest = blake2b(f"{target.fingerprint()}{key!r}".encode(), digest_size=20).hexdigest()
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = from_text(head, target.launch_types)
        target.load(code, list(layout.symbols()))
    else:
        stages = lower(optimize(graph, to), to)
        layout = replace(lay_out(stages, target), checked=checked)
        own = list(stages.all_kernels())
        code = target.compile(own, stages.library_calls, stages.together, stages.begun)
        cache.put(digest, to_text(layout).encode() + b"\n" + code)
    calls = NumpyCalls(graph, lambda: optimize(graph, to).order)
    return Program(layout, to, calls, stages)
