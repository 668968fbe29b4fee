"""Walking a tree of modules: its modules, parameters and buffers, with their paths.

`Tree` is the half of `Module` that only reads. Nothing here recurses, so models may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ridgeline.nn.parameter import Parameter
from ridgeline.record.modes import called
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.nn.module import Module

Self = TypeVar("Self", bound="Tree")


class Tree:
    """The members of a module and of all modules below it."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def _root(self) -> Module:
        """This object as the module that it is; `Tree` has no instances of its own."""
        return cast("Module", self)

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, parents first, with their paths."""
        seen: set[Module] = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self._root())]
        while stack:
            path, module = stack.pop()
            if remove_duplicate:
                if module in seen:
                    continue
                seen.add(module)
            yield path, module
            below = [
                (f"{path}.{name}" if path else name, child)
                for name, child in module._modules.items()
                if child is not None
            ]
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children with their names, each once."""
        seen: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children."""
        return (child for _, child in self.named_children())

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        walk: Iterable[tuple[str, Module]] = [(prefix, self._root())]
        if recurse:
            walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in walk:
            for name, member in module.__dict__[table].items():
                if member is None or (remove_duplicate and id(member) in seen):
                    continue
                seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths; one that is shared comes once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their paths."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as `encoder.3.fc1`."""
        module = self._root()
        for part in target.split(".") if target else ():
            found = module._modules.get(part)
            if found is None:
                raise AttributeError(
                    f"{type(module).__name__} has no submodule {part!r} (asked for {target!r})"
                )
            module = found
        return module

    def _get_member(self, target: str, table: str) -> Any:
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path).__dict__[table].get(name)
        if found is None:
            raise AttributeError(f"there is no {name!r} at {target!r} among {table[1:]}")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path."""
        found: Parameter = self._get_member(target, "_parameters")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        found: Tensor = self._get_member(target, "_buffers")
        return found

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module, children first and in order."""
        backwards: list[Module] = []
        stack: list[Module] = [self._root()]
        while stack:
            backwards.append(stack.pop())
            stack.extend(backwards[-1].children())
        for module in reversed(backwards):
            called(fn)(module)
        return self
