"""`parallelize`: a model's parameters onto a mesh, and wishes for placements at its layers.

The model stays the model: its code, and that of the training step, is what runs on one process.
What is computed of whole values is shared out when it runs (`sharding/`). Hooks at layers say where
values are to be sharded; without them results would be the same, and slower to come by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from ridgeline import nn
from ridgeline.autograd.checkpoint import checkpoint
from ridgeline.devices import device, is_mesh
from ridgeline.distributed.mesh import Mesh
from ridgeline.distributed.plan import Plan
from ridgeline.distributed.roles import roles_of
from ridgeline.distributed.schedules import pipeline_schedule
from ridgeline.distributed.stages import blocks_of, boundaries, stages_of_parameters
from ridgeline.errors import BadTypeError, BadValueError
from ridgeline.graph.node import TensorType
from ridgeline.models.experts import ExpertFeedForward
from ridgeline.nn.agreement import agree_on_values
from ridgeline.ops.placed import MICROBATCH, OnStage, Placement, Replicate, Shard
from ridgeline.record.modes import modes, no_grad
from ridgeline.record.values import read_array
from ridgeline.sharding.local_arrays import buffer_of
from ridgeline.sharding.memory import on_mesh
from ridgeline.sharding.mesh_shapes import DATA, MeshShape, Spec, Stages, shape_of, stored_spec
from ridgeline.tensors.placing import place
from ridgeline.tensors.tensor import Tensor, filled

M = TypeVar("M", bound=nn.Module)
_REPLICATE = Replicate()


def parallelize(
    model: M, mesh: Mesh, plan: Plan | Mapping[str, Any] | str | Path | None = None
) -> M:
    """The same model over a mesh: parameters are shared out, and the batches that it is given.

    A plan may be its file, or the settings in it: what `ridgeline plan --json` wrote.
    """
    plan = Plan.of(plan)
    _check(model, mesh, plan)
    agree_on_values(model, mesh.world)
    mesh.where = where = mesh.device(
        zero=plan.zero, strict=plan.strict, ring=plan.ring, reduce_dtype=plan.reduce_dtype,
        **_passes(mesh, plan),
    )  # fmt: skip
    shape, roles = shape_of(where), roles_of(model, plan) if mesh.length("tp") > 1 else {}
    stages = stages_of_parameters(model, mesh.length("pp"), plan)
    kinds = (nn.MixtureOfExperts, ExpertFeedForward)
    experts = {path for path, part in model.named_modules() if isinstance(part, kinds)}
    with no_grad():
        for path, value in [*model.named_parameters(), *model.named_buffers()]:
            layer, _, name = path.rpartition(".")
            spec = _spec(shape, roles.get(layer, ""), name, layer in experts)
            stored = plan.zero == 3 and isinstance(value, nn.Parameter) and "dp" in shape.names
            if stored:
                spec = stored_spec(shape, spec, tuple(map(int, value.shape)))
            put(value, where, spec, stages.get(path))
    for path, layer_module in model.named_modules():
        if not path:
            continue
        _hook(layer_module, shape, roles.get(path, ""), plan)
    _gather_before_head(model, shape, plan)
    if plan.recompute != "none":
        for block in blocks_of(model)[1].children():
            block.forward = _Recomputed(block.forward, plan.recompute)  # type: ignore[method-assign]
    for block, part, before in boundaries(model, mesh.length("pp"), plan):
        hook = _Boundary(part, before, mesh.length("pp"))
        block.register_forward_pre_hook(hook, prepend=True)
    model.register_forward_pre_hook(_Inputs(where, shape, plan), with_kwargs=True)
    return model


def _passes(mesh: Mesh, plan: Plan) -> dict[str, Any]:
    """The schedule of a pipeline, as the mesh's device knows it."""
    stages = mesh.length("pp")
    count = plan.microbatches or stages
    if stages == 1 or count == 1:
        return {}
    made = pipeline_schedule(plan.schedule, stages, count, plan.chunks)
    rows = tuple(tuple((a.kind, a.microbatch, a.chunk) for a in row) for row in made.table)
    return {"microbatches": count, "schedule": rows}


def _check(model: Any, mesh: Any, plan: Any) -> None:
    for value, kind in ((model, nn.Module), (mesh, Mesh), (plan, Plan)):
        if not isinstance(value, kind):
            raise BadTypeError(
                f"parallelize(model, mesh, plan) got {type(value).__name__} for {kind.__name__}"
            )
    for path, value in model.named_parameters():
        if is_mesh(value.device):
            raise BadValueError(
                f"the parameter {path} is on a mesh already", help="parallelize a new model"
            )


def put(value: Tensor, where: device, spec: Spec, stages: Stages = None) -> None:
    """Keep this rank's part of a tensor that every rank has whole."""
    array = read_array(value.detach(), "parallelize")
    here = on_mesh(where.index or 0)
    kind = TensorType(tuple(map(int, value.shape)), value.dtype, where)
    value.data = filled(kind, buffer_of(here, where, array, spec, stages))


_DIMENSIONS = {  # that are sharded along tp, by a layer's role
    ("column", "weight"): 0, ("column", "bias"): 0, ("row", "weight"): 1,
    ("vocabulary", "weight"): 0,
}  # fmt: skip
_EXPERTS = {"gates": 1, "ups": 1, "downs": 2}  # the same of experts, which ep shares out


def _spec(shape: MeshShape, role: str, name: str, of_experts: bool) -> Spec:
    """How a layer's weight or bias lies, by the role of the layer."""
    if of_experts and name in _EXPERTS:
        return shape.spec({"ep": Shard(0), "tp": Shard(_EXPERTS[name])})
    dim = _DIMENSIONS.get((role, name))
    return shape.replicated() if dim is None else shape.spec({"tp": Shard(dim)})


def _data(shape: MeshShape, dims: int, sequence: bool) -> dict[str, Placement]:
    """Samples along the axes of data, positions along cp."""
    found: dict[str, Placement] = {name: Shard(0) for name in DATA if name in shape.names}
    if sequence and dims >= 2 and "cp" in shape.names:
        found["cp"] = Shard(1, zigzag=True)
    return found


def _hook(layer: nn.Module, shape: MeshShape, role: str, plan: Plan) -> None:
    """Ask for placements at a layer that has no layers inside."""
    if role == "column" and plan.sequence:
        layer.register_forward_pre_hook(_ColumnInput())
    if role or not list(layer.children()):
        layer.register_forward_hook(_Output(shape, role, plan.sequence))


class _Inputs:
    """A whole batch given to the model comes onto the mesh, and each rank takes its share."""

    def __init__(self, where: device, shape: MeshShape, plan: Plan) -> None:
        self._where, self._shape = where, shape
        self._asked = plan.microbatches > 0

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and v.dim()]
        samples = int(given[0].shape[0]) if given else 0
        cut = self._cuts(samples)
        taken = [self._taken(value, samples if cut else -1) for value in args]
        named = {k: self._taken(v, samples if cut else -1) for k, v in kwargs.items()}
        return tuple(taken), named

    def _cuts(self, samples: int) -> bool:
        """True for a batch that stages work through in microbatches."""
        count = self._shape.microbatches
        if count == 1 or not modes.gradients:
            return False
        ranks = prod(size for name, size in self._shape.axes if name in DATA)
        cuts = samples % count == 0 and samples >= count * ranks
        if not cuts and self._asked:
            raise BadValueError(
                f"a batch of {samples} samples cannot be cut into {count} equal microbatches with "
                f"a sample for each of {ranks} rank{'s' * (ranks > 1)} of data",
                help="give Plan(microbatches=...) a number that divides the batch, or more samples",
            )
        return cuts

    def _taken(self, value: Any, samples: int) -> Any:
        if not isinstance(value, Tensor) or not value.dim():
            return value
        wishes = _data(self._shape, value.dim(), True)
        if int(value.shape[0]) == samples:
            wishes[MICROBATCH] = Shard(0)
        on_it = value if value.device == self._where else value.to(self._where)
        return place(on_it, wishes, {}, inserted=True) if wishes else on_it


class _ColumnInput:
    """Under sequence parallelism a column layer gathers the sequence; gradients are sharded."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *rest = args
        return place(x, {"tp": _REPLICATE}, {"tp": Shard(1)}, inserted=True), *rest


class _Recomputed:
    """A block whose values the backward pass computes again, by one of `checkpoint`'s policies."""

    def __init__(self, forward: Callable[..., Any], policy: Any) -> None:
        self._forward, self._policy = forward, policy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self._forward, *args, policy=self._policy, **kwargs)


class _Boundary:
    """What goes into the first block of a part is sent to its stage, and its gradient back."""

    def __init__(self, part: int, before: int, stages: int) -> None:
        self._forward = {"pp": OnStage(part % stages, part)}
        self._backward = {"pp": OnStage(before % stages, before, backward=True)}

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *rest = args
        return place(x, self._forward, self._backward, inserted=True), *rest


class _Output:
    """Results of a layer are sharded along data, and along tp as the layer's role says."""

    def __init__(self, shape: MeshShape, role: str, sequence: bool) -> None:
        self._shape, self._role, self._sequence = shape, role, sequence

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not is_mesh(output.device):
            return output
        dims = output.dim()
        if dims < 2 or (isinstance(module, nn.Embedding) and dims < 3):
            return output
        forward = _data(self._shape, dims, dims == 3)
        backward = dict(forward)
        if "tp" in self._shape.names and self._role == "column":
            forward["tp"] = backward["tp"] = Shard(dims - 1)
        elif "tp" in self._shape.names and self._role:
            along = self._sequence and dims == 3
            forward["tp"] = Shard(1) if along else _REPLICATE
            backward["tp"] = _REPLICATE
        return place(output, forward, backward, inserted=True)


def _gather_before_head(model: nn.Module, shape: MeshShape, plan: Plan) -> None:
    """The head multiplies whole sequences: what is before it gathers them."""
    last = getattr(model, "norm", None)
    if plan.sequence and "tp" in shape.names and isinstance(last, nn.Module):
        last.register_forward_hook(_whole_sequence)


def _whole_sequence(module: nn.Module, args: Any, output: Any) -> Any:
    return place(output, {"tp": _REPLICATE}, {"tp": Shard(1)}, inserted=True)
