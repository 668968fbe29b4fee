"""The step of a run: forward, backward and update as compiled programs, from an objective.

With `accumulate` above 1 the gradients of that many batches are added up before an update; with
`clip` their norm is limited; with `ema` an exponential average of the weights is kept beside.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.optim import Optimizer
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.jit import jit
from ridgeline.train.objectives import Objective


class Average:
    """An exponential average of a model's weights, which starts as a copy of them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise BadValueError(f"the decay of an average lies between 0 and 1, not {decay}")
        self.model, self.decay = copy.deepcopy(model), decay
        pairs = list(zip(self.model.parameters(), model.parameters()))
        buffers = list(zip(self.model.buffers(), model.buffers()))

        def update() -> None:
            with no_grad():
                for average, value in pairs:
                    average.copy_(decay * average + (1 - decay) * value)
                for kept, fresh in buffers:
                    kept.copy_(fresh)

        self.update = jit(update)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by name."""
        return dict(self.model.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take averages back."""
        self.model.load_state_dict(state)


class Step:
    """Called with a batch, it trains on it and gives the loss and metrics."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        objective: Objective,
        accumulate: int = 1,
        clip: float | None = None,
        average: Average | None = None,
    ) -> None:
        if accumulate < 1:
            raise BadValueError(f"accumulate must be a whole number above 0, not {accumulate}")
        if clip is not None and not clip > 0:
            raise BadValueError(f"clip must be above 0, not {clip}")
        self.accumulate, self.average, self.gathered = accumulate, average, 0
        parameters = list(model.parameters())

        def update() -> None:
            if clip is not None:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()

        def whole(*batch: Any) -> Any:
            optimizer.zero_grad()
            loss, metrics = objective(model, *batch)
            loss.backward()
            update()
            return loss, metrics

        def first(*batch: Any) -> Any:
            optimizer.zero_grad()
            return further(*batch)

        def further(*batch: Any) -> Any:
            loss, metrics = objective(model, *batch)
            (loss / accumulate).backward()
            return loss, metrics

        self.whole, self._first, self._further, self._update = map(
            jit, (whole, first, further, update)
        )

    def __call__(self, *batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        if self.accumulate == 1:
            result = self.whole(*batch)
            if self.average is not None:
                self.average.update()
        else:
            result = (self._further if self.gathered else self._first)(*batch)
            self.gathered += 1
            if self.gathered == self.accumulate:
                self.finish()
        loss, metrics = result
        return loss, metrics

    @property
    def settled(self) -> bool:
        """True where no gradients wait for an update: the state can be saved."""
        return self.gathered == 0

    def finish(self) -> None:
        """Update with the gradients gathered so far, if there are any."""
        if self.gathered:
            self.gathered = 0
            self._update()
            if self.average is not None:
                self.average.update()

    def profile(self, *batch: Any, rounds: int) -> Any:
        """The kernels of one step."""
        return self.whole.profile(*batch, rounds=rounds)
