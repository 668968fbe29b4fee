"""A layout as somebody types it, such as `tp8 pp16 dp128 v8 mb1 full zero1`, and what it needs."""

from __future__ import annotations

import re
from typing import Any

from ridgeline.distributed.schedules import SCHEDULES
from ridgeline.errors import BadValueError
from ridgeline.planner.layouts import RECOMPUTE, SHARDING, Job, ParallelLayout
from ridgeline.planner.traced_models import TracedShape

_WORDS = {"tp": "tensor", "cp": "context", "pp": "pipeline", "dp": "data", "ep": "expert",
          "v": "chunks", "mb": "microbatch"}  # fmt: skip


def layout_of(text: str, gpus: int) -> ParallelLayout:
    """The layout of words on so many GPUs; replicas take what the other axes leave."""
    values: dict[str, Any] = {}
    for word in re.split(r"[\s,]+", text.strip().lower()):
        found = re.fullmatch(r"(tp|cp|pp|dp|ep|v|mb)=?(\d+)", word)
        if found and int(found[2]) > 0:
            if _WORDS[found[1]] in values:
                raise BadValueError(f"{found[1]} is there twice in {text!r}", help="give it once")
            values[_WORDS[found[1]]] = int(found[2])
        elif word in RECOMPUTE:
            values["recompute"] = word
        elif re.fullmatch(r"zero[0-3]", word):
            values["sharding"] = SHARDING[int(word[-1])]
        elif word in SCHEDULES:
            values["schedule"] = word
        else:
            raise BadValueError(
                f"{word!r} is no part of a layout",
                help="such as 'tp8 cp1 pp16 dp128 v8 mb1 full zero1 interleaved'",
            )
    if values.get("chunks", 1) > 1:
        values.setdefault("schedule", "interleaved")
    layout = ParallelLayout(**values)
    if gpus and "data" not in values and gpus % layout.ranks == 0:
        layout = layout.with_(data=gpus // layout.ranks)
    if gpus and layout.ranks != gpus:
        beside = layout.ranks // layout.data
        near = max(1, round(gpus / beside))
        raise BadValueError(
            f"{layout.ranks:,} ranks are not {gpus:,} GPUs",
            help=f"the nearest is dp{near}, for --gpus {near * beside}",
        )
    return layout


def check_layout(job: Job, layout: ParallelLayout) -> None:
    """Refuse a layout that a job cannot have, with the nearest that it can."""
    shape = job.shape
    if isinstance(shape, TracedShape) and layout.tensor * layout.context * layout.expert > 1:
        raise BadValueError(
            f"{shape.name} is no language model: replicas and stages alone split it",
            help="leave out tp, cp and ep",
        )
    _divides("tensor", "tp", layout.tensor, shape.heads, f"{shape.heads} heads")
    _divides("context", "cp", layout.context, job.length, f"{job.length} tokens")
    _divides("expert", "ep", layout.expert, shape.experts, f"{shape.experts} experts")
    # The embedding and the head may be parts of their own, as in Llama 3.
    alone = shape.layers + (0 if isinstance(shape, TracedShape) else 2)
    if layout.pipeline * layout.chunks not in {*range(1, shape.layers + 1), alone}:
        chunks = max(1, shape.layers // layout.pipeline)
        raise BadValueError(
            f"{layout.pipeline * layout.chunks} parts of {shape.layers} layers",
            help=f"the nearest is v{chunks}"
            if layout.pipeline <= shape.layers
            else f"the most stages are pp{shape.layers}",
        )
    _check_schedule(layout)
    together = layout.data * layout.microbatch
    if job.sequences % together:
        near = max(1, round(job.sequences / together)) * together
        raise BadValueError(
            f"{job.sequences} sequences cannot be shared by {layout.data} replicas in "
            f"microbatches of {layout.microbatch}",
            help=f"the nearest is --batch {near}",
        )


def _divides(name: str, word: str, ranks: int, number: int, text: str) -> None:
    if number % ranks:
        near = max(n for n in range(1, ranks + 1) if number % n == 0)
        raise BadValueError(
            f"{ranks} {name} ranks do not divide {text}", help=f"the nearest is {word}{near}"
        )


def _check_schedule(layout: ParallelLayout) -> None:
    if layout.chunks > 1 and layout.schedule != "interleaved":
        raise BadValueError(
            f"{layout.schedule} has one chunk a stage, not {layout.chunks}",
            help="take interleaved, or v1",
        )
    if layout.pipeline > 1 and layout.sharding == "parameters":
        raise BadValueError(
            "zero3 gathers weights for every microbatch of a pipeline: it is planned without one",
            help="take zero1 or zero2 with pp, or pp1",
        )
