"""Products for tests of tensor cores: their loops, not yet scheduled."""

from __future__ import annotations

import ridgeline as rl
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.loops.tensor_cores import TensorCoreTile
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.ops.elementwise import add, apply, cast

TILE = TensorCoreTile(128, 128, 3, blocks=4)


def lowered(
    left: tuple[int, ...],
    right: tuple[int, ...],
    left_axes: str = "mk",
    right_axes: str = "nk",
    *,
    dtype: rl.DType = rl.bfloat16,
    residual: bool = False,
    wide: bool = False,
    curved: bool = False,
) -> Lowered:
    """A product of operands whose axes are named; left in float32, with something made of it."""
    sizes = {**dict(zip(left_axes, left)), **dict(zip(right_axes, right))}
    order = [letter for letter in "bmnk" if letter in sizes]
    number = {letter: place for place, letter in enumerate(order)}
    inputs = [leaf(TensorType(shape, dtype, "cpu")) for shape in (left, right)]
    attrs = ContractAttrs(
        tuple(sizes[letter] for letter in order),
        tuple(number[letter] for letter in order if letter != "k"),
        *(tuple(axis(number[letter]) for letter in axes) for axes in (left_axes, right_axes)),
    )
    operands = [cast(i, rl.float32) for i in inputs] if wide else inputs
    fold = contract(operands[0], operands[1], attrs)
    made: Node = fold
    if residual:
        inputs.append(leaf(TensorType(fold.shape, rl.float32, "cpu")))
        made = add(cast(fold, rl.float32), inputs[-1])
    if curved:
        made = cast(made, rl.float32)
        for name in ("tanh", "exp", "tanh"):
            made = apply(name, made)
    return GroupLowering(folds=[fold], graph=Graph([made], inputs), name="product").lower()
