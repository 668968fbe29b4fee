"""ai.onnx.ml: ensembles of decision trees, as tables through which all rows go down at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.operators.encoders import DOMAIN
from ridgeline.onnx.operators.scores import labels_of, scored
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, Floats, Ints, OnnxError, Value, as_tensor
from ridgeline.tensors.tensor import Tensor

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
          "BRANCH_MEMBER")  # fmt: skip
_POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class _Forest:
    """Nodes as columns; a node that has no children is a leaf, and leads to itself."""

    feature: Array
    split: Array
    mode: Array  # a place in `_MODES`
    true: Array
    false: Array
    missing_true: Array
    roots: Array
    depth: int
    members: dict[int, Array]  # by node: the values that are members of its set

    def leaves(self, x: Tensor) -> Tensor:
        """The leaf that each row reaches in each tree."""
        rows = x.shape[0]
        at = rl.broadcast_to(as_tensor(self.roots), [rows, len(self.roots)])
        feature, split, mode = (as_tensor(c) for c in (self.feature, self.split, self.mode))
        true, false = as_tensor(self.true), as_tensor(self.false)
        missing = as_tensor(self.missing_true)
        for _ in range(self.depth):
            value = rl.gather(x, 1, feature[at])
            goes = self._holds(value, split[at].to(x.dtype), mode[at], at)
            goes = rl.logical_or(goes, rl.logical_and(rl.isnan(value), missing[at]))
            at = rl.where(goes, true[at], false[at])
        return at

    def _holds(self, value: Tensor, split: Tensor, mode: Tensor, at: Tensor) -> Tensor:
        tests = (value <= split, value < split, value >= split, value > split, value == split,
                 value != split)  # fmt: skip
        used = set(self.mode.tolist())
        result = tests[0]
        for number, test in enumerate(tests[1:], 1):
            if number in used:
                result = rl.where(mode == number, test, result)
        for node, members in self.members.items():
            inside = rl.any(value.unsqueeze(-1) == as_tensor(members).to(value.dtype), -1)
            result = rl.where(at == node, inside, result)
        return result


def _depth(true: Array, false: Array, roots: Array) -> int:
    """The longest way down; each node is reached once, or this is no forest."""
    level, seen, depth = list(map(int, roots)), set(map(int, roots)), 0
    while True:
        below = []
        for node in level:
            if true[node] != node:
                below += [int(true[node]), int(false[node])]
        if not below:
            return depth
        if len(seen | set(below)) < len(seen) + len(below):
            raise OnnxError("nodes of a decision tree lead back to one another")
        seen |= set(below)
        level, depth = below, depth + 1


def _check(places: Array, count: int, what: str) -> Array:
    if places.size and (places.min() < 0 or places.max() >= count):
        raise OnnxError(f"a decision tree names {what} that is not there")
    return places


def _flat_forest(
    tree_ids: Ints, node_ids: Ints, features: Ints, modes: list[str], values: Array, true: Ints,
    false: Ints, missing: Ints | None,
) -> tuple[_Forest, dict[tuple[int, int], int]]:  # fmt: skip
    """The forest of the older operators, whose nodes are numbered in each tree."""
    place = {key: number for number, key in enumerate(zip(tree_ids, node_ids))}
    count = len(modes)
    own = np.arange(count)
    kinds = np.zeros(count, np.int64)
    ways = [own.copy(), own.copy()]
    for number, (tree, mode) in enumerate(zip(tree_ids, modes)):
        if mode == "LEAF":
            continue
        if mode not in _MODES:
            raise OnnxError(f"{mode!r} is no test of a decision tree")
        kinds[number] = _MODES.index(mode)
        for way, ids in zip(ways, (true, false)):
            if (tree, ids[number]) not in place:
                raise OnnxError("a decision tree names a node that is not there")
            way[number] = place[tree, ids[number]]
    inner = [n for n in range(count) if modes[n] != "LEAF"]
    children = {int(way[n]) for n in inner for way in ways}
    roots = np.array([n for n in range(count) if n not in children], np.int64)
    lost = np.zeros(count, bool) if not missing else np.array(missing, bool)
    forest = _Forest(
        np.array(features, np.int64), values, kinds, ways[0], ways[1], lost, roots,
        _depth(ways[0], ways[1], roots), {},
    )  # fmt: skip
    return forest, place


def _summed(forest: _Forest, x: Tensor, weights: Array, aggregate: str) -> Tensor:
    """What the leaves of all trees add to each target: `weights` has a row for each node."""
    reached = forest.leaves(x)
    per_tree = as_tensor(weights)[reached]  # rows, trees, targets
    if aggregate == "MIN":
        return rl.amin(per_tree, 1)
    if aggregate == "MAX":
        return rl.amax(per_tree, 1)
    total = rl.sum(per_tree, 1)
    return total / len(forest.roots) if aggregate == "AVERAGE" else total


def _leaf_weights(
    place: dict[tuple[int, int], int], trees: Ints, nodes: Ints, targets: Ints, weights: Array,
    count: int, aggregate: str,
) -> Array:  # fmt: skip
    table = np.zeros((len(place), count), weights.dtype)
    for tree, node, target, weight in zip(trees, nodes, targets, weights):
        if (tree, node) not in place or not 0 <= target < count:
            raise OnnxError("a weight of a decision tree is of no leaf or target")
        table[place[tree, node], target] += weight
    return table


def _numbers(plain: Floats | None, tensor: Array | None) -> Array:
    if tensor is not None:
        return tensor
    return np.array(plain or [], np.float32)


def _regressor(
    x: Tensor, nodes_treeids: Ints, nodes_nodeids: Ints, nodes_featureids: Ints,
    nodes_modes: list[str], nodes_truenodeids: Ints, nodes_falsenodeids: Ints,
    target_ids: Ints, target_nodeids: Ints, target_treeids: Ints, n_targets: int,
    nodes_values: Floats | None = None, nodes_values_as_tensor: Array | None = None,
    nodes_hitrates: Floats | None = None, nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Ints | None = None, target_weights: Floats | None = None,
    target_weights_as_tensor: Array | None = None, base_values: Floats | None = None,
    base_values_as_tensor: Array | None = None, aggregate_function: str = "SUM",
    post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    forest, place = _flat_forest(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes,
        _numbers(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )  # fmt: skip
    weights = _leaf_weights(
        place, target_treeids, target_nodeids, target_ids,
        _numbers(target_weights, target_weights_as_tensor), n_targets, aggregate_function,
    )  # fmt: skip
    total = _summed(forest, x, weights, aggregate_function)
    base = _numbers(base_values, base_values_as_tensor)
    if base.size:
        total = total + as_tensor(base)
    return scored(total, post_transform).to(rl.float32)


def _classifier(
    x: Tensor, nodes_treeids: Ints, nodes_nodeids: Ints, nodes_featureids: Ints,
    nodes_modes: list[str], nodes_truenodeids: Ints, nodes_falsenodeids: Ints, class_ids: Ints,
    class_nodeids: Ints, class_treeids: Ints, nodes_values: Floats | None = None,
    nodes_values_as_tensor: Array | None = None, nodes_hitrates: Floats | None = None,
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Ints | None = None, class_weights: Floats | None = None,
    class_weights_as_tensor: Array | None = None, base_values: Floats | None = None,
    base_values_as_tensor: Array | None = None, classlabels_int64s: Ints | None = None,
    classlabels_strings: list[str] | None = None, post_transform: str = "NONE",
) -> tuple[Value, Tensor]:  # fmt: skip
    forest, place = _flat_forest(
        nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes,
        _numbers(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true,
    )  # fmt: skip
    labels: Any = classlabels_strings if classlabels_strings else classlabels_int64s or []
    count = max(len(labels), 1)
    weights = _leaf_weights(
        place, class_treeids, class_nodeids, class_ids,
        _numbers(class_weights, class_weights_as_tensor), count, "SUM",
    )  # fmt: skip
    total = _summed(forest, x, weights, "SUM")
    base = _numbers(base_values, base_values_as_tensor)
    if base.size:
        total = total + as_tensor(base)
    one = count == 2 and len(set(class_ids)) == 1
    return labels_of(total.to(rl.float32), labels, post_transform, binary=one, column=class_ids[0])


def _ensemble(
    x: Tensor, nodes_featureids: Ints, nodes_modes: Array, nodes_splits: Array,
    nodes_truenodeids: Ints, nodes_trueleafs: Ints, nodes_falsenodeids: Ints,
    nodes_falseleafs: Ints, tree_roots: Ints, leaf_targetids: Ints, leaf_weights: Array,
    n_targets: int, aggregate_function: int = 1, post_transform: int = 0,
    membership_values: Array | None = None, nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Ints | None = None,
) -> Tensor:  # fmt: skip
    """Version 5: nodes and leaves are numbered in tables of their own; leaves come behind here."""
    count, leaves = len(nodes_featureids), len(leaf_weights)
    whole = count + leaves
    ways = []
    for ids, are_leaves in ((nodes_truenodeids, nodes_trueleafs),
                            (nodes_falsenodeids, nodes_falseleafs)):  # fmt: skip
        below = np.array(ids, np.int64) + count * np.array(are_leaves, np.int64)
        ways.append(np.concatenate([_check(below, whole, "a node"), np.arange(count, whole)]))
    padding = np.zeros(leaves, np.int64)
    lost = np.zeros(count, bool)
    if nodes_missing_value_tracks_true:
        lost = np.array(nodes_missing_value_tracks_true, bool)
    modes = _check(nodes_modes.astype(np.int64), len(_MODES), "a test")
    roots = _check(np.array(tree_roots, np.int64), whole, "a root")
    forest = _Forest(
        np.concatenate([np.array(nodes_featureids, np.int64), padding]),
        np.concatenate([nodes_splits, np.zeros(leaves, nodes_splits.dtype)]),
        np.concatenate([modes, padding]), ways[0], ways[1],
        np.concatenate([lost, padding.astype(bool)]), roots, _depth(ways[0], ways[1], roots),
        _member_sets(modes, membership_values),
    )  # fmt: skip
    weights = np.zeros((whole, n_targets), leaf_weights.dtype)
    targets = _check(np.array(leaf_targetids, np.int64), n_targets, "a target")
    weights[np.arange(count, whole), targets] = leaf_weights
    names = ("AVERAGE", "SUM", "MIN", "MAX")
    total = _summed(forest, x, weights, names[aggregate_function])
    return scored(total, _POST[post_transform]).to(x.dtype)


def _member_sets(modes: Array, values: Array | None) -> dict[int, Array]:
    """The sets of those nodes that ask for membership, which NaNs end in one list."""
    nodes = [int(node) for node in np.nonzero(modes == 6)[0]]
    if not nodes:
        return {}
    if values is None:
        raise OnnxError("a decision tree asks for members, and has no sets")
    ends = np.nonzero(np.isnan(values))[0]
    if len(ends) < len(nodes):
        raise OnnxError("a decision tree has fewer sets than tests of membership")
    starts = [0, *(int(end) + 1 for end in ends)]
    return {node: values[starts[i] : ends[i]].copy() for i, node in enumerate(nodes)}


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("TreeEnsembleRegressor", _regressor, domain=DOMAIN),
    OperatorRow("TreeEnsembleClassifier", _classifier, domain=DOMAIN),
    OperatorRow("TreeEnsemble", _ensemble, domain=DOMAIN),
)
