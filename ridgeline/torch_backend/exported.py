"""`from_torch_export`: a program of torch.export's as a module of ours.

Parameters and buffers keep their names, so `state_dict()` is the model's own. The graph becomes one
of `ridgeline.fx`, whose calls are our functions: the module prints as code, trains, jits and is
exported like any other. Torch is needed to read the file, and not to run what comes out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node as FxNode
from torch.utils._pytree import TreeSpec, tree_unflatten

import ridgeline as rl
from ridgeline.errors import RidgelineError
from ridgeline.fx import Graph, GraphModule, Node
from ridgeline.torch_backend.forms import dtype_of
from ridgeline.torch_backend.names import UnmappedError, function_for
from ridgeline.torch_backend.translation import translated

_PLACEMENT = ("pin_memory", "layout", "non_blocking")  # keywords that say nothing here


class TorchExportError(RidgelineError):
    """A program of torch's that has no counterpart here."""

    code = "RL0830"


def from_torch_export(program: ExportedProgram | str | os.PathLike[str]) -> GraphModule:
    """A program of torch.export's, or the file it was saved to, as a module."""
    found = program if isinstance(program, ExportedProgram) else torch.export.load(program)
    return _Import(found).module()


class _Translation:
    """The calls of a graph of torch's as those of a graph of ours."""

    def __init__(self) -> None:
        self._root, self._graph = rl.nn.Module(), Graph()
        self._values: dict[str, Node] = {}  # by the names of torch's nodes

    def _body(self, node: FxNode, owner: Any) -> Node:
        """A graph that a call takes as an argument, as a module inside this one."""
        body = owner.get_submodule(str(node.target))
        name = str(node.target).replace(".", "_")
        self._root.add_module(name, _Body(body).module())
        return self._graph.get_attr(name)

    def _call(self, node: FxNode) -> Node:
        function = self._function(node)
        kwargs = {k: self._value(v) for k, v in node.kwargs.items() if k not in _PLACEMENT}
        return self._graph.call_function(function, self._value(tuple(node.args)), kwargs)

    def _function(self, node: FxNode) -> Callable[..., Any]:
        try:
            return function_for(node.target)
        except UnmappedError as error:
            line = node.meta.get("stack_trace", "").strip().split("\n")[-1].strip()
            raise TorchExportError(
                f"the program calls {node.target}, which has no counterpart here",
                note=f"from the line: {line}" if line else "",
                help="torch.compile(model, backend='ridgeline') leaves such a call to torch",
            ) from error

    def _value(self, value: Any) -> Any:
        if isinstance(value, FxNode):
            return self._values[value.name]
        if isinstance(value, list):  # or torch's lists that nobody changes
            return [self._value(part) for part in value]
        if isinstance(value, tuple):
            return tuple(self._value(part) for part in value)
        return translated(value)


class _Body(_Translation):
    """A branch or the body of a loop, which is given all that it reads."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def module(self) -> GraphModule:
        """The body as a module."""
        for node in self._source.graph.nodes:
            if node.op == "placeholder":
                self._values[node.name] = self._graph.placeholder(node.name)
            elif node.op == "get_attr":
                self._values[node.name] = self._body(node, self._source)
            elif node.op == "call_function":
                self._values[node.name] = self._call(node)
            elif node.op == "output":
                self._graph.output(self._value(node.args[0]))
        return GraphModule(self._root, self._graph, "ExportedBody")


class _Import(_Translation):
    """One exported program on its way to a module."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self._program = program
        signature = program.graph_signature
        self._inputs = {spec.arg.name: spec for spec in signature.input_specs}
        self._outputs = signature.output_specs

    def module(self) -> GraphModule:
        """The module, with values of its own."""
        self._arguments()
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._values[node.name] = self._call(node)
            elif node.op == "get_attr":
                self._values[node.name] = self._body(node, self._program.graph_module)
            elif node.op == "output":
                self._finish(node)
        made = GraphModule(self._root, self._graph, "ExportedModule")
        made.train(any(p.requires_grad for p in made.parameters()))
        return made

    # ---- what goes in ----------------------------------------------------------------------------

    def _arguments(self) -> None:
        """The arguments of `forward`, and what nested ones hold."""
        users = [n for n, spec in self._inputs.items() if spec.kind == InputKind.USER_INPUT]
        leaves = iter(users)
        positional, keywords = self._program.call_spec.in_spec.children()
        for number, spec in enumerate(positional.children()):
            self._argument(spec, leaves, f"argument_{number}")
        for name, spec in zip(keywords.context, keywords.children()):
            self._argument(spec, leaves, str(name), keyword=True)

    def _argument(
        self, spec: TreeSpec, leaves: Iterator[str], name: str, keyword: bool = False
    ) -> None:
        if spec.is_leaf():
            own = next(leaves)
            self._values[own] = self._graph.placeholder(name if keyword else own)
        else:
            self._nested(spec, leaves, self._graph.placeholder(name))

    def _nested(self, spec: TreeSpec, leaves: Iterator[str], value: Node) -> None:
        """The leaves of an argument that is a tuple, a list or a dictionary."""
        keys = spec.context if spec.type is dict else range(spec.num_children)
        if spec.type not in (dict, list, tuple):
            raise TorchExportError(f"an argument is a {spec.type.__name__}")
        for key, child in zip(keys, spec.children()):
            part = self._graph.call_function(_item, (value, key))
            if child.is_leaf():
                self._values[next(leaves)] = part
            else:
                self._nested(child, leaves, part)

    def _placeholder(self, node: FxNode) -> None:
        spec = self._inputs[node.name]
        if spec.kind == InputKind.USER_INPUT:
            return
        if spec.target is None or spec.kind not in _HELD:
            raise TorchExportError(f"an input of kind {spec.kind.name}")
        program = self._program
        value = program.state_dict.get(spec.target)
        if value is None:
            value = program.constants[spec.target]
        _hold(self._root, spec.target, value, spec.kind == InputKind.PARAMETER)
        self._values[node.name] = self._graph.get_attr(spec.target)

    # ---- what comes out --------------------------------------------------------------------------

    def _finish(self, node: FxNode) -> None:
        results = []
        for spec, value in zip(self._outputs, node.args[0]):
            own = self._value(value)
            if spec.kind == OutputKind.USER_OUTPUT:
                results.append(own)
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                self._write(self._graph.get_attr(str(spec.target)), own)
            elif spec.kind == OutputKind.USER_INPUT_MUTATION:
                self._write(self._values[str(spec.target)], own)
            else:
                raise TorchExportError(f"an output of kind {spec.kind.name}")
        self._graph.output(_plain(tree_unflatten(results, self._program.call_spec.out_spec)))

    def _write(self, target: Node, value: Node) -> None:
        self._graph.call_method("copy_", (target, value))


_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _item(value: Any, key: Any) -> Any:
    return value[key]


def _plain(result: Any) -> Any:
    """Results in containers that every program knows."""
    if isinstance(result, dict):
        return {key: _plain(part) for key, part in result.items()}
    if isinstance(result, list | tuple):
        return (
            [_plain(p) for p in result] if isinstance(result, list) else tuple(map(_plain, result))
        )
    return result


def _hold(root: Any, path: str, value: torch.Tensor, is_parameter: bool) -> None:
    """Have a copy of a tensor at a path of a module."""
    *above, name = path.split(".")
    place = root
    for step in above:
        if step not in place._modules:
            place.add_module(step, rl.nn.Module())
        place = place.get_submodule(step)
    own = _tensor(value)
    if is_parameter:
        place.register_parameter(name, rl.nn.Parameter(own, requires_grad=value.requires_grad))
    else:
        place.register_buffer(name, own)


def _tensor(value: torch.Tensor) -> Any:
    dense = value.detach().cpu().contiguous()
    if dense.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        return rl.from_dlpack(dense).clone()
    return rl.tensor(dense.numpy(), dtype=dtype_of(dense.dtype))
