"""A graph convolutional network on the sizes of Cora: messages along edges, all nodes at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import F, Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    nodes: int = 2708
    edges: int = 10556
    features: int = 1433
    hidden: int = 16
    classes: int = 7


DEFAULT = Sizes()
SMALL = Sizes(nodes=100, edges=400, features=32, hidden=8)


class GraphConvolution(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(before, after))
        self.bias = nn.Parameter(torch.zeros(after))

    def forward(self, x, edges, norm):
        x = torch.mm(x, self.weight)
        messages = x[edges[0]] * norm.view(-1, 1)
        out = torch.zeros_like(x).index_add_(0, edges[1], messages)
        return out + self.bias


class GCN(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gc1 = GraphConvolution(sizes.features, sizes.hidden)
        self.gc2 = GraphConvolution(sizes.hidden, sizes.classes)

    def forward(self, x, edges, norm):
        x = F.relu(self.gc1(x, edges, norm))
        x = F.dropout(x, 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, edges, norm), dim=1)


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    pairs = numbers.integers(0, sizes.nodes, (2, sizes.edges))
    loops = np.arange(sizes.nodes)
    ends = np.concatenate([pairs, np.stack([loops, loops])], 1)
    degree = np.bincount(ends[1], minlength=sizes.nodes)
    features = tensor(numbers.uniform(0, 2 / sizes.features, (sizes.nodes, sizes.features)))
    labels = tensor(numbers.integers(0, sizes.classes, sizes.nodes))
    edges, norm = tensor(ends), tensor(1 / np.sqrt(degree[ends[0]] * degree[ends[1]]))
    idx_train = tensor(np.arange(sizes.nodes // 20))
    model = initialise(GCN(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @compiled
    def train():
        model.train()
        optimizer.zero_grad()
        output = model(features, edges, norm)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        return loss_train

    return lambda number: train()
