"""The scaling laws of the textbooks, as small functions, and as plots of characters.

Seconds and bytes throughout; `latency` is that of a message, `bandwidth` bytes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence


def amdahl(serial: float, workers: int) -> float:
    """The speed-up of a fixed amount of work of which a share stays serial."""
    return 1 / (serial + (1 - serial) / workers)


def gustafson(serial: float, workers: int) -> float:
    """The speed-up where the parallel part grows with the workers."""
    return serial + (1 - serial) * workers


def ring_all_reduce(size: float, ranks: int, latency: float, bandwidth: float) -> float:
    """Each rank sends to its neighbour, twice around."""
    steps = 2 * (ranks - 1)
    return steps * latency + steps / ranks * size / bandwidth


def tree_all_reduce(size: float, ranks: int, latency: float, bandwidth: float) -> float:
    """Two complementary trees, up and down."""
    return 2 * math.ceil(math.log2(ranks)) * latency + 2 * size / bandwidth if ranks > 1 else 0.0


def halving_doubling(size: float, ranks: int, latency: float, bandwidth: float) -> float:
    """Halves are exchanged, summed and exchanged back."""
    steps = 2 * math.ceil(math.log2(ranks)) if ranks > 1 else 0
    return steps * latency + 2 * (ranks - 1) / ranks * size / bandwidth


def parameter_server(
    size: float, ranks: int, latency: float, bandwidth: float, servers: int = 1
) -> float:
    """Every rank sends its gradients to servers and gets weights back."""
    return 2 * latency + 2 * ranks * size / (servers * bandwidth)


def pipeline_bubble(stages: int, microbatches: int, chunks: int = 1) -> float:
    """Idle time over useful time of 1F1B, or interleaved."""
    return (stages - 1) / (chunks * microbatches)


def strong_scaling(seconds: Callable[[int], float], workers: Sequence[int]) -> list[float]:
    """Efficiency of the same work on more workers, against the first number of them."""
    first = workers[0] * seconds(workers[0])
    return [first / (n * seconds(n)) for n in workers]


def weak_scaling(seconds: Callable[[int], float], workers: Sequence[int]) -> list[float]:
    """Efficiency where work grows with the workers."""
    return [seconds(workers[0]) / seconds(n) for n in workers]


def plot(
    curves: Mapping[str, Sequence[float]], marks: Sequence[int], width: int = 50, title: str = ""
) -> str:
    """Curves over marks as bars of characters, one line for each mark and curve."""
    most = max((value for curve in curves.values() for value in curve), default=0.0) or 1.0
    names = max(len(name) for name in curves)
    lines = [title] if title else []
    for index, mark in enumerate(marks):
        for name, curve in curves.items():
            bar = "█" * max(0, round(curve[index] / most * width))
            lines.append(f"{mark:>8,} {name:<{names}} {bar} {curve[index]:.4g}")
    return "\n".join(lines)


_MEGABYTE, _LATENCY, _BANDWIDTH = 1e6, 5e-6, 50e9


def _all_reduces(sizes: Sequence[tuple[float, int]]) -> dict[str, list[float]]:
    """Microseconds of each algorithm for sizes and ranks, over 50 GB/s with 5 µs a message."""
    ways = {
        "ring": ring_all_reduce, "tree": tree_all_reduce, "halving-doubling": halving_doubling,
        "one server": parameter_server,
    }  # fmt: skip
    return {
        name: [way(size, ranks, _LATENCY, _BANDWIDTH) * 1e6 for size, ranks in sizes]
        for name, way in ways.items()
    }


def textbook_plots() -> str:
    """The laws as plots: collectives over ranks and sizes, speed-ups, scaling, bubbles."""
    ranks, kilobytes = [2, 8, 32, 128, 512], [1, 100, 10_000, 1_000_000]
    workers, counts = [1, 8, 64, 512], [8, 16, 64, 256]

    def strong(n: int) -> float:
        """A step of 64 s on one worker that sums 1 GB of gradients."""
        return 64 / n + ring_all_reduce(1e9, n, _LATENCY, _BANDWIDTH)

    def weak(n: int) -> float:
        """A step of 1 s on every worker that sums 1 GB of gradients."""
        return 1 + ring_all_reduce(1e9, n, _LATENCY, _BANDWIDTH)

    plots = [
        plot(_all_reduces([(_MEGABYTE, n) for n in ranks]), ranks,
             title="all-reduce of 1 MB over ranks, µs"),
        plot(_all_reduces([(1e3 * size, 64) for size in kilobytes]), kilobytes,
             title="all-reduce over 64 ranks by kB, µs"),
        plot({"Amdahl": [amdahl(0.02, n) for n in workers],
              "Gustafson": [gustafson(0.02, n) for n in workers]}, workers,
             title="speed-up over workers, 2 % serial"),
        plot({"strong": strong_scaling(strong, workers), "weak": weak_scaling(weak, workers)},
             workers, title="efficiency over workers: 64 s of work in all, or 1 s each, and 1 GB "
             "of gradients"),
        plot({f"{v} chunks": [pipeline_bubble(8, m, v) for m in counts] for v in (1, 4)}, counts,
             title="bubble of 8 stages over microbatches"),
    ]  # fmt: skip
    return "\n\n".join(plots)
