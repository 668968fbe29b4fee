"""Graph networks: the members of a karate club, sorted by who they went with when it split."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline import eye
from ridgeline.data import DataLoader, TensorDataset, karate_club
from ridgeline.models import GCN
from ridgeline.nn.functional import cross_entropy
from ridgeline.optim import Adam
from ridgeline.random import manual_seed
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.train.recipes.base import (
    DEFAULT_LENGTH,
    Options,
    Prepared,
    Recipe,
    Settings,
    make_run,
    only,
)


def _gcn(settings: Settings, options: Options) -> Prepared:
    only(settings, {"length": DEFAULT_LENGTH, "data": "", "batch_size": 1, "accumulate": 1,
                    "validation": 0.0})  # fmt: skip
    manual_seed(settings.seed)
    edges, sides = karate_club()
    features, links, labels = eye(len(sides)), tensor(edges), tensor(sides)
    known = np.array([0, len(sides) - 1])  # the two leaders
    model = GCN((len(sides), 16, 2))
    optimizer = Adam(model.parameters(), settings.lr, weight_decay=5e-4)

    def objective(network: Any, nodes: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        scores = network(features, links)[nodes[0]]
        return cross_entropy(scores, labels[nodes[0]]), {}

    def evaluate(kept: Any) -> dict[str, float]:
        kept.eval()
        with no_grad():
            right = kept(features, links).argmax(1) == labels
        return {"accuracy": float(right.to(features.dtype).mean())}

    loader = DataLoader(TensorDataset(known[None]), 1)
    run = make_run(settings, options, model, optimizer, None, loader, objective)
    title = f"a graph network on {len(sides)} members of a karate club, 2 of whom are labelled"
    return Prepared(run, title, evaluate)


RECIPES = {"gcn": Recipe(Settings("gcn", 100, 1, 0.01), _gcn)}
