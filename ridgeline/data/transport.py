"""How batches travel between processes: in memory files without a name, passed over a socket.

A message is an object pickled with its arrays beside it (pickle's out-of-band buffers), written
to a memory file whose descriptor goes over a Unix socket. The file has no name anywhere, so the
kernel frees it with its last user: a killed process leaves nothing behind. The socket itself only
carries a few bytes a message, so neither side waits for the other to read.

Windows passes no files over sockets: there, and where `config.portable` is set, the pieces follow
the head through the socket, and a worker reads in a thread, so that its loader never waits either.
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
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from itertools import chain, repeat, tee
from operator import itemgetter
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.files import file_in_memory
from ridgeline.tensors.tensor import Tensor, tensor

_HEAD = struct.Struct("<cqQ")  # kind, number, bytes in the file
_COUNT = struct.Struct("<Q")
_DESCRIPTOR = struct.Struct("i")  # of a file, as a socket carries it
_ALIGN = 64
_MOST_PIECES = 512  # buffers in one writev; the system's own limit is 1024


class BatchPickler(pickle.Pickler):
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
    BatchPickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    bodies = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    lengths = array.array("Q", [len(body) for body in bodies])
    pieces: list[Any] = [_COUNT.pack(len(bodies)) + lengths.tobytes()]
    for body in bodies:
        pieces += [body, bytes(-len(body) % _ALIGN)]
    pieces[0] += bytes(-len(pieces[0]) % _ALIGN)
    return pieces


def unpack(memory: mmap.mmap | bytearray, copy: bool) -> Any:
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


def _rounded(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def memory_file(pieces: Sequence[memoryview]) -> FileIO:
    """A nameless file with these pieces, written rather than mapped so that a lack of memory is an
    error and not a signal."""
    if hasattr(os, "memfd_create"):
        file = file_in_memory("ridgeline-batch")
    else:  # a file that loses its name before it is used
        with tempfile.TemporaryFile() as named:
            file = FileIO(os.dup(named.fileno()), "r+b")
    waiting = list(pieces)
    while waiting:
        written = os.writev(file.fileno(), waiting[:_MOST_PIECES])
        while waiting and written >= len(waiting[0]):
            written -= len(waiting.pop(0))
        if written:
            waiting[0] = waiting[0][written:]
    return file


class Message:
    """An object written once, to be sent to one or many; it is closed when all have been sent."""

    def __init__(self, value: Any) -> None:
        self.pieces = [memoryview(piece).cast("B") for piece in pack(value) if len(piece)]
        self.size = sum(map(len, self.pieces))
        self.file = memory_file(self.pieces) if passes_files() else None

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()


def passes_files() -> bool:
    """True where a socket carries descriptors of files."""
    return hasattr(socket, "send_fds") and not config.portable


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """The file's memory: shared until somebody writes, who then has pages of their own."""
    return mmap.mmap(
        descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )


def _received(end: socket.socket, size: int) -> tuple[bytes, list[FileIO]]:
    """A message, and the files that came with it.

    One call of C code makes files of what arrived, so that no interrupt comes between a descriptor
    and who closes it.
    """
    room = socket.CMSG_SPACE(_DESCRIPTOR.size)
    first, second = tee(map(end.recvmsg, (size,), (room,)))
    parts = map(itemgetter(2), chain.from_iterable(map(itemgetter(1), first)))
    numbers = chain.from_iterable(map(_DESCRIPTOR.unpack, parts))
    files = list(map(FileIO, numbers, repeat("r+b")))
    return next(second)[0], files


class Channel:
    """One end of a connection between two processes."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, kind: bytes, number: int, value: Any) -> None:
        """Send an object; OSError when the other side is gone."""
        message = Message(value)
        try:
            self.send_message(kind, number, message)
        finally:
            message.close()

    def send_message(self, kind: bytes, number: int, message: Message) -> None:
        """Send what was written already."""
        head = _HEAD.pack(kind, number, message.size)
        if message.file is not None:
            socket.send_fds(self.socket, [head], [message.file.fileno()])
            return
        self.socket.sendall(head)
        for piece in message.pieces:
            self.socket.sendall(piece)

    def receive(self, copy: bool = False) -> tuple[bytes, int, Any]:
        """The next message: kind, number, object; EOFError when the other side is gone."""
        try:
            return self._receive_file(copy) if passes_files() else self._receive_pieces()
        except ConnectionError as error:
            raise EOFError from error

    def _receive_file(self, copy: bool) -> tuple[bytes, int, Any]:
        head, files = _received(self.socket, _HEAD.size)
        try:
            if not head or not files:
                raise EOFError
            head += self._exactly(_HEAD.size - len(head))
            kind, number, size = _HEAD.unpack(head)
            return kind, number, unpack(map_file(files[0].fileno(), size), copy)
        finally:
            for file in files:
                file.close()

    def _receive_pieces(self) -> tuple[bytes, int, Any]:
        kind, number, size = _HEAD.unpack(self._exactly(_HEAD.size))
        return kind, number, unpack(self._exactly(size), copy=False)

    def _exactly(self, size: int) -> bytearray:
        """So many bytes of the socket."""
        read, data = 0, bytearray(size)
        while read < size:
            more = self.socket.recv_into(memoryview(data)[read:])
            if not more:
                raise EOFError
            read += more
        return data

    def arrivals(self) -> Iterator[tuple[bytes, int, Any]]:
        """What arrives, for ever. Messages in pieces are read by a thread: whoever sends them
        would wait for a reader otherwise, and this side may be waiting for that one."""
        if passes_files():
            yield from iter(self.receive, None)
        inbox: SimpleQueue[tuple[bytes, int, Any] | BaseException] = SimpleQueue()
        threading.Thread(target=self._read_into, args=(inbox,), daemon=True).start()
        while True:
            found = inbox.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def _read_into(self, inbox: SimpleQueue[tuple[bytes, int, Any] | BaseException]) -> None:
        try:
            while True:
                inbox.put(self.receive())
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            inbox.put(error)

    def close(self) -> None:
        """Close this end; the other side then reads the end of the stream."""
        self.socket.close()
