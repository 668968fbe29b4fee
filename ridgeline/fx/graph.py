"""torch.fx.Graph: the nodes of a traced program in order, and Python written from them."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.errors import RidgelineError
from ridgeline.fx.node import Node, Target, map_arg

_SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.and_: "&", operator.or_: "|", operator.xor: "^",
}  # fmt: skip


class NodeList:
    """The nodes of a graph, in either direction."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes))

    def __reversed__(self) -> Iterator[Node]:
        return iter(self._nodes[::-1])

    def __len__(self) -> int:
        return len(self._nodes)


class Graph:
    """A traced program: calls in order, from placeholders to one output."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None) -> None:
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._place: tuple[Node, int] | None = None  # new nodes come before (0) or behind (1) it
        self.owning_module = owning_module

    @property
    def nodes(self) -> NodeList:
        """The nodes in order; changes while one goes through them are not seen."""
        return NodeList(self._nodes)

    # ---- making nodes ----------------------------------------------------------------------------

    def _name(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted).strip("_") or "value"
        base = f"_{base}" if base[0].isdigit() else base
        name, number = base, 0
        taken = keyword.iskeyword(base) or hasattr(builtins, base)
        while name in self._names or taken:
            number, taken = number + 1, False
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def create_node(
        self,
        op: str,
        target: Target,
        args: Any = (),
        kwargs: Any = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node, at the place where nodes go now."""
        wanted = name or str(getattr(target, "__name__", target))
        made = Node(self, self._name(wanted), op, target, args or (), kwargs or {})
        made.type = type_expr
        if self._place is None:
            self._nodes.append(made)
        else:
            other, behind = self._place
            self._nodes.insert(self._nodes.index(other) + behind, made)
            if behind:
                self._place = made, 1
        return made

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ()) -> Node:
        """An argument of the program; a default is given as a tuple of one."""
        given = (default_value,) if default_value != () else ()
        return self.create_node("placeholder", name, given, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, a buffer or another attribute of the module, by its path."""
        return self.create_node("get_attr", qualified_name)

    def call_function(
        self, the_function: Callable[..., Any], args: Any = (), kwargs: Any = None, **more: Any
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs)

    def call_method(
        self, method_name: str, args: Any = (), kwargs: Any = None, **more: Any
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs)

    def call_module(
        self, module_name: str, args: Any = (), kwargs: Any = None, **more: Any
    ) -> Node:
        """A call of a module inside the module, by its path."""
        return self.create_node("call_module", module_name, args, kwargs)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the program gives."""
        return self.create_node("output", "output", (result,))

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node
    ) -> Node:
        """A node of another graph, over changed arguments."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node]) -> Any:
        """All nodes of another graph but its output, whose value is given."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                return map_arg(node.args[0], val_map.__getitem__)
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    # ---- changing it -----------------------------------------------------------------------------

    def _inserting(self, node: Node | None, behind: int) -> Switch:
        return Switch(self, _place=None if node is None else (node, behind))

    def inserting_before(self, n: Node | None = None) -> Any:
        """A block in which new nodes come before one, or before all."""
        return self._inserting(n or (self._nodes[0] if self._nodes else None), 0)

    def inserting_after(self, n: Node | None = None) -> Any:
        """A block in which new nodes come behind one, or behind all."""
        return self._inserting(n, 1)

    def _move(self, node: Node, other: Node, behind: int) -> None:
        self._nodes.remove(node)
        self._nodes.insert(self._nodes.index(other) + behind, node)

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out that nobody reads."""
        if to_erase.users:
            raise RidgelineError(f"{to_erase} is read by {list(to_erase.users)}")
        to_erase._set((), {})
        self._nodes.remove(to_erase)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out what nobody reads; True where something was."""
        before = len(self._nodes)
        for node in reversed(self.nodes):
            kept = node.op in ("placeholder", "output") or (is_impure_node or _is_write)(node)
            if not node.users and not kept:
                self.erase_node(node)
        return len(self._nodes) < before

    def lint(self) -> None:
        """Raise where a node reads one that does not come before it, or names come twice."""
        seen: set[Node] = set()
        for node in self._nodes:
            for source in node.all_input_nodes:
                if source not in seen:
                    raise RidgelineError(f"{node} reads {source}, which does not come before it")
            seen.add(node)
        if len({node.name for node in self._nodes}) < len(self._nodes):
            raise RidgelineError("two nodes have one name")

    # ---- as Python -------------------------------------------------------------------------------

    def source(self) -> tuple[str, dict[str, Any]]:
        """The program as a method `forward`, and the objects that it names."""
        names: dict[str, Any] = {}
        heads, lines = ["self"], []
        for node in self._nodes:
            if node.op == "placeholder":
                default = f" = {_text(node.args[0], names)}" if node.args else ""
                stars = re.match(r"\**", str(node.target))
                heads.append(f"{stars[0] if stars else ''}{node.name}{default}")
            elif node.op == "output":
                lines.append(f"return {_text(node.args[0], names)}")
            else:
                lines.append(f"{node.name} = {_call(node, names)}")
        body = "".join(f"    {line}\n" for line in lines or ["pass"])
        return f"def forward({', '.join(heads)}):\n{body}", names

    def python_code(self, root_module: str = "self") -> str:
        """The program as text."""
        return self.source()[0]

    def print_tabular(self) -> None:
        """A line for each node."""
        rows = [("opcode", "name", "target", "args", "kwargs")] + [
            (n.op, n.name, str(getattr(n.target, "__name__", n.target)), str(n.args), str(n.kwargs))
            for n in self._nodes
        ]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())

    def __str__(self) -> str:
        return "graph():\n" + "".join(f"    {node.format_node()}\n" for node in self._nodes)


def _is_write(node: Node) -> bool:
    """True for calls that change something: methods with an underscore, and item assignment."""
    return node.target is operator.setitem or (
        node.op == "call_method" and str(node.target).endswith("_")
    )


def _text(value: Any, names: dict[str, Any]) -> str:
    """An argument as Python; what has no text of its own is named."""
    if isinstance(value, Node):
        return value.name
    if isinstance(value, tuple) and type(value) is tuple:
        inside = ", ".join(_text(item, names) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if type(value) is list:
        return f"[{', '.join(_text(item, names) for item in value)}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_text(v, names)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        ends = (_text(end, names) for end in (value.start, value.stop, value.step))
        return f"slice({', '.join(ends)})"
    plain = type(value) in (int, bool, str, bytes, type(None), type(...))
    if plain or (type(value) is float and value - value == 0):
        return repr(value)
    return _named(value, names)


def _named(value: Any, names: dict[str, Any]) -> str:
    wanted = re.sub(r"\W", "_", str(getattr(value, "__name__", type(value).__name__)))
    name = f"_{wanted}"
    while names.setdefault(name, value) is not value:
        name += "_"
    return name


def _path(steps: Sequence[str]) -> str:
    """Modules one in the other, as Python; those of a list are numbers."""
    return "".join(f".{s}" if s.isidentifier() else f'.get_submodule("{s}")' for s in steps)


def _call(node: Node, names: dict[str, Any]) -> str:
    args = [_text(arg, names) for arg in node.args]
    if node.op == "get_attr":
        *above, last = str(node.target).split(".")
        if last.isidentifier():
            return f"self{_path(above)}.{last}"
        return f"getattr(self{_path(above)}, {last!r})"
    if node.target in _SIGNS and len(args) == 2:
        return f"{args[0]} {_SIGNS[node.target]} {args[1]}"
    if node.target is operator.getitem:
        return f"{args[0]}[{args[1]}]"
    if node.target is getattr and isinstance(node.args[1], str):
        return f"{args[0]}.{node.args[1]}"
    given = ", ".join([*args, *(f"{k}={_text(v, names)}" for k, v in node.kwargs.items())])
    if node.op == "call_module":
        return f"self{_path(str(node.target).split('.'))}({given})"
    if node.op == "call_method":
        rest = ", ".join([*args[1:], *(f"{k}={_text(v, names)}" for k, v in node.kwargs.items())])
        return f"{args[0]}.{node.target}({rest})"
    return f"{_named(node.target, names)}({given})"
