"""Training over meshes of processes, several in one start; simulated ranks come to the same."""

from __future__ import annotations

import numpy as np

import ridgeline as rl
from ridgeline import distributed as dist
from tests.distributed.training import train

RANKS = 4
CASES: list[tuple[str, dict[str, int], dist.Plan]] = [
    ("llama", {"dp": 2, "tp": 2}, dist.Plan(zero=2, sequence=True)),
    ("gpt2", {"dp": 2, "pp": 2}, dist.Plan(schedule="zero-bubble", microbatches=2)),
    ("llama of 4", {"cp": 2, "pp": 2}, dist.Plan(schedule="interleaved", chunks=2)),
]
Traffic = list[tuple[str, str, int, int]]


def everything() -> list[tuple[dict[str, np.ndarray], Traffic]]:
    """What each case comes to on this rank, and what it sent."""
    found = []
    for kind, axes, plan in CASES:
        counters = dist.world().counters
        counters.clear()
        with rl.config.override(tier="interpreter"):
            made = train(kind, axes, plan, "jit", "AdamW")
        sent = [(*key, entry.calls, entry.bytes) for key, entry in sorted(counters.traffic.items())]
        found.append((made, sent))
    return found


if __name__ == "__main__":
    import pickle
    import sys
    from pathlib import Path

    Path(sys.argv[1], f"{dist.world().rank}.pickle").write_bytes(pickle.dumps(everything()))
