"""A small rendezvous over TCP: the first rank hands some bytes to all others, once.

torchrun gives its processes an address and a port, and often keeps the port for itself. So the
first rank listens at one of the next few ports, and whoever connects is told the name of the job
before anything else: another program that listens there is not taken for it.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ridgeline.communicators.calls import CommunicationError

_PORTS = 16  # after the launcher's own
_GREETING = b"ridgeline rendezvous 1\n"
_RETRY = 0.1  # seconds between attempts to connect
_PATIENCE = 2.0  # seconds in which a peer has to say its next word


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where the processes of a job meet: an address, a port to count from, the job's name."""

    address: str
    port: int
    job: str

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> MeetingPlace:
        """The place that a launcher's variables name."""
        address, port = variables.get("MASTER_ADDR", ""), variables.get("MASTER_PORT", "")
        if not address or not port.isdecimal() or not 0 < int(port) < 65536 - _PORTS:
            raise CommunicationError(
                f"ranks cannot meet: MASTER_ADDR={address!r}, MASTER_PORT={port!r}",
                help="torchrun sets both; without it, name the first rank's machine and a port",
            )
        names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE")
        job = " ".join(variables.get(name, "") for name in names)
        return cls(address, int(port), f"{port} {job}")

    @property
    def token(self) -> bytes:
        """What both sides say, so that jobs do not meet each other."""
        return _GREETING + hashlib.sha256(self.job.encode()).digest()


def hand_out(place: MeetingPlace, data: bytes, others: int, timeout: float) -> None:
    """On the first rank: give all others the data."""
    until, served = time.monotonic() + timeout, set[int]()
    with _listening(place) as listening:
        listening.settimeout(_RETRY)
        while len(served) < others:
            if time.monotonic() > until:
                raise CommunicationError(
                    f"{len(served)} of {others} ranks came to {place.address} within {timeout:g} s",
                    help="did all processes start, and can they reach this machine?",
                )
            with suppress(OSError):  # who speaks otherwise is no rank, or will come again
                connection, _ = listening.accept()
                with connection:
                    served.add(_served(connection, place, data))


def _served(connection: socket.socket, place: MeetingPlace, data: bytes) -> int:
    """The rank that was given the data."""
    connection.settimeout(_PATIENCE)
    connection.sendall(place.token)
    if _read(connection, len(place.token)) != place.token:
        raise OSError("another job")
    rank = int.from_bytes(_read(connection, 4), "little")
    connection.sendall(len(data).to_bytes(4, "little") + data)
    if _read(connection, 1) != b"!":
        raise OSError("it did not arrive")
    return rank


def fetch(place: MeetingPlace, rank: int, timeout: float) -> bytes:
    """On any other rank: the data of the first."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        for port in range(place.port + 1, place.port + 1 + _PORTS):
            with suppress(OSError), socket.create_connection((place.address, port), 2) as found:
                return _fetched(found, place, rank)
        time.sleep(_RETRY)
    raise CommunicationError(
        f"rank {rank} found the first rank nowhere at {place.address}, ports {place.port + 1} to "
        f"{place.port + _PORTS}, within {timeout:g} s",
        help="MASTER_ADDR must be a name of the first rank's machine that others reach",
    )


def _fetched(connection: socket.socket, place: MeetingPlace, rank: int) -> bytes:
    connection.settimeout(_PATIENCE)
    if _read(connection, len(place.token)) != place.token:
        raise OSError("something else listens here")
    connection.sendall(place.token + rank.to_bytes(4, "little"))
    data = _read(connection, int.from_bytes(_read(connection, 4), "little"))
    connection.sendall(b"!")
    return data


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise OSError("it ended early")
        found += part
    return found


def _listening(place: MeetingPlace) -> socket.socket:
    """A socket at the first free port behind the launcher's own."""
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    for port in range(place.port + 1, place.port + 1 + _PORTS):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.bind(("", port))
            made.listen()
            return made
        except OSError:
            made.close()
    raise CommunicationError(
        f"no port from {place.port + 1} to {place.port + _PORTS} is free on the first rank",
        help="choose another MASTER_PORT (torchrun --master-port)",
    )
