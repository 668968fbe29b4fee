"""Module: the base of every layer and model, with torch's names and semantics.

A module owns parameters, buffers and child modules under attribute names. Every change to an
attribute moves the guard epoch, so that a jitted function notices `model.eval()` or a replaced
layer; while a module runs, its path (`encoder.3.fc1`) is what errors and reports name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ridgeline.errors import BadValueError
from ridgeline.graph.origins import running
from ridgeline.nn import state
from ridgeline.nn.describe import describe, html
from ridgeline.nn.hooks import BackwardPass, RemovableHandle
from ridgeline.nn.parameter import Buffer, Parameter, trained
from ridgeline.nn.state_hooks import STATE_HOOKS, StateHooks
from ridgeline.nn.tree import Tree
from ridgeline.record import mutation
from ridgeline.record.modes import called, called_method, modes
from ridgeline.tensors.conversions import conversion
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing import guards

Self = TypeVar("Self", bound="Module")
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Module(Tree, StateHooks):
    """Subclasses call `super().__init__()`, set layers as attributes and define `forward`."""

    training: bool
    _transient: set[str]  # buffers that state_dict leaves out
    _name: str  # under which the parent that runs holds this module, `layers.3` in a list

    def __init__(self) -> None:
        put = super().__setattr__
        put("training", True)
        for table in _TABLES:
            put(table, mutation.Table())
        put("_transient", set())
        put("_name", "")
        for hooks in _HOOKS:
            put(hooks, mutation.Table())
        for hooks in STATE_HOOKS:
            put(hooks, {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.capture is not None:
            mutation.watch(self)
        here = running.__dict__  # the thread's: its attributes are slower
        above, own = here.get("module_path", ""), self._name
        here["module_path"] = f"{above}.{own}" if above and own else (above or own)
        try:
            if self._forward_hooks or self._forward_pre_hooks:
                return self._call_with_hooks(args, kwargs)
            if self._backward_hooks or self._backward_pre_hooks:
                return self._call_with_hooks(args, kwargs)
            if modes.call_recorder is not None:
                return called_method(self, "forward")(*args, **kwargs)
            return self.forward(*args, **kwargs)
        finally:
            here["module_path"] = above

    def _call_with_hooks(self, args: Any, kwargs: Any) -> Any:
        watched = None
        if self._backward_hooks or self._backward_pre_hooks:
            watched = BackwardPass(self)
        for pre, named in tuple(self._forward_pre_hooks.values()):
            replaced = called(pre)(self, *((args, kwargs) if named else (args,)))
            if replaced is not None and named:
                args, kwargs = replaced
            elif replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        forward = called_method(self, "forward")
        if watched is not None:
            args = watched.enter(args)
        result = forward(*args, **kwargs)
        for hook, named in tuple(self._forward_hooks.values()):
            given = (args, kwargs, result) if named else (args, result)
            replaced = called(hook)(self, *given)
            result = result if replaced is None else replaced
        return result if watched is None else watched.leave(result)

    # Attributes: parameters, buffers and modules live in tables of their own.

    def __setattr__(self, name: str, value: Any) -> None:
        mutation.bump()
        if "_modules" not in self.__dict__:
            if isinstance(value, Module | Tensor):
                raise AttributeError(
                    f"{type(self).__name__}: call super().__init__() before setting {name!r}"
                )
            super().__setattr__(name, value)
            return
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in self._parameters:
            if value is not None:
                raise TypeError(
                    f"{name!r} is a parameter: assign an nn.Parameter or None, "
                    f"not {type(value).__name__}"
                )
            self._parameters[name] = None
        elif name in self._modules and value is None:
            self._modules[name] = None
        elif name in self._buffers and (value is None or isinstance(value, Tensor)):
            self._buffers[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_modules" in own:  # `__init__` has run
            if name in own["_parameters"]:
                return own["_parameters"][name]
            if name in own["_modules"]:
                return own["_modules"][name]
            if name in own["_buffers"]:
                return own["_buffers"][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        mutation.bump()
        for table in _TABLES:
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                self._transient.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def __getstate__(self) -> dict[str, Any]:
        # a copy traces its jitted methods anew
        return {k: v for k, v in self.__dict__.items() if not k.startswith(guards.JITTED)}

    def __setstate__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members)

    def _claim(self, name: str, table: str) -> None:
        """Make `name` free for an entry of `table`, as assigning an attribute does."""
        if not isinstance(name, str) or not name or "." in name:
            raise KeyError(f"{name!r} cannot name a member of a module: no dots, not empty")
        self.__dict__.pop(name, None)
        for other in _TABLES:
            if other != table:
                self.__dict__[other].pop(name, None)
        mutation.bump()

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Put a parameter under `name`; None keeps the name for later."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"{name!r} needs an nn.Parameter or None, not {type(param).__name__}")
        self._claim(name, "_parameters")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Put a tensor under `name` that is state but not trained."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"{name!r} needs a Tensor or None, not {type(tensor).__name__}")
        self._claim(name, "_buffers")
        self._buffers[name] = tensor
        (self._transient.discard if persistent else self._transient.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Put a child module under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{name!r} needs a Module or None, not {type(module).__name__}")
        self._claim(name, "_modules")
        self._modules[name] = module
        if module is not None:
            held = self._name if _only_holds(self) else ""
            _name_as(module, f"{held}.{name}" if held else name)

    register_module = add_module

    def set_submodule(self, target: str, module: Module) -> None:
        """Put a module at a path such as `encoder.3.fc1`, in the place of the one there."""
        self.get_submodule(target)
        path, _, name = target.rpartition(".")
        self.get_submodule(path).add_module(name, module)

    def _guard_state(self, attributes: dict[str, Any]) -> Any:
        """What a capture that ran this module depends on, of its attributes and besides."""
        return {**attributes, "trained": trained(self._parameters.values())}

    # Modes and moves.

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is True or False, not {mode!r}")
        for module in self.modules():
            # loops say it in every step: where nothing changes, no guard has to look again
            same = modes.capture is None and vars(module).get("training") is mode
            if not same or type(module).__setattr__ is not Module.__setattr__:
                module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Let all parameters take part in gradients, or none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none:  # without looking, so that a jitted step does not depend on it
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def _convert(self: Self, change: Callable[[Tensor], Tensor]) -> Self:
        """Replace the values of all parameters, their gradients, and all buffers."""
        for module in self.modules():
            for parameter in module._parameters.values():
                if parameter is None:
                    continue
                gradient = parameter.grad
                parameter.data = change(parameter.data)
                if gradient is not None:
                    parameter.grad = change(gradient)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = change(buffer)
        mutation.bump()
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device, or change floating values to a dtype; integers keep theirs."""
        wanted = conversion(args, kwargs)
        dtype, device = wanted.dtype, wanted.device
        if dtype is not None and not dtype.is_differentiable:
            raise BadValueError(f"a module can only be converted to a floating dtype, not {dtype}")

        def moved(value: Tensor) -> Tensor:
            if dtype is not None and value.dtype.is_differentiable:
                value = value.to(dtype=dtype)
            return value if device is None else value.to(device=device)

        return self._convert(moved)

    def type(self: Self, dst_type: Any) -> Self:
        """All parameters and buffers in another element type."""
        return self._convert(lambda value: value.type(dst_type))

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device without the values, which are zeros there."""
        return self._convert(lambda value: value.new_zeros(value.shape, device=device))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: what a module computes is compiled as it is; `rl.jit` is for a whole step."""

    def float(self: Self) -> Self:
        """Floating values as float32."""
        return self.to(dtype=state.FLOAT32)

    def double(self: Self) -> Self:
        """Floating values as float64."""
        return self.to(dtype=state.FLOAT64)

    def half(self: Self) -> Self:
        """Floating values as float16."""
        return self.to(dtype=state.FLOAT16)

    def bfloat16(self: Self) -> Self:
        """Floating values as bfloat16."""
        return self.to(dtype=state.BFLOAT16)

    def cpu(self: Self) -> Self:
        """Everything on the CPU."""
        return self.to(device="cpu")

    def cuda(self: Self, device: Any = None) -> Self:
        """Everything on a GPU, the current one unless told."""
        return self.to(device="cuda" if device is None else device)

    # Saving and loading.

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Parameters and persistent buffers by path; tensors share memory with the module."""
        return state.collect(self, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy values in by path; an error names every missing, unexpected or misshapen entry."""
        return state.load(self, state_dict, strict, assign)

    def _expect(self, values: Mapping[str, Any]) -> None:
        """These values, by their paths below this module, are about to be loaded."""

    def get_extra_state(self) -> Any:
        """More state to save under `_extra_state`; None for none."""
        return None

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise BadValueError(f"{type(self).__name__} saves no extra state")

    # Hooks and printing.

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """`hook(module, args)` runs before forward and may replace the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)` and gives both back.
        """
        mutation.bump()
        return RemovableHandle(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """`hook(module, args, output)` runs after forward and may replace the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`.
        """
        mutation.bump()
        return RemovableHandle(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, grad_output)` sees the gradients of the outputs and may replace them."""
        mutation.bump()
        return RemovableHandle(self._backward_pre_hooks, hook)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` may replace the gradients of the inputs."""
        mutation.bump()
        return RemovableHandle(self._backward_hooks, hook)

    register_backward_hook = register_full_backward_hook

    def extra_repr(self) -> str:
        """What to print between the parentheses; layers override it."""
        return ""

    def __repr__(self) -> str:
        return describe(self)

    def _repr_html_(self) -> str:
        return html(self)


def _only_holds(module: Module) -> bool:
    """Whether a module is never run itself, such as a list: paths have its name all the same."""
    return type(module).forward is Module.forward


def _name_as(module: Module, name: str) -> None:
    """The name of a module as its parent's paths have it, and of those that it only holds."""
    object.__setattr__(module, "_name", name)
    if _only_holds(module):
        for key, child in module._modules.items():
            if child is not None:
                _name_as(child, f"{name}.{key}")
