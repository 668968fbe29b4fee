"""The interchange protocols of tensors, as methods."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from ridgeline.errors import BadValueError
from ridgeline.record.upcalls import upcalls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from ridgeline.tensors.tensor import Tensor

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


class Exchange:
    """Base of Tensor: the Array API namespace, DLPack and the buffer protocol."""

    __slots__ = ()

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """The namespace of the Array API standard."""
        if api_version is not None and api_version not in API_VERSIONS:
            raise BadValueError(
                f"the Array API has no version {api_version!r} here",
                help=f"versions: {', '.join(API_VERSIONS)}",
            )
        return upcalls.array_namespace()

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: Sequence[int] | None = None,
        dl_device: Sequence[int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this memory, for `from_dlpack` of another library."""
        return upcalls.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self, /) -> tuple[int, int]:
        """DLPack's name for the device: (1, 0) for the CPU, (2, n) for a GPU."""
        device = cast("Tensor", self).device
        return (1, 0) if device.index is None else (2, device.index)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """This tensor on another device."""
        return cast("Tensor", self).to(device=device)

    if sys.version_info >= (3, 12):

        def __buffer__(self, flags: int, /) -> memoryview:
            """The memory, for `memoryview(x)` and whoever reads buffers."""
            return memoryview(cast("Tensor", self).numpy())
