"""How well a model does on data it does not learn from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.nn import Module
from ridgeline.record.modes import no_grad
from ridgeline.tracing.jit import jit
from ridgeline.train.objectives import Objective


class Evaluator:
    """Called with batches, it gives the mean loss and metrics of a model in `eval` mode."""

    def __init__(self, model: Module, objective: Objective, device: str = "cpu") -> None:
        self.model, self.device = model, device

        def measure(*batch: Any) -> Any:
            with no_grad():
                return objective(model, *batch)

        self._measure = jit(measure)

    def __call__(self, batches: Iterable[Any]) -> dict[str, float]:
        training, count, sums = self.model.training, 0, {"loss": 0.0}
        self.model.eval()
        try:
            for batch in batches:
                parts = batch if isinstance(batch, tuple) else (batch,)
                loss, metrics = self._measure(*(part.to(self.device) for part in parts))
                count += len(parts[0])
                sums["loss"] += float(loss) * len(parts[0])
                for name, value in metrics.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
        finally:
            self.model.train(training)
        if not count:
            raise BadValueError("there is nothing to evaluate on: the loader gave no batch")
        return {name: total / count for name, total in sums.items()}
