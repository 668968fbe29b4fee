"""How long a kernel takes on a GPU: products by shape, attention, passes over memory.

A product runs at the share of peak that large ones reach, less what its shape loses: loops too
short to fill and empty the pipeline, tiles that stick out of the result and, on GPUs whose clock
power does not bound, multiprocessors that the last wave leaves idle. The numbers follow
measurements on an H200 (`data/kernels_h200.csv`, made by `tools/measure_kernels.py`; a test
compares).
"""

from __future__ import annotations

import math
from functools import lru_cache

from ridgeline.planner.constants import Constants
from ridgeline.planner.machines import REACHED, Cluster

# Tiles a kernel may compute at once: rows, columns, and what smaller ones reach of the largest.
_TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.95), (64, 128, 0.8), (64, 64, 0.6))
# A product whose sum has this many terms takes twice the time of its terms alone.
_SHORT_SUM = 120
# A sum is split over multiprocessors as long as each part has this many terms.
_LEAST_TERMS = 1024
# Each kernel starts and ends: seconds in which the machine is not full.
_RAMP = 4.0e-6
# Attention reaches half of its best over sequences this short, or on this many tiles of queries.
_SHORT_SEQUENCE, _FEW_TILES = 300, 110
_TILE_OF_QUERIES = 128
# What backward attention reaches of forward.
_ATTENTION_BACKWARD = 0.88
# Blackwell's matrix units leave registers free: attention reaches more of what products do there.
_ATTENTION = {"ampere": 1.0, "hopper": 1.0, "blackwell": 1.16, "other": 1.0}
# What float8 products reach on Blackwell of what they would by Hopper's ratio to 16 bits.
_NARROW = {"ampere": 1.0, "hopper": 1.0, "blackwell": 0.93, "other": 1.0}
# Matrix units load rows of 16 bytes. Small matrices of other rows are multiplied by plain cores,
# which reach half of their peak.
_ALIGNED, _PLAIN_CORES = 8, 0.5
# How much of an idle multiprocessor is lost: where power bounds the clock, others run faster.
_IDLE_WAVES = {"ampere": 1.0, "hopper": 0.0, "blackwell": 0.0, "other": 0.0}


# Of what the best product of a second reaches, what is left of it in hours of products: so much of
# A100s, H100s and B200s, of which both are known.
_SUSTAINED = 0.88


def _generation(cluster: Cluster) -> str:
    """Whose constants a GPU's products go by; `other` where they are only measured."""
    if cluster.gpu.name in REACHED:
        return "other"
    capability = cluster.gpu.capability
    # Cards for desks keep their clock, as an A100 does.
    if capability < 90 or capability >= 120:
        return "ampere"
    return "hopper" if capability < 100 else "blackwell"


_FULL_POWER = {"hopper": 700.0, "blackwell": 1200.0}


class Timer:
    """Seconds of kernels on the GPUs of one cluster."""

    def __init__(self, cluster: Cluster, constants: Constants) -> None:
        gpu = cluster.gpu
        self.cluster, self.constants = cluster, constants
        generation = _generation(cluster)
        usual = getattr(constants, generation, 0.0) or REACHED[gpu.name][0] * _SUSTAINED
        share: float = cluster.product_share or usual
        full = _FULL_POWER.get(generation)
        if full and gpu.watts and not cluster.product_share and generation != "ampere":
            # Voltage falls with the clock: power goes with more than its square.
            share *= min(1.1, (gpu.watts / full) ** 0.45)
        self.rate16 = (gpu.sixteen_bit or gpu.float32) * 1e12 * min(share, 0.95)
        narrow = constants.narrow * _NARROW[generation]
        self.rate8 = gpu.float8 * 1e12 * min(share, 0.95) * narrow or self.rate16
        self.bandwidth = gpu.bandwidth * 1e9 * (cluster.memory_share or constants.memory)
        self.attention_rate = self.rate16 * constants.attention * _ATTENTION[generation]
        self.units, self.idle = gpu.sms, _IDLE_WAVES[generation]
        self.product = lru_cache(maxsize=None)(self._product)

    def _product(self, rows: int, columns: int, terms: int, narrow: bool = False) -> float:
        """One product [rows, terms] x [terms, columns]."""
        rate = self.rate8 if narrow else self.rate16
        best = 0.0
        for height, width, reached in _TILES:
            down, across = math.ceil(rows / height), math.ceil(columns / width)
            # A sum with few results is split over multiprocessors, and its parts are added up.
            split = max(1, min(self.units // (down * across), terms // _LEAST_TERMS))
            waves = down * across * split / self.units
            inside = rows * columns / (down * height * across * width)
            best = max(best, reached * inside * (waves / math.ceil(waves)) ** self.idle)
        best *= terms / (terms + _SHORT_SUM * (2 if narrow else 1))
        size = 1 if narrow else 2
        moved = size * (rows * terms + terms * columns) + 2 * rows * columns
        seconds = 2 * rows * columns * terms / (rate * best)
        return max(seconds, moved / self.bandwidth) + _RAMP

    def grouped(
        self, count: int, rows: int, columns: int, terms: int, narrow: bool = False
    ) -> float:
        """So many products of one shape in one kernel."""
        return count * (self.product(rows, columns, terms, narrow) - _RAMP) + _RAMP

    def attention(
        self, heads: float, rows: float, seen: float, width: int, backward: bool
    ) -> float:
        """Fused attention of so many heads, each of rows of queries that see so many keys."""
        flops = 4 * heads * rows * seen * width * (2.5 if backward else 1.0)
        tiles = heads * rows / _TILE_OF_QUERIES
        rate = self.attention_rate * min(1.0, 0.5 + width / 256)
        rate *= tiles / (tiles + _FEW_TILES) * seen / (seen + _SHORT_SEQUENCE / 2)
        return flops / (rate * (_ATTENTION_BACKWARD if backward else 1.0)) + _RAMP

    def batched(self, batch: int, rows: int, columns: int, terms: int) -> float:
        """Products of many small matrices, as attention has where scores are kept."""
        flops = 2 * batch * rows * columns * terms
        moved = 2 * batch * (rows * terms + columns * terms + rows * columns)
        reached = 0.7 * self.rate16 * terms / (terms + _SHORT_SUM)
        if columns % _ALIGNED or terms % _ALIGNED:
            reached = min(reached, _PLAIN_CORES * self.cluster.gpu.float32 * 1e12)
        return max(flops / reached, moved / self.bandwidth) + _RAMP

    def passes(self, moved: float, kernels: int = 1) -> float:
        """Kernels that read and write so many bytes."""
        return moved / self.bandwidth + kernels * _RAMP
