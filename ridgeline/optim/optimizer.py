"""Optimizer: the base of all update rules, with torch's parameter groups and state.

A rule is two methods: `_start` makes the state of a parameter, `_update` writes one step. Both
are plain tensor code; under jit they become part of the captured step and fuse with it. Numbers
of a group are read lifted, so that a changed learning rate never re-traces; branches on them
become guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.atomic import apply
from ridgeline.devices import is_mesh
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.functions.operands import defaults
from ridgeline.nn.hooks import RemovableHandle
from ridgeline.nn.parameter import trained
from ridgeline.optim.update_program import UpdateProgram
from ridgeline.record import mutation
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import called, called_method, enable_grad, modes, no_grad
from ridgeline.record.mutation import ParamGroup
from ridgeline.record.numbers import member
from ridgeline.record.recorder import flush, flush_mesh
from ridgeline.record.turns import claimed, in_turn
from ridgeline.tensors.placing import state_like, summed_gradient
from ridgeline.tensors.snapshot import Snapshot
from ridgeline.tensors.tensor import Tensor, tensor

T = TypeVar("T")
State = dict[str, Any]
StepHook = Callable[..., Any]  # (optimizer, args, kwargs)


class Hints(TypedDict, total=False):
    """torch's hints on how to run an update; ours is always compiled into few kernels."""

    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


class OptimizerError(RidgelineError, ValueError):
    """Parameters, settings or saved state that an optimizer cannot work with."""

    code = "RL0320"


class Group(ParamGroup):
    """A parameter group in which a whole number stays a floating setting, so lr=1 is no branch."""

    def __setitem__(self, key: str, value: Any) -> None:
        floating = isinstance(dict.get(self, key), float)
        super().__setitem__(key, _plain_number(value) if floating else value)


class StateTable(mutation.Table):
    """State by parameter; that of each is a table whose changes are noticed, too."""

    __slots__ = ()

    def __setitem__(self, key: Tensor, value: State) -> None:
        super().__setitem__(key, mutation.Table(value) if type(value) is dict else value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take the state of several parameters at once."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


class Optimizer:
    """Holds parameters in groups, each with its own settings, and state per parameter."""

    _late = True  # as in torch, a parameter has state from its first step on: see `_types`

    def __init__(
        self, params: Any, defaults: Mapping[str, Any], hints: Mapping[str, Any] | None = None
    ) -> None:
        for name, value in (hints or {}).items():
            if name not in Hints.__annotations__:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
            if name == "differentiable" and value:
                raise OptimizerError("an optimizer's step cannot be differentiated")
        # whole numbers too are read lifted, so that lr=1 and lr=0.5 are one captured step
        self.defaults = {k: _plain_number(v) for k, v in defaults.items()}
        self.param_groups: list[ParamGroup] = mutation.Row()
        self.state: dict[Tensor, State] = StateTable()
        self._step_hooks: tuple[dict[int, StepHook], dict[int, StepHook]] = ({}, {})
        self._program = UpdateProgram()
        self._followed = -1  # the epoch at which state was last brought to its parameters
        # element types that state was made for, which nobody sees before a step or a load
        self._types: dict[Tensor, dtypes.DType] = {}
        groups = _as_groups(params)
        if not groups:
            raise OptimizerError(
                "the optimizer got no parameters", help="pass model.parameters(), not empty"
            )
        for group in groups:
            self.add_param_group(group)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "param_groups":  # whoever puts other ones in place changes them later, too
            value = mutation.Row(g if isinstance(g, Group) else Group(g) for g in value)
        if name in ("param_groups", "state"):
            mutation.bump()
        object.__setattr__(self, name, value)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Take more parameters, with settings of their own where given."""
        group = Group(param_group)
        members = group["params"]
        members = [members] if isinstance(members, Tensor) else list(members)
        if members and isinstance(members[0], tuple):
            group["param_names"] = [name for name, _ in members]
            members = [parameter for _, parameter in members]
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for parameter in members:
            _check_parameter(parameter, known)
            known.add(id(parameter))
        group["params"] = members
        for key, value in self.defaults.items():
            group[key] = _plain_number(group[key]) if key in group else value
        self._check(group)
        self.param_groups.append(group)
        # State exists from the start, so that a jitted step has the same inputs on every call.
        for parameter in members:
            if parameter.requires_grad:
                self.state[parameter] = self._start(parameter, group)
                if self._late:
                    self._types[parameter] = parameter.dtype
        mutation.bump()

    def _check(self, group: ParamGroup) -> None:
        """Raise for impossible settings; rules extend it."""
        self._at_least("lr", group["lr"], 0.0)
        if "weight_decay" in group:
            self._at_least("weight_decay", group["weight_decay"], 0.0)

    def _at_least(self, name: str, value: Any, least: float) -> None:
        if not float(value) >= least:  # also refuses NaN
            raise OptimizerError(
                f"{type(self).__name__} needs {name} of at least {least:g}, got {value}"
            )

    def _between(self, name: str, value: float) -> None:
        if not 0.0 <= value < 1.0:
            raise OptimizerError(f"{type(self).__name__} needs {name} in 0…1, got {value}")

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        """The state of a parameter before its first step."""
        return {}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        """Write one step into the parameter and its state."""
        raise NotImplementedError(f"{type(self).__name__} does not define _update()")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; a closure computes the loss again first."""
        mutation.watch(self)
        if self._followed != mutation.epoch.value:  # nothing moves without a change of the epoch
            self.follow()
            self._followed = mutation.epoch.value
        self._types.clear()
        before, after = self._step_hooks
        for hook in tuple(before.values()):
            called(hook)(self, (closure,), {})
        loss = self._step(closure)
        for hook in tuple(after.values()):
            called(hook)(self, (closure,), {})
        flush()
        self._flush_mesh()
        return loss

    def _flush_mesh(self) -> None:
        """All ranks come to a step of parameters on a mesh."""
        if any(is_mesh(p.device) for group in self.param_groups for p in group["params"]):
            flush_mesh()

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        """One step without its hooks; the closure's loss."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = called(closure)()
        if modes.capture is not None:
            self._update_all()
        elif not self._program.run(self):
            cells = [p._cell for group in self.param_groups for p in group["params"]]
            in_turn(claimed(cells), lambda: self._whole(self._update_all))
            self._program.seen(self)
        return loss

    def _whole(self, change: Callable[[], T]) -> T:
        """Make and compute a change of parameters and state, or none if that does not succeed."""
        before = Snapshot()
        before.table(vars(self))
        before.table(self.state)
        for state in self.state.values():
            before.table(state)
        for group in self.param_groups:
            for parameter in group["params"]:
                before.tensor(parameter)
        back = before.back()
        try:
            result = change()
            flush()
            self._flush_mesh()
            return result
        except BaseException:
            apply(back)
            raise

    def _update_all(self) -> None:
        """Write one step into every parameter that has a gradient."""
        update, start = called_method(self, "_update"), called_method(self, "_start")
        with no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        if parameter not in self.state:
                            self.state[parameter] = start(parameter, group)
                        state, gradient = self.state[parameter], parameter.grad
                        if is_mesh(parameter.device):
                            gradient = summed_gradient(parameter, gradient)
                        update(parameter, gradient, state, group)

    def register_step_pre_hook(self, hook: StepHook) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs before every step."""
        mutation.bump()
        return RemovableHandle(self._step_hooks[0], hook)

    def register_step_post_hook(self, hook: StepHook) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs after every step."""
        mutation.bump()
        return RemovableHandle(self._step_hooks[1], hook)

    def follow(self) -> None:
        """Bring the state to the devices of its parameters, which may have moved.

        State of before the first step has their types as well: torch makes it as late as that.
        """
        for group in self.param_groups:
            for parameter in group["params"] if self._types else ():
                if self._types.get(parameter, parameter.dtype) != parameter.dtype:
                    self.state[parameter] = self._start(parameter, group)
        for parameter, state in self.state.items():
            device = parameter.device
            for name, value in state.items():
                if is_mesh(device) and isinstance(value, Tensor) and not value.dim():
                    continue
                if isinstance(value, Tensor) and value.device != device:
                    if modes.capture is not None:
                        raise CaptureError(
                            f"the optimizer's state is on {value.device}, a parameter on {device}",
                            help="move the model before you make the optimizer, or before the "
                            "first step outside jit",
                        )
                    state[name] = value.to(device)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        mutation.watch(self)
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:  # without looking, so that a jitted step does not depend on it
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = parameter.grad.detach().zero_()

    def _guard_state(self, attributes: dict[str, Any]) -> Any:
        """What a capture depends on: the groups without their numbers, and which state exists."""
        groups = [
            {key: value for key, value in dict.items(group) if not _is_number(value)}
            for group in self.param_groups
        ]
        held = [list(state.values()) for state in self.state.values()]
        modes = [trained(group["params"]) for group in self.param_groups]
        hooks = [list(table.values()) for table in self._step_hooks]
        own = list(map(id, self.param_groups))  # numbers are read from these very groups
        return {"groups": groups, "own": own, "state": held, "trained": modes, "hooks": hooks}

    def state_dict(self) -> dict[str, Any]:
        """State by parameter number and groups, in torch's form."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            settings = {key: value for key, value in dict.items(group) if key != "params"}
            groups.append({**settings, "params": [numbers[id(p)] for p in group["params"]]})
        state = {
            numbers[id(p)]: dict(held)
            for p, held in self.state.items()
            if held and p not in self._types and id(p) in numbers  # or it is trained no more
        }
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, also torch's; nothing changes if it does not fit.

        A parameter of which it has no state is as before its first step.
        """
        groups, held = state_dict["param_groups"], state_dict["state"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise OptimizerError(
                "the saved optimizer has other parameter groups",
                note=f"saved: {[len(g['params']) for g in groups]} parameters per group, "
                f"here: {[len(g['params']) for g in self.param_groups]}",
            )
        fresh: dict[Tensor, State] = {}
        changed = [{k: v for k, v in saved.items() if k != "params"} for saved in groups]
        for group, saved, settings in zip(self.param_groups, groups, changed):
            to_be = Group({**group, **settings})
            for parameter, number in zip(group["params"], saved["params"]):
                entries = held.get(number, held.get(str(number)))
                if entries is None and not parameter.requires_grad:
                    continue
                expected = self._start(parameter, to_be)
                fresh[parameter] = expected if entries is None else {
                    key: _fitted(parameter, expected, key, value)
                    for key, value in entries.items()
                    if value is not None
                }  # fmt: skip
        table = StateTable()
        table.update(fresh)
        for group, settings in zip(self.param_groups, changed):
            group.update(settings)
        self.state = table
        self._types.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but hooks, which a copy has none of, as in torch."""
        return {**vars(self), "_step_hooks": ({}, {})}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            settings = sorted((k, v) for k, v in dict.items(group) if k != "params")
            lines += [f"    {key}: {value}" for key, value in settings]
        return "\n".join([*lines, ")"])


def scalar(parameter: Tensor, value: float) -> Tensor:
    """A number that is state: a scalar beside its parameter, of a mesh on every host.

    It is float32, and float64 where that is the default, as in torch.
    """
    beside = "cpu" if is_mesh(parameter.device) else parameter.device
    wide = defaults.dtype is dtypes.float64
    return tensor(value, dtype=dtypes.float64 if wide else dtypes.float32, device=beside)


def counter(parameter: Tensor) -> Tensor:
    """A count of steps, zero to begin with."""
    return scalar(parameter, 0.0)


def zeros(parameter: Tensor, value: float = 0.0) -> Tensor:
    """State in the shape and type of a parameter, with one value everywhere."""
    if is_mesh(parameter.device):
        return state_like(parameter, value)
    filled = np.full(tuple(parameter.shape), value, parameter.dtype.numpy)
    return tensor(filled, dtype=parameter.dtype, device=parameter.device)


def pair(group: ParamGroup, key: str) -> tuple[float, ...]:
    """The numbers of a tuple such as `betas`, each read lifted inside a capture."""
    values: tuple[float, ...] = dict.__getitem__(group, key)
    return tuple(member(group, key, index, value) for index, value in enumerate(values))


def _plain_number(value: Any) -> Any:
    """A setting that is a number, or a tuple of numbers, in floating form."""
    if isinstance(value, tuple | list) and value and all(isinstance(v, int | float) for v in value):
        return tuple(float(v) for v in value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_number(value: Any) -> bool:
    """True for floats and tuples of them: they are read lifted, so they are no structure."""
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def _as_groups(params: Any) -> list[dict[str, Any]]:
    if isinstance(params, Tensor):
        raise OptimizerError(
            "an optimizer takes an iterable of parameters, not one tensor", help="pass [tensor]"
        )
    members = list(params) if isinstance(params, Iterable) else []
    if members and isinstance(members[0], Mapping):
        return [dict(group) for group in members]
    return [{"params": members}] if members else []


def _check_parameter(parameter: Any, known: set[int]) -> None:
    if not isinstance(parameter, Tensor):
        raise OptimizerError(f"an optimizer takes tensors, not {type(parameter).__name__}")
    if not parameter.is_leaf:
        raise OptimizerError(
            f"a tensor of shape {list(parameter.shape)} is a result, not a leaf",
            help="optimize the parameters it was computed from",
        )
    if id(parameter) in known:
        raise OptimizerError(
            f"a parameter of shape {list(parameter.shape)} is in the optimizer twice"
        )


def _fitted(parameter: Tensor, expected: State, key: str, value: Any) -> Any:
    """A saved value as this parameter's state: a copy, in the parameter's type but for scalars."""
    if not hasattr(value, "shape"):
        return value
    own = expected.get(key)
    wanted = tuple(parameter.shape if own is None else own.shape)
    if tuple(value.shape) != wanted:
        raise ShapeError(
            f"saved {key} has shape {list(value.shape)}, here it is {list(wanted)}",
            note=f"the parameter has shape {list(parameter.shape)}",
        )
    array = value if isinstance(value, Tensor) else np.asarray(value)
    dtype = own.dtype if own is not None else parameter.dtype
    return tensor(array, dtype=dtype, device=parameter.device)


class _Required:
    """torch's mark for a default that a parameter group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
