"""`ridgeline train --mesh`: ranks are started, and each drives the run; the first one speaks."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ridgeline import distributed as dist, nn
from ridgeline.distributed.checkpoints import INDEX
from ridgeline.distributed.launcher import LaunchedJob, launch
from ridgeline.errors import BadValueError, InputFileError
from ridgeline.tensors.tensor import Tensor
from ridgeline.train.recipes import Options


def begun_ranks(
    arguments: argparse.Namespace, folder: Callable[[argparse.Namespace], Path]
) -> int | None:
    """Start the ranks of the mesh and wait for them; None where this process is one of them."""
    ranks = math.prod(arguments.mesh.values())
    if ranks == 1 or dist.world().size > 1:
        return None
    if arguments.ema:
        raise BadValueError("an average of weights is not kept on a mesh", help="leave out --ema")
    out = folder(arguments)
    words = sys.argv[1:]
    command = ("-m", "ridgeline", *words, *([] if arguments.out else ["--out", str(out)]))
    return launch(LaunchedJob(ranks, command, 300.0, 0))


def options_of(arguments: argparse.Namespace) -> tuple[Options, Path, Path]:
    """The run's options on this rank, its folder, and the folder for what the rank says."""
    mesh = dist.Mesh(device=arguments.device, **arguments.mesh)
    plan = dist.Plan.load(arguments.plan) if arguments.plan is not None else None
    out = Path(arguments.out or "runs")
    own = out if mesh.rank == 0 else out / f"rank-{mesh.rank}"
    own.mkdir(parents=True, exist_ok=True)
    return Options(arguments.workers, arguments.device, mesh, plan), out, own


def saved_settings(checkpoint: Path) -> dict[str, Any]:
    """The settings of a run that ranks have saved."""
    index = checkpoint.with_suffix("") / INDEX
    try:
        found: dict[str, Any] = json.loads(index.read_text())["state"]["extra"]["settings"]
    except (OSError, ValueError, KeyError) as error:
        raise InputFileError(
            f"{index.parent} is no checkpoint of a run on a mesh: {error}"
        ) from None
    return found


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights, whole on every rank."""
    return {name: dist.full_tensor(value) for name, value in model.state_dict().items()}
