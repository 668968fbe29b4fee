"""A model's own graph, counted: the products of a layer and the tensors its backward pass reads.

One and two layers are traced, with shapes only, and the difference is a layer: no weight is ever
made, whatever the model's size. Closed formulas (`work.py`, `memory.py`) are held against this.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from ridgeline import dtypes, nn
from ridgeline.graph.graph import elements
from ridgeline.graph.node import Node, TensorType, topological
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.models.language import LanguageModel
from ridgeline.nn.functional import cross_entropy
from ridgeline.record.cells import PLAIN
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.bodies import BodyFrame, traced

Product = tuple[int, int, int]


@dataclass(frozen=True)
class CountedLayer:
    """What one layer computes forwards for one sequence, and keeps for its backward pass."""

    products: tuple[Product, ...]
    """Rows, columns and terms of each product with weights."""
    attention: int
    """FLOPs of scores and of what they weigh, over all heads, before any is masked."""
    saved: int
    """Elements of activations that a backward pass reads, as our compiler cuts them."""
    parameters: int


def counted_layer(model: LanguageModel, length: int) -> CountedLayer:
    """One layer of a model that was built without memory, on sequences of a length."""
    one, two = (_traced(_shortened(model, layers), length) for layers in (1, 2))
    products = _products(two) - _products(one)
    parameters = [_shortened(model, layers).parameter_count() for layers in (1, 2)]
    return CountedLayer(
        tuple(products.elements()),
        _attention(two) - _attention(one),
        _saved(two) - _saved(one),
        parameters[1] - parameters[0],
    )


def _shortened(model: LanguageModel, layers: int) -> LanguageModel:
    config: Any = model.config
    with nn.deferred():
        return type(model)(replace(config, **{_layers_field(config): layers}))


def _layers_field(config: Any) -> str:
    return str(getattr(config, "layers", "num_hidden_layers"))


def _traced(model: LanguageModel, length: int) -> Node:
    """The graph of the model's loss on one sequence."""
    frame = BodyFrame("a plan", 1)
    tokens = frame.element(TensorType((1, length), dtypes.int64))
    with frame.inside():
        given = wrap(tokens, PLAIN)

    def loss(words: Tensor) -> Tensor:
        scores = model.train()(words)
        return cross_entropy(scores.flatten(0, 1), words.flatten())

    _, _, nodes = traced(frame, loss, (given,), "a plan")
    return nodes[0]


def _products(root: Node) -> Counter[Product]:
    """Products with weights below a node: what they give has rows of tokens."""
    found: Counter[Product] = Counter()
    for node in topological([root]):
        if node.op.name == "contract" and len(node.inputs[1].shape) == 2:
            columns, terms = (int(size) for size in node.inputs[1].shape)
            found[elements(node) // columns, columns, terms] += 1
    return found


def _attention(root: Node) -> int:
    """FLOPs of attention below a node, in one op or as products of activations."""
    flops = 0
    for node in topological([root]):
        if node.op.name == "attention":
            queries, keys = node.inputs[0], node.inputs[1]
            flops += 4 * elements(queries) * int(keys.shape[-2])
        elif node.op.name == "contract" and len(node.inputs[1].shape) > 2:
            flops += 2 * math.prod(int(size) for size in node.attrs.extents)
    return flops


def _saved(root: Node) -> int:
    """Elements that the backward pass reads of what forwards made of tokens."""
    made = _of_tokens(root)
    return sum(elements(n) for n in saved_for_backward([root], lambda n: False) if n in made)


def _of_tokens(root: Node) -> set[Node]:
    """Nodes that a leaf of tokens goes into: weights and their initial values are not."""
    made: set[Node] = set()
    for node in topological([root]):
        given = node.op.name == "leaf" and node.dtype is dtypes.int64 and len(node.shape) == 2
        if given or any(source in made for source in node.inputs):
            made.add(node)
    return made
