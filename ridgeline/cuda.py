"""NVIDIA GPUs, under torch's names: how many there are, which is current, streams, memory."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from operator import itemgetter
from typing import Any

from ridgeline import random as _random
from ridgeline.atomic import Block, Switch
from ridgeline.devices import current as _current, device as _device
from ridgeline.errors import DeviceError, OutOfMemoryError as OutOfMemoryError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.random import manual_seed as _manual_seed
from ridgeline.record.recorder import Flushed as _Flushed, flush as _flush
from ridgeline.runtime.cuda import device as _devices, memory
from ridgeline.runtime.cuda.device import Device, Properties
from ridgeline.runtime.cuda.driver import missing
from ridgeline.runtime.cuda.flags import wait
from ridgeline.runtime.cuda.stream import Event as _Event, Stream as _Stream
from ridgeline.runtime.cuda.transfer import reach
from ridgeline.tensors import typed

_MOST_STREAMS = 32
__path__: list[str] = []  # `cuda.amp` is elsewhere: see module_paths.py


def is_available() -> bool:
    """True if there is a GPU that can be used."""
    return not missing()


def why_not() -> str:
    """Why no GPU can be used; empty if one can."""
    return missing()


def device_count() -> int:
    """How many GPUs there are."""
    return _devices.count()


def _chosen(device: Any) -> Device:
    chosen = _device("cuda" if device is None else device)
    if chosen.type != "cuda":
        raise DeviceError(f"{chosen} is no GPU", help='name one, such as "cuda:0"')
    return _devices.device(chosen.index or 0)


def current_device() -> int:
    """The number of the GPU that `"cuda"` means to this thread."""
    return _current.index


def set_device(device: Any) -> None:
    """Let `"cuda"` mean this GPU in this thread from now on."""
    _current.index = _chosen(device).number


class device(Switch):
    """`with ridgeline.cuda.device(1):` lets `"cuda"` mean another GPU for a block."""

    def __init__(self, device: Any) -> None:
        super().__init__(_current, index=_chosen(device).number)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether copies between two GPUs go directly, and not through the host."""
    return reach(_chosen(device), _chosen(peer_device))


def get_device_properties(device: Any = None) -> Properties:
    """What a GPU is: name, compute capability, memory, multiprocessors."""
    return _chosen(device).properties


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return _chosen(device).properties.name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0)."""
    found = _chosen(device).properties
    return found.major, found.minor


def synchronize(device: Any = None) -> None:
    """Wait until all work on a GPU is done, recorded work included; raises what failed."""
    _flush()
    chosen = _chosen(device)
    chosen.synchronize()
    for pool in memory.pools(chosen.number):
        wait(pool.stream)


def memory_allocated(device: Any = None) -> int:
    """Bytes held by tensors and temporaries."""
    return int(memory.statistics(_chosen(device).number)["in_use"])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes ever held at once, or since `reset_peak_memory_stats`."""
    return int(memory.statistics(_chosen(device).number)["peak"])


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the device: those held and those kept for reuse."""
    found = memory.statistics(_chosen(device).number)
    return int(found["in_use"] + found["cached"])


def reset_peak_memory_stats(device: Any = None) -> None:
    """Measure the peak from now on."""
    for pool in memory.pools(_chosen(device).number):
        pool.blocks.reset_peak()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that the driver has left, and all bytes of the device."""
    return _chosen(device).free_memory()


def empty_cache() -> None:
    """Give memory kept for reuse back to the driver."""
    for number in range(device_count()):
        for pool in memory.pools(number):
            memory.drop(pool.stream)
            pool.trim()


class Stream(_Stream):
    """A queue of work on one GPU; `with ridgeline.cuda.stream(s):` sends work to it.

    There are 32 for each GPU and priority, given out in turn: memory stays with the stream that it
    was taken on, so a new one in every step would take ever more.
    """

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        chosen = _chosen(device)
        with chosen.enqueuing:
            ring: deque[Stream] = chosen.side_streams.setdefault(priority, deque())
            if len(ring) < _MOST_STREAMS:
                made = super().__new__(cls)
                _Stream.__init__(made, chosen, priority)
                ring.append(made)
            else:
                ring.rotate(-1)
            return ring[-1]

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        """It was made when it was given out first."""


class Event(_Event):
    """A point in a stream: `e.record()`, `e.elapsed_time(later)`."""

    def record(self, stream: _Stream | None = None) -> None:
        """Put the event behind what a stream (the current one) has now, recorded work included."""
        _flush()
        super().record(stream or current_stream())

    def wait(self, stream: _Stream | None = None) -> None:
        """Let later work of a stream (the current one) wait for the event."""
        super().wait(stream or current_stream())


def current_stream(device: Any = None) -> _Stream:
    """The stream on which this thread's work goes."""
    return _chosen(device).stream


def default_stream(device: Any = None) -> _Stream:
    """The stream on which work goes unless another is chosen."""
    return _chosen(device).main_stream


def stream(chosen: _Stream) -> AbstractContextManager[_Stream]:
    """Send this thread's work to a stream for a block, in which its GPU is the current one."""
    current, streams = device(chosen.device.number), _devices.choosing(chosen)
    entering = map(itemgetter(-1), zip(current.entering, streams.entering, repeat(chosen)))
    return _Flushed(Block(entering, zip(current.leaving, streams.leaving)))


def manual_seed(seed: int) -> None:
    """Seed the default generator, which is one for all devices."""
    _manual_seed(seed)


manual_seed_all = manual_seed


def is_initialized() -> bool:
    """Whether a GPU was used already."""
    return bool(_devices._devices)


def init() -> None:
    """Nothing: GPUs are opened when they are used."""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16 by itself."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def get_rng_state(device: Any = None) -> Any:
    """The place of the default generator, which is one for all devices."""
    return _random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Go to a place that `get_rng_state` gave."""
    _random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The place of the default generator, once for each GPU."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Go to the first of the places that `get_rng_state_all` gave."""
    for state in new_states[:1]:
        set_rng_state(state)


def is_current_stream_capturing() -> bool:
    """False: graphs are captured by the runtime itself, between calls."""
    return False


def ipc_collect() -> None:
    """Nothing: no memory is shared with other processes."""


class device_of(device):
    """A block in which the GPU of a tensor is the current one; on the CPU it changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else current_device())


class nvtx:
    """torch.cuda.nvtx: marks for NVIDIA's profiler, which are not made; see ridgeline.profile."""

    @staticmethod
    def range_push(msg: str) -> int:
        """No mark, at depth 0."""
        return 0

    @staticmethod
    def range_pop() -> int:
        """No mark, at depth 0."""
        return 0

    mark = range_push

    @staticmethod
    def range(msg: str, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
        """A block without a mark."""
        return nullcontext()


max_memory_reserved = memory_reserved
reset_max_memory_allocated = reset_peak_memory_stats
globals().update(typed.CLASSES["cuda"])
__getattr__ = _unknown(__name__)
