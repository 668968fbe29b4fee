"""Parameters computed from others by modules, with torch.nn.utils.parametrize's names and state.

`register_parametrization(layer, "weight", module)` moves the weight to
`layer.parametrizations.weight.original` and reads it through the module from then on. Several
modules at one place are applied in the order in which they were registered.
"""

from __future__ import annotations

import copy
from itertools import repeat
from typing import Any, TypeVar

from ridgeline.atomic import Block
from ridgeline.errors import BadTypeError, BadValueError, ShapeError
from ridgeline.nn.containers import ModuleDict, ModuleList
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.record import mutation
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


class _Cache:
    """Values computed inside `cached()`, by module and name."""

    kept: dict[tuple[int, str], Tensor] | None = None


_cache = _Cache()


class ParametrizationList(ModuleList):
    """The modules at one place, and the tensors that the first of them takes."""

    def __init__(self, modules: list[Module], original: Any, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            parts: Any = original
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    parts = module.right_inverse(parts)
        self.is_tensor = isinstance(parts, Tensor)
        self.ntensors = 1 if self.is_tensor else len(parts)
        trained = isinstance(original, Parameter)
        names = ["original"] if self.is_tensor else [f"original{n}" for n in range(self.ntensors)]
        for name, part in zip(names, [parts] if self.is_tensor else parts):
            if not isinstance(part, Tensor):
                raise BadTypeError(f"right_inverse gives tensors, not {type(part).__name__}")
            value = part.detach()
            if trained and value.dtype.is_differentiable:
                self.register_parameter(name, Parameter(value, original.requires_grad))
            else:
                self.register_buffer(name, value)

    def originals(self) -> list[Tensor]:
        """What the first module takes."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{n}") for n in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the modules give `value`."""
        with no_grad():
            parts: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise BadValueError(
                        f"{type(module).__name__} has no right_inverse, which assigning needs"
                    )
                parts = module.right_inverse(parts)
            for own, part in zip(self.originals(), [parts] if self.is_tensor else parts):
                own.copy_(part)

    def forward(self) -> Tensor:
        first, *others = list(self)
        value: Tensor = first(*self.originals())
        for module in others:
            value = module(value)
        return value


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Read `module.tensor_name` through `parametrization` from now on.

    A `right_inverse` of it, where there is one, gives what it is to start from. Shape and element
    type must stay as they are unless `unsafe`.
    """
    before = getattr(module, tensor_name, None)
    if not isinstance(before, Tensor):
        raise BadValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        found = module.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse"):
            raise BadValueError(
                f"{tensor_name!r} is computed already, so a module with a right_inverse cannot "
                "come after it",
                help="register it first",
            )
        _check(tensor_name, before, parametrization(before), unsafe)
        found.append(parametrization)
        mutation.bump()
        return module
    made = ParametrizationList([parametrization], before, unsafe)
    made.train(module.training)
    _check(tensor_name, before, made(), unsafe)
    if not is_parametrized(module):
        _inject(module)
    delattr(module, tensor_name)
    module.parametrizations[tensor_name] = made
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def _check(name: str, before: Tensor, after: Any, unsafe: bool) -> None:
    if unsafe:
        return
    if not isinstance(after, Tensor):
        raise BadValueError(f"a parametrization gives a tensor, not {type(after).__name__}")
    if tuple(after.shape) != tuple(before.shape) or after.dtype != before.dtype:
        raise ShapeError(
            f"{name!r} is {before.dtype} {list(before.shape)}, its parametrization gives "
            f"{after.dtype} {list(after.shape)}",
            help="unsafe=True allows it",
        )


def _inject(module: Module) -> None:
    """A class of the module's own, which can hold properties; copies share it."""
    own = type(module)

    def reduce(self: Any, protocol: Any) -> Any:
        raise BadValueError(
            "a module with parametrizations cannot be pickled",
            help="save its state_dict(), or remove_parametrizations first",
        )

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        made.__class__ = _copied(self.__class__)
        return made

    members = {"_plain": own, "__reduce_ex__": reduce, "__deepcopy__": deepcopy}
    module.__class__ = type(f"Parametrized{own.__name__}", (own,), members)
    module.parametrizations = ModuleDict()


def _copied(own: type) -> type:
    """A class with the same properties, so that removing one here leaves the other module alone."""
    members = {k: v for k, v in vars(own).items() if k not in ("__dict__", "__weakref__")}
    return type(own.__name__, own.__bases__, members)


def _property(name: str) -> property:
    def read(self: Any) -> Tensor:
        key = (id(self), name)
        kept = _cache.kept
        if kept is not None and key in kept:
            return kept[key]
        value: Tensor = self.parametrizations[name]()
        if kept is not None:
            kept[key] = value
        return value

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


class cached(Block):
    """Inside, every parametrized tensor is computed once at most."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[dict[tuple[int, str], Tensor] | None] = []
        popped = map(list.pop, repeat(self._before))
        self.leaving = map(setattr, repeat(_cache), repeat("kept"), popped)

    def __enter__(self) -> None:
        before = _cache.kept
        self._before.append(before)
        _cache.kept = {} if before is None else before


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one tensor of it, is computed from others."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(len(found)) if tensor_name is None else tensor_name in found


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Make the tensor an ordinary one again: what it is now, or what it was computed from."""
    if not is_parametrized(module, tensor_name):
        raise BadValueError(f"{tensor_name!r} of this {type(module).__name__} is not parametrized")
    found: ParametrizationList = module.parametrizations[tensor_name]
    if not leave_parametrized and not found.is_tensor:
        raise BadValueError("several originals cannot be left in the place of one tensor")
    trained = any(isinstance(part, Parameter) for part in found.originals())
    with no_grad():
        value = (getattr(module, tensor_name) if leave_parametrized else found.original).detach()
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    if not len(module.parametrizations):
        del module.parametrizations
        module.__class__ = type(module)._plain  # type: ignore[attr-defined]
    if trained:
        setattr(module, tensor_name, Parameter(value.clone()))
    else:
        module.register_buffer(tensor_name, value.clone())
    return module
