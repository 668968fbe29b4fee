"""torch.fx.GraphModule: a traced program as a module over the parameters of the first one."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Mapping
from itertools import count
from typing import Any

from ridgeline.fx.graph import Graph
from ridgeline.nn.module import Module

_numbers = count()


class GraphModule(Module):
    """A module whose `forward` is written from a graph; it holds what the graph names."""

    def __init__(
        self, root: Module | Mapping[str, Any] | Any, graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        self._class_name = class_name
        if isinstance(root, Module):
            self.training = root.training
        for node in graph.nodes:
            if node.op in ("call_module", "get_attr"):
                self._take(root, str(node.target))
        self.graph = graph
        graph.owning_module = self
        self.recompile()

    def _take(self, root: Any, path: str) -> None:
        """Have at a path what another module has there."""
        if isinstance(root, Mapping):
            value = root[path]
        else:
            value = root
            for step in path.split("."):
                value = getattr(value, step)
        *above, name = path.split(".")
        place: Module = self
        for step in above:
            if step not in place._modules:
                place.add_module(step, Module())
            place = place.get_submodule(step)
        owner = root.get_submodule(".".join(above)) if isinstance(root, Module) else None
        if owner is not None and name in owner._buffers:
            place.register_buffer(name, value)
        else:
            setattr(place, name, value)

    def recompile(self) -> str:
        """Write `forward` anew, after the graph was changed."""
        self._code, names = self.graph.source()
        file = f"<graph module {next(_numbers)}>"
        linecache.cache[file] = (len(self._code), None, self._code.splitlines(True), file)
        space: dict[str, Any] = dict(names)
        exec(compile(self._code, file, "exec"), space)
        object.__setattr__(self, "forward", space["forward"].__get__(self))
        return self._code

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return self._code

    def add_submodule(self, target: str, m: Module) -> bool:
        """Have a module at a path."""
        self._take({target: m}, target)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Let go of the modules that no node calls."""
        used = {str(n.target) for n in self.graph.nodes if n.op in ("call_module", "get_attr")}
        for name in [n for n, _ in self.named_modules() if n]:
            if not any(u == name or u.startswith(f"{name}.") for u in used):
                above, _, last = name.rpartition(".")
                self.get_submodule(above)._modules.pop(last, None)

    def print_readable(self, print_output: bool = True) -> str:
        """The text of the module."""
        text = f"class {self._class_name}(Module):\n    " + self._code.replace("\n", "\n    ")
        if print_output:
            print(text)
        return text

    def __deepcopy__(self, memo: Any) -> GraphModule:
        graph = Graph()
        result = graph.graph_copy(self.graph, {})
        graph.output(result)
        held = {
            str(n.target): copy.deepcopy(_at(self, str(n.target)), memo)
            for n in self.graph.nodes
            if n.op in ("call_module", "get_attr")
        }
        made = GraphModule(held, graph, self._class_name)
        made.training = self.training
        return made


def _at(module: Any, path: str) -> Any:
    for step in path.split("."):
        module = getattr(module, step)
    return module
