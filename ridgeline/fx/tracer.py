"""torch.fx.Tracer: stand-ins that write down what is called with them.

Public functions pass through the recorder of the thread (`record/recorder.py`). While a program is
traced there is one that notes calls with a stand-in among their arguments, and `Module.__call__` is
one that asks the tracer what a module is.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from itertools import chain, starmap
from types import FrameType, FunctionType
from typing import Any

import ridgeline
from ridgeline import fft, linalg, special
from ridgeline.atomic import Block, Switch, apply
from ridgeline.errors import RidgelineError
from ridgeline.fx.graph import Graph
from ridgeline.fx.graph_module import GraphModule
from ridgeline.fx.node import Node, map_aggregate
from ridgeline.nn import Sequential, functional
from ridgeline.nn.module import Module
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.recorder import record_with
from ridgeline.tensors.tensor import Tensor


class TraceError(RidgelineError, ValueError):
    """A program asks for what only a value can answer."""


class Proxy:
    """A stand-in for the value of a node: calls with it are nodes of the same graph."""

    def __init__(self, node: Node, tracer: Any = None) -> None:
        self.node, self.tracer = node, tracer or GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        line = next(iter(inspect.getframeinfo(frame).code_context or [""]))
        count = line.partition("=")[0].count(",") + 1
        if "=" not in line or count < 2:
            raise TraceError("a stand-in cannot be gone through: nobody knows how long it is")
        take = operator.getitem
        return iter([take(self, number) for number in range(count)])

    def __bool__(self) -> bool:
        return bool(self.tracer.to_bool(self))

    def __len__(self) -> int:
        raise TraceError("a stand-in has no length; take x.size(0), or wrap len")

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A public function that is called with a stand-in, also where no program is traced."""
        stand_in = _proxies((args, kwargs))[0]
        if func in _public().values():
            return stand_in.tracer.create_proxy("call_function", func, args, kwargs)
        return stand_in.tracer.create_proxy("call_method", func.__name__, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


class _Attribute(Proxy):
    """An attribute of a stand-in: a method if it is called, and a value if it is used."""

    def __init__(self, root: Proxy, name: str) -> None:
        self.root, self.attr, self.tracer = root, name, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The value, as a node from the first use on."""
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operator(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def method(self: Proxy, *others: Any) -> Any:
        args = (*others, self) if swapped else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_",
              "xor", "lshift", "rshift"):  # fmt: skip
    _plain = _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _operator(getattr(operator, _name), False))
    setattr(Proxy, f"__r{_plain}__", _operator(getattr(operator, _name), True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem", "neg", "pos", "invert", "abs"):
    setattr(Proxy, f"__{_name}__", _operator(getattr(operator, _name), False))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


class _Noting(GraphRecorder):
    """A recorder that notes the calls of public functions with a stand-in."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any],
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """A public function is called."""
        if not _has_proxy((args, named)):
            return function(*args, **named)
        public = _public().get(function)
        if public is None:  # an operator of a tensor: Python asks the stand-in next
            return NotImplemented
        return self._tracer.create_proxy("call_function", public, args, named)


def _proxies(value: Any) -> list[Any]:
    found: list[Any] = []
    map_aggregate(value, lambda part: found.append(part) if isinstance(part, Proxy) else None)
    return found


def _has_proxy(value: Any) -> bool:
    return bool(_proxies(value))


_MODULES = (functional, linalg, special, fft, ridgeline)


def _public() -> dict[Any, Callable[..., Any]]:
    """The public functions by what the recorder is told of them."""
    return _public_of(sum(len(vars(module)) for module in _MODULES))


@cache
def _public_of(known: int) -> dict[Any, Callable[..., Any]]:
    """The public functions while so many names are loaded: some come when they are used."""
    found: dict[Any, Callable[..., Any]] = {}
    for module in _MODULES:
        for public in tuple(vars(module).values()):
            inside = public.__closure__ if isinstance(public, FunctionType) else None
            if inside and "function" in public.__code__.co_freevars:
                place = public.__code__.co_freevars.index("function")
                found[inside[place].cell_contents] = public
    return found


class Tracer:
    """Traces a module: which modules stay whole, and what a call becomes, can be said anew."""

    def __init__(self, autowrap_modules: Any = (), autowrap_functions: Any = ()) -> None:
        self.graph = Graph()
        self.root: Any = Module()
        self._functions = tuple(autowrap_functions)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True for a module that is one call: those of `nn`, but for containers."""
        return type(m).__module__.startswith("ridgeline.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Where a module is inside the root."""
        for name, module in self.root.named_modules():
            if module is mod:
                return str(name)
        raise TraceError(f"{type(mod).__name__} is no part of the traced module")

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None,
                    type_expr: Any = None) -> Node:  # fmt: skip
        """A new node of the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """A stand-in for a node."""
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None,
                     type_expr: Any = None, proxy_factory_fn: Any = None) -> Proxy:  # fmt: skip
        """A stand-in for a new node."""
        made = self.create_node(
            kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr
        )
        return self.proxy(made)

    def create_arg(self, a: Any) -> Any:
        """An argument as a node takes it: stand-ins as nodes, tensors as attributes."""
        return map_aggregate(a, self._argument)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.node
        if not isinstance(value, Tensor):
            return value
        for named in (self.root.named_parameters(), self.root.named_buffers()):
            for name, own in named:
                if own is value:
                    return self.create_node("get_attr", name, (), {})
        number = 0
        while (name := f"_tensor_constant{number}") in vars(self.root):
            if vars(self.root)[name] is value:
                break
            number += 1
        object.__setattr__(self.root, name, value)
        return self.create_node("get_attr", name, (), {})

    def to_bool(self, obj: Proxy) -> bool:
        """What a condition on a stand-in is."""
        raise TraceError(
            f"{obj} is neither true nor false while a program is traced",
            help="keep what depends on values in a leaf module, or a function given to fx.wrap",
        )

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """What a module is called with becomes a node, or the calls inside it do."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or a function."""
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        self.graph = Graph(tracer_cls=type(self))
        function = root.forward if is_module else root
        args: list[Any] = []
        named: dict[str, Any] = {}
        for name, given in inspect.signature(function).parameters.items():
            if concrete_args and name in concrete_args:
                value = concrete_args[name]
            else:
                star = "*" * (given.kind is given.VAR_POSITIONAL) + "**" * (
                    given.kind is given.VAR_KEYWORD
                )
                default = () if given.default is given.empty else (given.default,)
                value = self.create_proxy("placeholder", star + name, default, {})
            if given.kind == given.KEYWORD_ONLY:
                named[name] = value
            elif given.kind != given.VAR_KEYWORD:
                args.append(value)
        with record_with(_Noting(self)), _asked(self), _wrapped(self):
            result = function(*args, **named)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph


class GraphAppendingTracer(Tracer):
    """A tracer that writes into a graph which is there already."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


def _asked(tracer: Tracer) -> Switch:
    """A block in which modules called with stand-ins ask a tracer what they are."""
    plain = Module.__call__

    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not _has_proxy((args, kwargs)):
            return plain(self, *args, **kwargs)
        return tracer.call_module(self, lambda *a, **k: plain(self, *a, **k), args, kwargs)

    return Switch(Module, __call__=call)


_to_wrap: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: Any) -> Any:
    """A function of the calling module, or its name, that is one call of the graph."""
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _to_wrap.append((sys._getframe(1).f_globals, name))
    return fn_or_name


def _wrapped(tracer: Tracer) -> Block:
    """A block in which the functions given to `wrap` are noted when they get a stand-in."""

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _has_proxy((args, kwargs)):
                return function(*args, **kwargs)
            return tracer.create_proxy("call_function", function, args, kwargs)

        return call

    inside: list[tuple[dict[str, Any], dict[str, Any]]] = []
    after: list[tuple[dict[str, Any], dict[str, Any]]] = []
    gone: list[tuple[dict[str, Any], str, None]] = []
    for space, name in _to_wrap:
        own = space.get(name, vars(builtins).get(name))
        if own is not None:
            inside.append((space, {name: noted(own)}))
            if name in space:
                after.append((space, {name: own}))
            else:
                gone.append((space, name, None))
    # `with` enters and leaves by one call of C code each
    enter = map(apply, [starmap(dict.update, inside)])
    leave = map(apply, [chain(starmap(dict.update, after), starmap(dict.pop, gone))])
    return Block(enter, leave)


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module or a function as a module over a graph of what it calls.

    >>> traced = rl.fx.symbolic_trace(lambda x: rl.relu(x) + 1)
    >>> [node.op for node in traced.graph.nodes]
    ['placeholder', 'call_function', 'call_function', 'output']
    >>> traced(rl.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "module")
    return GraphModule(tracer.root, graph, name)
