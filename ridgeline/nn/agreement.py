"""What ranks must have alike before they share work: weights, buffers, the random stream.

Ranks that draw their weights by themselves get different ones, unless all seed alike; so the first
rank's count, as in torch's DistributedDataParallel. Digests are compared first: where all have the
same, which is the rule, nothing else is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import zip_longest

import numpy as np

from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.record import RecordCommunicator
from ridgeline.functions.random import chosen_generator
from ridgeline.nn.module import Module
from ridgeline.record import recorder
from ridgeline.record.modes import modes, no_grad
from ridgeline.record.values import read_array
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor

_DIGEST = 16  # bytes


def agree_on_random_stream(world: Communicator) -> None:
    """Every rank draws from where the first rank's random stream stands."""
    if _is_alone(world) or modes.capture is not None:
        return
    generator = chosen_generator()
    own = np.array([generator.get_state()], np.uint64)
    states = world.all_gather(own)
    if (states != states[0]).any():
        seed, offset = map(int, states[0])
        generator.set_state((seed, offset))


def agree_on_values(module: Module, world: Communicator) -> None:
    """Every rank has the first rank's parameters and buffers; their names and types must agree."""
    if _is_alone(world):
        return
    recorder.flush()
    named = [*module.named_parameters(), *module.named_buffers()]
    arrays = [read_array(value.detach(), "ranks that share a model") for _, value in named]
    forms = [f"{name}: {value.dtype.name}{list(value.shape)}" for name, value in named]
    _check_forms(forms, world)
    own = _digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays)
    if not _all_alike(own, world):
        with no_grad():
            for (_, value), array in zip(named, arrays):
                _take(value, world.broadcast(np.ascontiguousarray(array)))


def _is_alone(world: Communicator) -> bool:
    return world.size == 1 or isinstance(world, RecordCommunicator)


def _digest(parts: Iterable[bytes | memoryview]) -> np.ndarray:
    made = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        made.update(part)
    return np.frombuffer(made.digest(), np.uint8)


def _all_alike(own: np.ndarray, world: Communicator) -> bool:
    told = world.all_gather(own).reshape(world.size, _DIGEST)
    return bool((told == told[0]).all())


def _check_forms(forms: list[str], world: Communicator) -> None:
    """Raise where ranks have built different models, naming what differs first."""
    if _all_alike(_digest(f"{form}\n".encode() for form in forms), world):
        return
    text = np.frombuffer("\n".join(forms).encode(), np.uint8)
    counts = world.all_gather(np.array([text.size])).tolist()
    told, begin = world.all_gather(text, counts).tobytes(), 0
    found = []
    for count in counts:
        found.append(told[begin : begin + count].decode().split("\n"))
        begin += count
    other = next(rank for rank, its in enumerate(found) if its != found[0])
    pairs = zip_longest(found[0], found[other], fillvalue="nothing more")
    first, second = next(pair for pair in pairs if pair[0] != pair[1])
    raise CommunicationError(
        f"ranks build different models: rank 0 has {first}, rank {other} {second}",
        help="all ranks make the same model, then share it out",
    )


def _take(value: Tensor, array: np.ndarray) -> None:
    value.data = from_numpy(np.array(array)).to(value.device)
