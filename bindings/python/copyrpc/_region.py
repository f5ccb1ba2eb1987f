"""_region.py: memory that is registered with the device for as long as the application says."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._closing import Closing
from ._native import ffi, lib
from ._options import RegionInfo, region_info, sized
from .errors import Closed, check

if TYPE_CHECKING:
    from ._context import Context

ACCESSES: dict[str, int] = {
    "local_write": lib.CRPC_ACCESS_LOCAL_WRITE,
    "remote_write": lib.CRPC_ACCESS_REMOTE_WRITE,
    "remote_read": lib.CRPC_ACCESS_REMOTE_READ,
    "remote_atomic": lib.CRPC_ACCESS_REMOTE_ATOMIC,
}
#: What a channel that receives into memory needs.
RECEIVES: int = lib.CRPC_ACCESS_LOCAL_WRITE | lib.CRPC_ACCESS_REMOTE_WRITE


class Region(Closing):
    """Registered memory: see Context.register."""

    def __init__(self, context: Context, memory: Any, handle: Any, access: int, begin: int, size: int) -> None:
        self._context = context
        self._memory = memory  # pinned: it must stay where it is
        self._handle = handle
        self._access = access
        self._begin = begin
        self._end = begin + size
        self._closed = False

    @property
    def bits(self) -> int:
        """The handle, for the `region` field of ops in arrays."""
        return int(self._handle.bits)

    @property
    def address(self) -> int:
        """Where it begins, for the `address` field of ops in arrays."""
        return self._begin

    @property
    def memory(self) -> memoryview:
        """The memory. A channel that is given a slice of it finds it registered. A dma-buf has none here."""
        if self._memory is None:
            raise Closed("the region is closed, or a dma-buf", lib.CRPC_E_CLOSED)
        return memoryview(ffi.buffer(self._memory))

    def __lt__(self, other: Region) -> bool:
        """In the order of their addresses they are kept."""
        return self._begin < other._begin

    def _covers(self, address: int, size: int, receiving: bool) -> bool:
        if self._memory is None:  # what a dma-buf is called need not be where this process has it mapped
            return False
        good = not receiving or self._access & RECEIVES == RECEIVES
        return good and self._begin <= address and address + size <= self._end

    def info(self) -> RegionInfo:
        """Where it lies, and the keys that the device gave it."""
        with self._context._use as pointer:
            struct = sized("crpc_region_info")
            check(lib.crpc_region_get_info(pointer, self._handle[0], struct), "region")
            words = tuple(word for word, flag in ACCESSES.items() if struct.access & flag)
            return region_info(struct, words)

    def close(self) -> None:
        """Deregisters it; raises InvalidArgument while a channel uses it. Once is enough; more does no harm."""
        if self._closed:
            return
        if self._context._pointer is not None:
            with self._context._use as pointer:
                check(lib.crpc_region_deregister(pointer, self._handle[0]), "deregister")
                if self in self._context._regions:
                    self._context._regions.remove(self)
        self._closed = True
        self._memory = None
