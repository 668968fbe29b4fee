"""Hooks around state_dict and load_state_dict: values renamed, added or left out by their owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.nn.hooks import RemovableHandle

if TYPE_CHECKING:
    from ridgeline.nn.module import Module


class StateDictError(RidgelineError):
    """A state_dict that does not fit the module it is loaded into."""

    code = "RL0310"


STATE_HOOKS = (
    "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip


class StateHooks:
    """The part of a module that others may take in its saving and loading."""

    _state_dict_pre_hooks: dict[int, Any]
    _state_dict_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_post_hooks: dict[int, Any]

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` runs before the module's values are collected."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` may change the dict in place."""
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)` may change the dict, which is a copy, before it is read."""
        return RemovableHandle(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """`hook(module, incompatible_keys)` runs after loading and may take keys off the lists."""
        return RemovableHandle(self._load_state_dict_post_hooks, hook)


Paths = Iterable[tuple[str, "Module"]]


def _prefix(start: str, path: str) -> str:
    return f"{start}{path}." if path else start


def before_saving(paths: Paths, start: str, keep_vars: bool) -> None:
    """The hooks of a tree of modules, parents first."""
    for path, module in paths:
        for hook in tuple(module._state_dict_pre_hooks.values()):
            hook(module, _prefix(start, path), keep_vars)


def after_saving(paths: Paths, start: str, values: dict[str, Any]) -> None:
    """The hooks of a tree of modules, children first."""
    for path, module in reversed(list(paths)):
        for hook in tuple(module._state_dict_hooks.values()):
            hook(module, values, _prefix(start, path), {})


def before_loading(paths: Paths, values: Mapping[str, Any], strict: bool) -> Mapping[str, Any]:
    """What the hooks of a tree of modules, parents first, make of the values."""
    found = list(paths)
    if not any(module._load_state_dict_pre_hooks for _, module in found):
        return values
    own, errors = dict(values), list[str]()
    for path, module in found:
        for hook in tuple(module._load_state_dict_pre_hooks.values()):
            hook(module, own, _prefix("", path), {}, strict, [], [], errors)
    if errors:
        raise StateDictError("a hook refused the state", note="\n".join(errors))
    return own


def after_loading(paths: Paths, incompatible: Any) -> None:
    """The hooks of a tree of modules, children first."""
    for _, module in reversed(list(paths)):
        for hook in tuple(module._load_state_dict_post_hooks.values()):
            hook(module, incompatible)
