"""torch.fx: a module's calls as a graph of Python, to look at, change and run again.

`symbolic_trace` runs a module or a function on stand-ins that write down what is called with them.
That is a program over public functions, which users rewrite; the graph that is compiled
(`ridgeline/graph`) is another one, made when the program runs.
"""

from ridgeline.fx.graph import Graph
from ridgeline.fx.graph_module import GraphModule
from ridgeline.fx.interpreter import Interpreter, Transformer
from ridgeline.fx.node import Node, map_arg
from ridgeline.fx.patterns import replace_pattern
from ridgeline.fx.tracer import (
    GraphAppendingTracer,
    Proxy,
    TraceError,
    Tracer,
    symbolic_trace,
    wrap,
)
from ridgeline.module_paths import unknown as _unknown

__all__ = [
    "Graph", "GraphAppendingTracer", "GraphModule", "Interpreter", "Node", "Proxy", "TraceError",
    "Tracer", "Transformer", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip
__getattr__ = _unknown(__name__)
