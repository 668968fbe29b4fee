"""The compiler: a graph in, a program out. `pipeline.py` is the list of its passes.

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the passes (`program.py`). What differs between kinds of devices is
behind `Backend`.
"""

from ridgeline.compiler.memory_plan import HostCall, KernelCall, Layout, lay_out
from ridgeline.compiler.pipeline import lower_graph
from ridgeline.compiler.program import Program, compile_graph
from ridgeline.compiler.stages import CompiledKernel, Stages

__all__ = [
    "CompiledKernel", "HostCall", "KernelCall", "Layout", "Program", "Stages", "compile_graph",
    "lay_out", "lower_graph",
]  # fmt: skip
