"""Mixed precision: `autocast`, and a scaler that keeps float16 gradients from vanishing.

The scale is a tensor, and so is whether any gradient overflowed: a step that must be skipped is
skipped by selecting the old values, so scaling works inside jit without reading anything back.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ridgeline.cuda import is_available
from ridgeline.devices import device as _device
from ridgeline.errors import ArgumentError, RidgelineError
from ridgeline.optim import Optimizer
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor


class ScalerError(RidgelineError):
    """The methods of a GradScaler called in an order that makes no sense."""

    code = "RL0203"


class GradScaler:
    """Multiplies the loss so that small gradients survive float16, and adapts the factor."""

    _compared_by_jit = True  # its settings may be loaded, and what a step did counts

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not growth_factor > 1.0:
            raise ArgumentError(f"growth_factor must be above 1, not {growth_factor}")
        if not backoff_factor < 1.0:
            raise ArgumentError(f"backoff_factor must be below 1, not {backoff_factor}")
        self._place = _device(device)
        if enabled and self._place.type == "cuda" and not is_available():
            warnings.warn("GradScaler is off: there is no GPU here", stacklevel=2)
            enabled = False
        self._enabled = enabled
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._tracker: Tensor | None = None
        self._overflows: dict[int, Tensor] = {}  # by optimizer, in this iteration
        self._stages: dict[int, str] = {}

    def is_enabled(self) -> bool:
        """True unless the scaler was made to do nothing."""
        return self._enabled

    def _state(self) -> tuple[Tensor, Tensor]:
        """The scale, and how many steps in a row were taken; made when first needed."""
        if self._scale is None or self._tracker is None:
            self._scale = tensor(self._init_scale, device=self._place)
            self._tracker = tensor(0, device=self._place)
        return self._scale, self._tracker

    def scale(self, outputs: Any) -> Any:
        """A tensor, or the tensors of a list or tuple, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._state()[0].to(outputs.device)
        return type(outputs)(self.scale(part) for part in outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide an optimizer's gradients by the scale, and see whether any is not finite."""
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer))
        if stage is not None:
            raise ScalerError(
                "unscale_() was already called for this optimizer"
                if stage == "unscaled"
                else "unscale_() comes before step()",
                help="call update() once an iteration",
            )
        scale, _ = self._state()
        found: Tensor | None = None
        with no_grad():
            for gradient in _gradients(optimizer):
                factor = scale.to(gradient.device)
                gradient.copy_((gradient.float() / factor).to(gradient.dtype))
                here = (~gradient.isfinite()).any().to(scale.device)
                found = here if found is None else found | here
        if found is None:
            raise ScalerError("no gradient was recorded for this optimizer")
        self._overflows[id(optimizer)] = found
        self._stages[id(optimizer)] = "unscaled"

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()`, undone if a gradient overflowed."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise ScalerError("step() takes no closure while gradients are scaled")
        if self._stages.get(id(optimizer)) == "stepped":
            raise ScalerError("step() was already called since the last update()")
        if self._stages.get(id(optimizer)) is None:
            self.unscale_(optimizer)
        self._stages[id(optimizer)] = "stepped"
        skipped = self._overflows[id(optimizer)]
        with no_grad():
            held = _values(optimizer)
            before = [value.clone() for value in held]
            result = optimizer.step()
            for value, old in zip(held, before):
                value.copy_(old.where(skipped.to(value.device), value))
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Lower the scale after an overflow, raise it after enough steps without one."""
        if not self._enabled:
            return
        scale, tracker = self._state()
        with no_grad():
            if new_scale is not None:
                scale.copy_(new_scale)
            else:
                self._adapt(scale, tracker)
        self._overflows.clear()
        self._stages.clear()

    def _adapt(self, scale: Tensor, tracker: Tensor) -> None:
        if not self._overflows:
            raise ScalerError("update() comes after step()")
        found: Tensor | None = None
        for here in self._overflows.values():
            found = here if found is None else found | here
        assert found is not None
        good = tracker + 1
        grown = scale * self._growth
        grows = (good == self._interval) & grown.isfinite()
        kept = grown.where(grows, scale)
        starts = found | (good == self._interval)
        scale.copy_((scale * self._backoff).where(found, kept))
        tracker.copy_((tracker * 0).where(starts, good))

    def get_scale(self) -> float:
        """The scale as a number; waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale)

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks after an overflow."""
        return self._backoff

    def get_growth_interval(self) -> int:
        """After how many good steps the scale grows."""
        return self._interval

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on."""
        if not self._enabled:
            return {}
        tracker = 0 if self._tracker is None else int(self._tracker)
        return {
            "scale": self.get_scale(), "growth_factor": self._growth,
            "backoff_factor": self._backoff, "growth_interval": self._interval,
            "_growth_tracker": tracker,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if not self._enabled:
            return
        if not state:
            raise ScalerError("the saved scaler was disabled, this one is not")
        self._init_scale = float(state["scale"])
        self._growth, self._backoff = state["growth_factor"], state["backoff_factor"]
        self._interval = state["growth_interval"]
        scale, tracker = self._state()
        scale.copy_(self._init_scale)
        tracker.copy_(state["_growth_tracker"])


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [p.grad for p in parameters if p.grad is not None]


def _values(optimizer: Optimizer) -> list[Tensor]:
    """What a step may change: parameters, and the state that exists."""
    found = [p for group in optimizer.param_groups for p in group["params"]]
    for state in optimizer.state.values():
        found += [value for value in state.values() if isinstance(value, Tensor)]
    return found
