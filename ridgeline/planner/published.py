"""Published training runs: rows of `data/training_runs.csv` as jobs, layouts and measurements.

What a row does not say (the microbatch, recomputation, chunks) is tried every way; the fastest way
that fits is what its authors are taken to have run, since they tuned it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from ridgeline.errors import InputFileError
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import Cluster, gpu_named, usual_cluster
from ridgeline.planner.named_models import shape_named
from ridgeline.planner.optimizers import with_optimizer
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import PROFILES, Software, software_named
from ridgeline.profile.gpus import Gpu


@dataclass(frozen=True)
class PublishedRun:
    """One row: what was run, and what was measured."""

    id: str
    group: str
    source: str
    cell: tuple[str, str, str, str]
    """Group, system, GPU and precision: runs that share one calibration."""
    model: str
    job: Job
    layouts: tuple[ParallelLayout, ...]
    software: Software
    cluster: Cluster
    gpus: int
    tokens: float | None
    """Tokens a second and GPU."""
    memory: float | None
    """Bytes that a rank was seen to hold."""
    memory_kind: str
    out_of_memory: bool
    unsaid: tuple[str, ...]
    slowed: float
    """By how much the row says that its machine was slower than the others of its sweep."""


def _gpu(row: dict[str, str]) -> Gpu:
    """The GPU of a row; A100s and H100s are told apart by their memory."""
    name = row["gpu"].upper()
    memory = round(float(row["gpu_mem_gb"] or 0))
    if name.startswith("A100"):
        return gpu_named(f"A100 {40 if memory == 40 else 80}GB")
    if name.startswith("H100"):
        return gpu_named(
            "H100 PCIe" if "PCIE" in name else "H100 96GB" if memory == 96 else "H100 SXM"
        )
    return gpu_named(row["gpu"].split("-")[0])


def _sharding(kind: str) -> str:
    """What data-parallel ranks shard, by the name that a row has for it."""
    if kind in ("", "ddp", "none", "zero0"):
        return "none"
    if "shard_grad_op" in kind or kind.startswith("zero2"):
        return "gradients"
    return "parameters" if kind.startswith(("fsdp", "hsdp", "zero3")) else "optimizer"


def published_runs(path: str | None = None) -> list[PublishedRun]:
    """All rows of the file that comes with the planner, or of another with the same columns."""
    if path is None:
        text = resources.files("ridgeline.planner").joinpath("data/training_runs.csv").read_text()
    else:
        try:
            text = Path(path).read_text()
        except OSError as error:
            raise InputFileError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise InputFileError(f"{path} is no text: {error}") from None
    rows = list(csv.DictReader(text.splitlines()))
    if not rows:
        raise InputFileError(
            f"{path} has no rows", help="a line of names, and a line for each training run"
        )
    try:
        return [_run(row) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise InputFileError(
            f"{path} has a row that is no training run: {error}",
            help="its columns are those of ridgeline/planner/data/training_runs.csv",
        ) from None


def _run(row: dict[str, str]) -> PublishedRun:
    shape = _shape(row)
    length, sequences = _count(row["seq"]), _count(row["gbs"])
    packed = re.search(r"samples of (\d+) tokens packed", row["notes"])
    document = int(packed[1]) if packed else 0
    job = Job(shape, length, sequences, row["precision"], document)
    cluster, system = _cluster(row), _system(row)
    layouts, unsaid = _layouts(row, job)
    tokens = float(row["tokens_s_gpu"]) if row["tokens_s_gpu"] else None
    out = row["mem_gb"] == "OOM"
    if tokens is None and not out and row["tflops_gpu"]:
        # Of those that give FLOPs alone, attention is counted whole.
        tokens = float(row["tflops_gpu"]) * 1e12 / shape.flops_per_token(length, causal=False)
    memory = None if out or not row["mem_gb"] else float(row["mem_gb"]) * _unit(row["mem_unit"])
    return PublishedRun(
        row["id"], row["source_group"], row["source"],
        (row["source_group"], system, row["gpu"], row["precision"]), row["model"], job, layouts,
        _software(row), cluster, _count(row["gpus"]), tokens, memory, row["mem_unit"], out, unsaid,
        _slowed(row["notes"]),
    )  # fmt: skip


def _count(text: str) -> int:
    return int(float(text))


def _slowed(notes: str) -> float:
    """Half of the range that a note gives for a fault mended later."""
    found = re.search(r"predate a .* fix worth (\d+)-(\d+)%", notes)
    return 1 + (int(found[1]) + int(found[2])) / 200 if found else 1.0


def _unit(text: str) -> float:
    return 2.0**30 if text.startswith("GiB") else 1e9


def _shape(row: dict[str, str]) -> ModelShape:
    kind = row["arch"]
    if kind.startswith("named "):
        return shape_named(kind.removeprefix("named "))
    gpt = kind.startswith("gpt")
    plain = "no bias" in kind or "squared-relu" in kind
    return ModelShape(
        row["model"], _count(row["layers"]), _count(row["hidden"]), _count(row["heads"]),
        _count(row["kv_heads"]), _count(row["ffn"]), row["gated_ffn"] == "1", _count(row["vocab"]),
        tied=(gpt and not plain) or "tied" in kind,
        biased=gpt and not plain,
        dropout=gpt and not plain and row["gpu"].startswith(("V100", "A100", "MI250X")),
        parallel_block="parallel-block" in kind,
        window=512 if "sliding window" in kind else 0,
        experts=_count(row.get("experts") or "1"),
        chosen=_count(row.get("chosen") or "1"),
        shared_inner=_count(row.get("shared_ffn") or "0"),
    )  # fmt: skip


def _cluster(row: dict[str, str]) -> Cluster:
    cluster, notes = usual_cluster(_gpu(row)), row["notes"]
    memory = float(row["gpu_mem_gb"] or cluster.gpu.memory)
    if not 0.9 < memory / cluster.gpu.memory < 1.1:
        cluster = replace(cluster, gpu=replace(cluster.gpu, memory=memory))
    if "four GPUs a node" in notes:
        cluster = replace(cluster, node=4)
    if row.get("network_gb_s"):
        return replace(cluster, network=float(row["network_gb_s"]))
    if found := re.search(r"(\d+)x(\d+)\s?Gb/s[^;,]* per node", notes):
        # Omni-Path moves GPUs' data through its hosts, and reaches less of its rate.
        share = 0.7 if "Omni-Path" in notes else 1.0
        network = share * int(found[1]) * int(found[2]) / 8 / cluster.node
        # The chronicles of BLOOM show ranks with 79 GB, in units of the rows, and none with more.
        most = 79.5 if "chronicles" in row["source"] else 0.0
        return replace(cluster, network=network, memory_measured=most)
    if found := re.search(r"(\d+)\s?Gb/s per node", notes):
        return replace(cluster, network=int(found[1]) / 8 / cluster.node)
    if row["source_group"] == "llama3":
        return replace(cluster, pod=3072, oversubscription=7.0)
    return cluster


def _system(row: dict[str, str]) -> str:
    if found := re.search(r"system=([\w-]+)", row["notes"]):
        return found[1]
    if row["source_group"] == "torchtitan":
        return "eager" if row["notes"].startswith("eager") else "compiled"
    return row["source_group"]


def _software(row: dict[str, str]) -> Software:
    """The profile of what a row ran, with its optimizer."""
    software = _profile(row)
    if row.get("optimizer"):
        software = with_optimizer(software, _shape(row), row["optimizer"])
    return software


def _profile(row: dict[str, str]) -> Software:
    """The profile of what a row ran: by its own column, or by its source."""
    if row.get("software"):
        return software_named(row["software"])
    text, notes = f"{row['source']} {row['source_group']} {row['notes']}".lower(), row["notes"]
    fsdp = row["dp_kind"].startswith("fsdp")
    if "torchtitan" in text:
        software = PROFILES["fsdp-eager" if _system(row) == "eager" else "fsdp-compile"]
        if "2025" in row["source"]:
            software = replace(software, score_bytes=4)  # the loss is compiled, too
        return replace(software, overlap_tensor=0.7) if "async TP" in notes else software
    if fsdp and "nvidia" not in text:
        # The loss of MPT is one kernel that overwrites its scores; its PURE mode sums in 16 bits.
        reduced = 2 if "mode PURE" in notes else 4
        return replace(PROFILES["fsdp-eager"], score_bytes=4, reduce_bytes=reduced)
    if "vtrain" in text:
        return PROFILES["megatron-2021"]
    if "deepspeed" in text or "bigscience" in text:
        software = PROFILES["megatron-deepspeed"]
        wide = "fp32 gradient" in notes
        return replace(software, gradient_bytes=6, reduce_bytes=4) if wide else software
    if row["dp_kind"] == "zero3":
        # ZeRO-3 of 2021 gathered through one card of a node, and waited for half of it.
        software = PROFILES["megatron-deepspeed"]
        return replace(software, one_card=True, overlap_sharded=0.5)
    if any(word in text for word in ("narayanan", "korthikanti")) or _before_flash(text):
        software = PROFILES["megatron-2021"]
        return replace(software, sequence_parallel=True) if "+SP" in row["recompute"] else software
    software = PROFILES["megatron-core"]
    if "nemo" in text or "bridge" in text:
        # Their recipes for speed accumulate and reduce gradients in bfloat16.
        return replace(software, gradient_bytes=2, reduce_bytes=2)
    if "llama 3 herd" in text:
        # Keys and values are gathered before attention, and tensors freed as early as can be.
        return replace(software, lean=True, overlap_context=False)
    return software


def _before_flash(text: str) -> bool:
    """Whether a paper is older than fused attention (arXiv 2205.14135)."""
    found = re.search(r"arxiv[ :]+(\d{4})\.\d{4,5}", text)
    return found is not None and int(found[1]) < 2206


def _layouts(row: dict[str, str], job: Job) -> tuple[tuple[ParallelLayout, ...], tuple[str, ...]]:
    """Every way to run the row that it does not rule out, and what it leaves open."""
    pipeline, data, context = _count(row["pp"]), _count(row["dp"]), _count(row["cp"])
    if data > job.sequences:
        # Fewer sequences than replicas: what is left of the ranks shares their tokens.
        context, data = context * data // job.sequences, job.sequences
    sharding = _sharding(row["dp_kind"])
    if sharding == "parameters" and pipeline > 1:
        # Weights stay whole between microbatches where there is a pipeline.
        sharding = "optimizer"
    within = re.search(r"(?:hsdp| in )(\d+)$", row["dp_kind"])
    expert = _count(row["ep"] or "1")
    base = ParallelLayout(
        _count(row["tp"]), context, pipeline, data, expert, sharding=sharding,
        split_experts=_software(row).split_experts,
        sharers=int(within[1]) if within else 0,
        data_outermost=row["source_group"] == "llama3",
    )  # fmt: skip
    unsaid = []
    microbatches = list(_microbatches(row, job, base))
    if len(microbatches) > 1:
        unsaid.append("microbatch")
    recompute = [row["recompute"].removesuffix("+SP")]
    shares = [1.0]
    if not recompute[0]:
        recompute, shares = ["none", "selective", "full"], [0.25, 0.5, 0.75, 1.0]
        unsaid.append("recompute")
    chunks = [_count(row["vpp"] or "1")]
    if not row["vpp"] and pipeline > 1:
        unsaid.append("chunks")
        per_stage = -(-job.shape.layers // pipeline)
        if "torchtitan" in row["source"]:
            chunks = [2 if "interleaved" in row["notes"] else 1]
        elif _software(row).interleaved:
            chunks = [v for v in range(1, min(per_stage, 24) + 1) if per_stage % v == 0]
    layouts = tuple(
        base.with_(
            microbatch=m, recompute=r, chunks=v, recomputed=share,
            schedule="interleaved" if v > 1 else "1f1b",
        )
        for m in microbatches for r in recompute for v in chunks
        for share in (shares if r == "full" else [1.0])
    )  # fmt: skip
    return layouts, tuple(unsaid)


def _microbatches(row: dict[str, str], job: Job, layout: ParallelLayout) -> Iterator[int]:
    share = job.sequences // layout.data
    if row["mbs"]:
        yield _count(row["mbs"])
    elif "torchtitan" in row["source"]:
        # As many microbatches as there are stages, unless told otherwise.
        stages = layout.pipeline * (2 if "interleaved" in row["notes"] else 1)
        yield max(1, share // stages) if layout.pipeline > 1 else share
    else:
        yield from (size for size in (1, 2, 4, 8, 16) if share % size == 0)
