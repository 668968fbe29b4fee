"""A graph convolutional network over nodes with features and edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ridgeline import nn
from ridgeline.errors import ShapeError
from ridgeline.nn.functional import dropout, relu
from ridgeline.tensors.public import arange, cat, ones, zeros
from ridgeline.tensors.tensor import Tensor


class GraphConvolution(nn.Module):
    """Each node's features mixed with its neighbours', then a linear map.

    An edge weighs one over the root of the degrees of its ends, and every node is its own
    neighbour (Kipf and Welling).
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, after, bias=False)
        nn.init.xavier_uniform_(self.linear.weight)
        self.bias = nn.Parameter(zeros((after,)))

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Features [nodes, before] and edges [2, count] of node numbers, from and to."""
        if edges.dim() != 2 or edges.shape[0] != 2:
            raise ShapeError(f"edges are [2, count], got {list(edges.shape)}")
        nodes = features.shape[0]
        own = arange(nodes)
        start, end = cat([edges[0], own]), cat([edges[1], own])
        degree = zeros((nodes,), dtype=features.dtype).index_add(
            0, end, ones((end.shape[0],), dtype=features.dtype)
        )
        share = degree.rsqrt()
        weight = share.index_select(0, start) * share.index_select(0, end)
        sent = self.linear(features).index_select(0, start) * weight.unsqueeze(-1)
        gathered = zeros((nodes, sent.shape[1]), dtype=sent.dtype).index_add(0, end, sent)
        return gathered + self.bias


class GCN(nn.Module):
    """Graph convolutions with ReLU between them: scores of every node's class."""

    def __init__(self, sizes: Sequence[int], dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(GraphConvolution(a, b) for a, b in pairwise(sizes))

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        x = features
        for number, layer in enumerate(self.layers):
            if number:
                x = relu(x)
            x = layer(dropout(x, self.dropout, self.training), edges)
        return x
