"""What is known of torch's names that are not here under the same path: where they are, or why not.

`docs/torch_names.md` is made from this table, and so is what a missing name says.
"""

from __future__ import annotations

import sys

# torch's names (or all that begin so) that are not here, and why; the longest that fits counts
REASONS = {
    "distributed": "ridgeline.distributed has communicators, collectives and meshes of its own",
    "nested": "tensors of several lengths are packed sequences: nn.utils.rnn",
    "jagged": "tensors of several lengths are packed sequences: nn.utils.rnn",
    "onnx": "ridgeline.onnx has load, save and export",
    "export": "ridgeline.from_torch_export reads such programs; step.export() writes our own",
    "Tensor.share_memory_": "memory is not shared between processes; loaders do so by themselves",
    "nn.Module.share_memory": "memory is not shared between processes: see distributed",
    "cuda.CUDAGraph": "a jitted function is one CUDA graph by itself",
    "cuda.graph": "a jitted function is one CUDA graph by itself",
    "distributed.rpc": "calls between processes are not offered; ranks have collectives",
    "distributed.fsdp": "distributed.parallelize(model, mesh, Plan(zero=3)) shards parameters",
    "distributed.tensor": "distributed.Mesh and distributed.place have meshes and placements",
    "distributed.device_mesh": "distributed.Mesh has meshes of ranks",
    "distributed.init_device_mesh": "distributed.Mesh(dp=2, tp=2) has meshes of ranks",
    "distributed.checkpoint": "distributed.save_checkpoint writes what is spread over ranks",
    "distributed.pipelining": "distributed.parallelize(model, Mesh(pp=2), Plan(schedule=…)) "
    "has pipelines",
    "distributed.optim": "distributed.parallelize(model, mesh, Plan(zero=1)) shards states",
    "distributed.elastic": "`ridgeline launch --restarts N` starts a job again",
    "distributed.algorithms": "Plan(reduce_dtype=…) says in which type gradients are added up",
    "distributed.nn": "distributed.functional has collectives through which gradients flow",
    "distributed.TCPStore": "ranks find each other through MPI; distributed.world() has them",
    "distributed.Store": "ranks find each other through MPI; distributed.world() has them",
    "distributed.FileStore": "ranks find each other through MPI; distributed.world() has them",
    "quantization": "integers as weights are not offered",
    "ao": "integers as weights are not offered",
    "ops": "operators of torch's own registry are not here",
    "library": "operators of torch's own registry are not here",
    "_C": "torch's own C++ parts are not here",
    "npu": "there is no device of that kind here",
    "futures": "work is recorded and waits for nothing: there are no futures",
    "utils.cpp_extension": "extensions in C++ are not loaded",
    "utils.data.datapipes": "data pipes left torch; use an IterableDataset",
    "utils.data.IterDataPipe": "data pipes left torch; use an IterableDataset",
}
_ELSEWHERE = (
    "ridgeline", "ridgeline.nn.functional", "ridgeline.nn", "ridgeline.linalg", "ridgeline.special",
    "ridgeline.fft", "ridgeline.optim", "ridgeline.data", "ridgeline.autograd", "ridgeline.cuda",
    "ridgeline.func", "ridgeline.nn.utils", "ridgeline.nn.init",
)  # fmt: skip


def reason(path: str) -> str:
    """Why a name of torch is not here, or nothing."""
    fits = [key for key in REASONS if f"{path}.".startswith((f"{key}.", f"{key}_"))]
    return REASONS[max(fits, key=len)] if fits else ""


def where(module: str, name: str) -> str:
    """Where else a name is, or why it is nowhere; empty if nothing is known."""
    path = f"{module}.{name}".partition(".")[2]
    for other in () if path in REASONS else _ELSEWHERE:
        if other != module and other in sys.modules and name in dir(sys.modules[other]):
            return f"It is {other}.{name}"
    found = reason(path)
    return f"It is not here: {found}" if found else ""
