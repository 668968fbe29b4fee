"""state_dict and load_state_dict: a module's values by path, with errors that name every fault.

Loading checks all entries before it copies any, so a file that does not fit leaves the module as
it was.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ridgeline import dtypes
from ridgeline.nn.parameter import Parameter
from ridgeline.nn.state_hooks import (
    StateDictError,
    after_loading,
    after_saving,
    before_loading,
    before_saving,
)
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor

if TYPE_CHECKING:
    from ridgeline.nn.module import Module

FLOAT32, FLOAT64 = dtypes.float32, dtypes.float64
FLOAT16, BFLOAT16 = dtypes.float16, dtypes.bfloat16
EXTRA = "_extra_state"
_SHOWN = 8  # entries of each kind that an error lists


class IncompatibleKeys(NamedTuple):
    """What did not match when loading with strict=False."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        missing, unexpected = self.missing_keys, self.unexpected_keys
        return f"IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"


def entries(module: Module) -> Iterator[tuple[str, Module, str]]:
    """The path, owner and name of every parameter and persistent buffer, in torch's order."""
    for path, owner in module.named_modules(remove_duplicate=False):
        start = f"{path}." if path else ""
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                yield start + name, owner, name
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._transient:
                yield start + name, owner, name


def collect(module: Module, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """All values by path, detached unless `keep_vars`."""
    values: dict[str, Any] = {}
    before_saving(module.named_modules(), prefix, keep_vars)
    for path, owner, name in entries(module):
        value = getattr(owner, name)
        values[prefix + path] = value if keep_vars else value.detach()
    for path, owner in module.named_modules():
        extra = owner.get_extra_state()
        if extra is not None:
            values[f"{prefix}{path}.{EXTRA}" if path else prefix + EXTRA] = extra
    after_saving(module.named_modules(), prefix, values)
    return values


def load(module: Module, values: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """Copy `values` into the module, or with `assign` put them in place of its own."""
    if not isinstance(values, Mapping):
        raise StateDictError(f"expected a dict of tensors, got {type(values).__name__}")
    values = before_loading(module.named_modules(), values, strict)
    for path, owner in module.named_modules():
        start = f"{path}." if path else ""
        owner._expect({k.removeprefix(start): v for k, v in values.items() if k.startswith(start)})
    own = {path: (owner, name) for path, owner, name in entries(module)}
    extras = {
        (f"{path}.{EXTRA}" if path else EXTRA): owner
        for path, owner in module.named_modules()
        if (f"{path}.{EXTRA}" if path else EXTRA) in values
    }
    missing = [path for path in own if path not in values]
    unexpected = [path for path in values if path not in own and path not in extras]
    misshapen = list(_misshapen(own, values))
    found = IncompatibleKeys(missing, unexpected)
    forgiving = any(owner._load_state_dict_post_hooks for owner in module.modules())
    if misshapen or (strict and not forgiving):
        _check(module, found, misshapen, strict)
    with no_grad():
        for path, (owner, name) in own.items():
            if path in values:
                _put(owner, name, values[path], assign)
    for path, owner in extras.items():
        owner.set_extra_state(values[path])
    if forgiving:  # hooks may take keys off the lists, so these are looked at last
        after_loading(module.named_modules(), found)
        _check(module, found, [], strict)
    return found


def _check(module: Module, found: IncompatibleKeys, misshapen: list[str], strict: bool) -> None:
    missing, unexpected = found if strict else ([], [])
    if missing or unexpected or misshapen:
        raise fault(module, missing, unexpected, misshapen)


def _misshapen(own: Mapping[str, tuple[Module, str]], values: Mapping[str, Any]) -> Iterator[str]:
    for path, (owner, name) in own.items():
        if path not in values:
            continue
        shape = getattr(values[path], "shape", None)
        wanted = tuple(getattr(owner, name).shape)
        if shape is None:
            yield f"{path}: expected a tensor, got {type(values[path]).__name__}"
        elif tuple(shape) != wanted:
            yield f"{path}: the module has {list(wanted)}, the state {list(shape)}"


def _put(owner: Module, name: str, value: Any, assign: bool) -> None:
    current = getattr(owner, name)
    incoming = value if isinstance(value, Tensor) else tensor(value)
    if not assign:
        current.copy_(incoming)
    elif isinstance(current, Parameter):
        setattr(owner, name, Parameter(incoming, requires_grad=current.requires_grad))
    else:
        setattr(owner, name, incoming)


def fault(
    module: Module, missing: list[str], unexpected: list[str], misshapen: list[str]
) -> StateDictError:
    lines = [
        *_listed("missing", missing),
        *_listed("unexpected", unexpected),
        *_listed("wrong shape", misshapen),
    ]
    help = "strict=False loads what fits by name" if not misshapen else ""
    pairs = [(m, difflib.get_close_matches(m, unexpected, 1, 0.8)) for m in missing]
    close = [f"{m} may be called {found[0]}" for m, found in pairs if found]
    if close:
        help = "; ".join(close[:3]) + (f"; {help}" if help else "")
    return StateDictError(
        f"the state does not fit {type(module).__name__}", note="\n".join(lines), help=help
    )


def _listed(kind: str, items: list[str]) -> list[str]:
    shown = [f"{kind}: {item}" for item in items[:_SHOWN]]
    if len(items) > _SHOWN:
        shown.append(f"{kind}: {len(items) - _SHOWN} more")
    return shown
