"""torch.fx.Interpreter: a traced program run node by node, to be watched or changed."""

from __future__ import annotations

from typing import Any

from ridgeline.fx.graph import Graph
from ridgeline.fx.graph_module import GraphModule
from ridgeline.fx.node import Node, map_aggregate, map_arg
from ridgeline.fx.tracer import GraphAppendingTracer, Proxy
from ridgeline.nn.module import Module


class Interpreter:
    """Runs a graph; a subclass's methods say what a node of each kind does."""

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Any = None) -> None:
        self.module: Any = module
        self.graph: Graph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules()) if isinstance(module, Module) else {}
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.args_iter: Any = iter(())

    def run(self, *args: Any, initial_env: Any = None, **options: Any) -> Any:
        """What the graph gives for these arguments."""
        self.env, self.args_iter = dict(initial_env or {}), iter(args)
        last = {source: n for n in self.graph.nodes for source in n.all_input_nodes}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for source in node.all_input_nodes:
                    if last[source] is node:
                        del self.env[source]
        return None

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node as values."""
        args, kwargs = map_arg((n.args, n.kwargs), self.env.__getitem__)
        return args, kwargs

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """A structure of nodes as values."""
        return map_arg(args, self.env.__getitem__)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument, or its default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        return next(self.args_iter, *args)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the module by its path."""
        return self.fetch_attr(target)

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its path."""
        found = self.module
        for step in target.split("."):
            found = getattr(found, step)
        return found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a function gives."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a method of the first argument gives."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a module inside the module gives."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What the graph gives."""
        return args[0]


class Transformer(Interpreter):
    """An interpreter over stand-ins: it gives the module of what its methods call."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = GraphAppendingTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stand-in for an argument."""
        return self.tracer.create_proxy("placeholder", target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stand-in for an attribute."""
        return self.tracer.create_proxy("get_attr", target, (), {})

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stand-in for what a module gives."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stand-in for what a function gives."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of what was called."""
        result = self.run()
        nodes = map_proxies(result)
        self.new_graph.output(nodes)
        return GraphModule(self.module, self.new_graph)


def map_proxies(value: Any) -> Any:
    """A structure of stand-ins as nodes."""
    return map_aggregate(value, lambda part: part.node if isinstance(part, Proxy) else part)
