"""How batches travel between processes: in memory files without a name, passed over a socket.

A message is an object pickled with its arrays beside it (pickle's out-of-band buffers), written
to a memory file whose descriptor goes over a Unix socket. The file has no name anywhere, so the
kernel frees it with its last user: a killed process leaves nothing behind. The socket itself only
carries a few bytes a message, so neither side waits for the other to read.
"""

from __future__ import annotations

import array
import io
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.dataset import as_array
from ridgeline.tensors.tensor import Tensor, tensor

_HEAD = struct.Struct("<cqQ")  # kind, number, bytes in the file
_COUNT = struct.Struct("<Q")
_ALIGN = 64
_MOST_PIECES = 512  # buffers in one writev; the system's own limit is 1024


class Pickler(pickle.Pickler):
    """Keeps the elements of arrays and tensors out of the pickle."""

    def reducer_override(self, value: Any) -> Any:
        """Tensors travel as arrays; everything else as usual."""
        if type(value) is Tensor and value.is_leaf:
            return tensor, (as_array(value),)
        return NotImplemented


def pack(value: Any) -> list[Any]:
    """The pieces of a message, in order: a table of lengths, the pickle, then each array."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    bodies = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    lengths = array.array("Q", [len(body) for body in bodies])
    pieces: list[Any] = [_COUNT.pack(len(bodies)) + lengths.tobytes()]
    for body in bodies:
        pieces += [body, bytes(-len(body) % _ALIGN)]
    pieces[0] += bytes(-len(pieces[0]) % _ALIGN)
    return pieces


def unpack(memory: mmap.mmap, copy: bool) -> Any:
    """The object of a message: over the message's memory, or (`copy`) over memory of its own."""
    view = memoryview(memory)
    (count,) = _COUNT.unpack_from(view)
    lengths = array.array("Q", bytes(view[_COUNT.size : _COUNT.size + 8 * count]))
    start = _rounded(_COUNT.size + 8 * count)
    bodies = []
    for length in lengths:
        bodies.append(view[start : start + length])
        start = _rounded(start + length)
    buffers: Sequence[Any] = [_own(body) for body in bodies[1:]] if copy else bodies[1:]
    return pickle.loads(bodies[0], buffers=buffers)


def _own(body: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(body, np.uint8).copy()


def _rounded(place: int) -> int:
    return -(-place // _ALIGN) * _ALIGN


def memory_file(pieces: Sequence[Any]) -> tuple[int, int]:
    """A nameless file with these pieces, written rather than mapped so that a lack of memory is
    an error and not a signal: its descriptor and size."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ridgeline-batch", os.MFD_CLOEXEC)
    else:  # a file that loses its name before it is used
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        waiting = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        size = sum(len(piece) for piece in waiting)
        while waiting:
            written = os.writev(descriptor, waiting[:_MOST_PIECES])
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.pop(0))
            if written:
                waiting[0] = waiting[0][written:]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, size


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """The file's memory: shared until somebody writes, who then has pages of their own."""
    return mmap.mmap(
        descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )


class Channel:
    """One end of a connection between two processes."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, kind: bytes, number: int, value: Any) -> None:
        """Send one message; OSError when the other side is gone."""
        descriptor, size = memory_file(pack(value))
        try:
            self.send_file(kind, number, descriptor, size)
        finally:
            os.close(descriptor)

    def send_file(self, kind: bytes, number: int, descriptor: int, size: int) -> None:
        """Send a message that was written already; many can be sent the same one."""
        socket.send_fds(self.socket, [_HEAD.pack(kind, number, size)], [descriptor])

    def receive(self, copy: bool = False) -> tuple[bytes, int, Any]:
        """The next message: kind, number, object; EOFError when the other side is gone."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self.socket, _HEAD.size, 1)
        except ConnectionError as error:
            raise EOFError from error
        while head and len(head) < _HEAD.size:
            more = self.socket.recv(_HEAD.size - len(head))
            head = head + more if more else b""
        if not head or not descriptors:
            for descriptor in descriptors:
                os.close(descriptor)
            raise EOFError
        kind, number, size = _HEAD.unpack(head)
        try:
            return kind, number, unpack(map_file(descriptors[0], size), copy)
        finally:
            os.close(descriptors[0])

    def close(self) -> None:
        """Close this end; the other side then reads the end of the stream."""
        self.socket.close()
