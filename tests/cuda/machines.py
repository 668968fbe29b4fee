"""Machines for tests, as contexts: two GPUs that are not there, or one that stands for two."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest

from ridgeline.compiler import program
from ridgeline.compiler.backend import backend
from ridgeline.compiler.background import background
from ridgeline.config import config
from ridgeline.execution import tiers
from ridgeline.graph.node import Node
from ridgeline.runtime import buffer
from ridgeline.runtime.cuda import (
    backend as cuda_backend,
    cublaslt,
    cudnn_api,
    cudnn_convolution,
    device,
    driver,
    flags,
    graphs,
    memory,
    module,
    pinned,
    steps,
    stream,
    tensor_maps,
    transfer,
)
from ridgeline.runtime.cuda.attention import cudnn
from ridgeline.weak import Recent

from .fake_code import FakeCode
from .fake_driver import FakeDriver, encode

_BY_STREAM = (
    (memory, "_pools"), (memory, "_arenas"), (memory, "_lenders"), (flags, "_watches"),
    (device, "_devices"),
)  # fmt: skip
_BY_DEVICE: tuple[Any, ...] = (
    backend, buffer.space, pinned.staging, transfer.reach, cublaslt._handle,
    cudnn_api.handle, cudnn.plan, cudnn_convolution.plan,
)  # fmt: skip


@contextmanager
def no_devices_yet() -> Iterator[None]:
    """Nothing is known of any device, and what a block makes for one is let go at its end."""
    background.wait()  # for what other blocks left to compile
    gc.freeze()  # what there was before is not for this block to collect
    with pytest.MonkeyPatch.context() as patch:
        for part, name in _BY_STREAM:
            patch.setattr(part, name, {})
        programs = Recent(program.MOST_PROGRAMS, program.MOST_NODES)
        pieces = Recent(tiers.MOST_COMPILED, tiers.MOST_NODES)
        patch.setattr(program, "_programs", programs)
        patch.setattr(tiers, "_compiled_pieces", pieces)
        patch.setattr(tiers, "_pieces", Recent(tiers.MOST_STRUCTURES))
        _forget()
        yield
        background.wait()
        programs.clear()
        pieces.clear()
        tiers._pieces.clear()
        while gc.collect():  # a finalizer may keep others alive for one more round
            pass
        _drop_values(device._devices.values())
        for known in device._devices.values():
            known.destroy_discarded()
        for part, name in _BY_STREAM:
            getattr(part, name).clear()
        _forget()
        gc.collect()  # of what is left, finalizers call nothing: it goes with the contexts
    gc.unfreeze()


def _drop_values(gone: Collection[device.Device]) -> None:
    """Equal constants are one node, which may outlive a block with a value on its devices."""
    for found in gc.get_referrers(Node):  # instances refer to their class
        value = found.buffer if type(found) is Node else None
        if type(value) is memory.DeviceBuffer and value.stream.device in gone:
            found.buffer = None


def _forget() -> None:
    for kept in _BY_DEVICE:
        kept.cache_clear()
    device._here.__dict__.clear()


@contextmanager
def pretended_gpus(made: FakeDriver | None = None) -> Iterator[FakeDriver]:
    """Two GPUs that are not there; a call that was refused is an error, wherever it was made."""
    made = made or FakeDriver()
    with pytest.MonkeyPatch.context() as patch:
        for part in (driver, device, memory, graphs, module, steps, stream, transfer):
            patch.setattr(part, "bindings", lambda: made)
        for part in (driver, device):
            patch.setattr(part, "missing", lambda: "")
        patch.setattr(tensor_maps, "encode", encode)
        with no_devices_yet():
            yield made
    assert not made.refused, made.refused


@contextmanager
def pretended_code(fake: FakeDriver, folder: str) -> Iterator[FakeCode]:
    """The compiler over them: all runs compiled, kernels interpreted, without libraries."""
    made = FakeCode(fake)
    fake.find_function = made.find
    with pytest.MonkeyPatch.context() as patch:
        for name in ("generate", "joined", "begin"):
            patch.setattr(cuda_backend, name, getattr(made, name))
        for library in (cublaslt, cudnn_api):
            patch.setattr(library, "library", lambda: None)
        patch.setattr(cuda_backend, "version", lambda: "pretended")
        with config.override(cache_dir=folder, tier="compiled"):
            yield made
            background.wait()  # it writes to the folder


@contextmanager
def two_contexts() -> Iterator[None]:
    """A second context of the GPU as `cuda:1`: the driver takes nothing of one for the other."""
    first = device.opened
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "opened", lambda number: _second() if number else first(0))
        patch.setattr(device, "count", lambda: 2)
        with no_devices_yet(), config.override(tier="compiled"):
            yield


@lru_cache(maxsize=1)
def _second() -> tuple[Any, Any]:
    handle = driver.call("cuDeviceGet", 0)
    context = driver.call("cuCtxCreate", None, 0, handle)
    driver.call("cuCtxPopCurrent")
    return handle, context
