"""torch.fx.Node: one call of a traced program, with what it takes and who reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.fx.graph import Graph

Target = Any  # a function, or the name of a method, a module or an attribute
Argument = Any


def map_arg(value: Any, change: Callable[[Node], Any]) -> Any:
    """A structure of arguments with every node in it changed."""
    return map_aggregate(value, lambda part: change(part) if isinstance(part, Node) else part)


def map_aggregate(value: Any, change: Callable[[Any], Any]) -> Any:
    """A structure of arguments with every leaf changed."""
    if isinstance(value, tuple):
        items = [map_aggregate(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_aggregate(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_aggregate(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        ends = (map_aggregate(end, change) for end in (value.start, value.stop, value.step))
        return slice(*ends)
    return change(value)


class Node:
    """A call: `op` says of what kind, `target` what is called; `users` are the nodes that read it.

    `op` is placeholder, get_attr, call_function, call_method, call_module or output.
    """

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: Any, kwargs: Any
    ) -> None:
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.type: Any = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set(args, kwargs)

    def _set(self, args: Any, kwargs: Any) -> None:
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def args(self) -> tuple[Any, ...]:
        """What it is called with, by place."""
        return self._args

    @args.setter
    def args(self, value: Any) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """What it is called with, by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: Any) -> None:
        self._set(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that it reads, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read another node instead of one."""
        self._set(
            *map_arg((self._args, self._kwargs), lambda n: new_input if n is old_input else n)
        )

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Another argument at a place."""
        self.args = (*self._args[:idx], arg, *self._args[idx + 1 :])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Another argument under a name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True
    ) -> list[Node]:
        """Let all who read this node read another one; gives those who do now."""
        readers = [user for user in self.users if user is not replace_with and delete_user_cb(user)]
        for user in readers:
            user.replace_input_with(self, replace_with)
        return readers

    @property
    def next(self) -> Node:
        """The node behind it."""
        return self.graph._nodes[self.graph._nodes.index(self) + 1]

    @property
    def prev(self) -> Node:
        """The node before it."""
        return self.graph._nodes[self.graph._nodes.index(self) - 1]

    def append(self, x: Node) -> None:
        """Put a node right behind it."""
        self.graph._move(x, self, 1)

    def prepend(self, x: Node) -> None:
        """Put a node right before it."""
        self.graph._move(x, self, 0)

    def format_node(self) -> str:
        """The node as a line of text."""
        given = [*map(repr, self._args), *(f"{k}={v!r}" for k, v in self._kwargs.items())]
        what = getattr(self.target, "__name__", self.target)
        return f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={what}](" + (
            f"args = ({', '.join(given)}))"
        )

    def __repr__(self) -> str:
        return self.name
