"""What a GPU can do: copy bandwidth measured, arithmetic from its clock and units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ridgeline.runtime.cuda.device import device
from ridgeline.runtime.cuda.memory import allocate
from ridgeline.runtime.cuda.stream import Event
from ridgeline.runtime.cuda.transfer import copy_within

_BYTES = 512 << 20  # several times the cache, and short
_ROUNDS = 8
_LANES = 128  # float32 units of a multiprocessor


@dataclass(frozen=True, slots=True)
class GpuCeilings:
    """Bytes copied per second (read and written), and float32 operations per second."""

    copy_bandwidth: float
    fma_float32: float
    name: str


@lru_cache(maxsize=64)
def ceilings(number: int) -> GpuCeilings:
    """The ceilings of a GPU."""
    chosen = device(number)
    facts, stream = chosen.properties, chosen.stream
    source, target = allocate(stream, _BYTES), allocate(stream, _BYTES)
    times = []
    for _ in range(_ROUNDS):
        begin, end = Event(enable_timing=True), Event(enable_timing=True)
        begin.record(stream)
        copy_within(source, target, stream)
        end.record(stream)
        stream.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    peak = 2.0 * _LANES * facts.multi_processor_count * facts.clock_rate * 1e3
    return GpuCeilings(2 * _BYTES / sorted(times)[_ROUNDS // 2], peak, facts.name)
