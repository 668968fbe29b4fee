"""Containers: modules in a row, in a list, or by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.tensor import Tensor


class _Indexed(Module):
    """Modules under the names "0", "1" and so on."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def _replace(self, modules: Iterable[Module]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        members = list(self._modules.values())
        if isinstance(index, slice):
            part = type(self)()
            part._replace(members[index])
            return part
        return members[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[index], module)

    def __delitem__(self, index: int | slice) -> None:
        members = list(self._modules.values())
        del members[index]
        self._replace(members)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module in front of the one at `index`."""
        members = list(self._modules.values())
        members.insert(index, module)
        self._replace(members)
        return self


class Sequential(_Indexed):
    """Modules applied one after the other; pass modules, or one dict of named ones."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self._replace(args)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Indexed):
    """A list whose modules are registered; it has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self._replace(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, modules: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *modules])


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace modules by name."""
        for name, module in modules.items():
            self.add_module(name, module)

    def __getitem__(self, key: str) -> Module:
        found = self._modules[key]
        assert found is not None
        return found

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()


class ParameterList(Module):
    """Parameters under the names "0", "1" and so on; plain tensors become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.register_parameter(list(self._parameters)[index], _parameter(value))


class ParameterDict(Module):
    """Parameters by name; plain tensors become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        for name, value in (parameters or {}).items():
            self[name] = value

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: str) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """Names."""
        return self._parameters.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return self._parameters.items()

    def values(self) -> Iterable[Any]:
        """Parameters."""
        return self._parameters.values()

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter under a name, or a default."""
        return self._parameters.get(key, default)

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Add or replace several parameters."""
        for name, value in parameters.items():
            self[name] = value

    def pop(self, key: str) -> Any:
        """Remove a parameter and return it."""
        value = self[key]
        del self[key]
        return value


def _parameter(value: Any) -> Parameter:
    if isinstance(value, Parameter):
        return value
    return Parameter(value if isinstance(value, Tensor) else as_tensor(value))
