"""_region.py: memory that is registered with the device until the application closes it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._closing import Closing
from ._native import ffi, lib
from ._options import RegionInfo, region_info, sized
from .errors import Closed, check, error_of

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
        """The address of its start, for the `address` field of ops in arrays."""
        return self._begin

    @property
    def memory(self) -> memoryview:
        """The memory. For a channel, every slice of it is registered. A dma-buf has none here."""
        if self._memory is None:
            raise Closed("the region is closed, or a dma-buf", lib.CRPC_E_CLOSED)
        return memoryview(ffi.buffer(self._memory))

    def __lt__(self, other: Region) -> bool:
        """Regions are kept in the order of their addresses."""
        return self._begin < other._begin

    def _covers(self, address: int, size: int, receiving: bool) -> bool:
        if self._memory is None:  # what a dma-buf is called need not be where this process has it mapped
            return False
        good = not receiving or self._access & RECEIVES == RECEIVES
        return good and self._begin <= address and address + size <= self._end

    def info(self) -> RegionInfo:
        """Describes the region: its place, and the keys from the device."""
        with self._context._use as pointer:
            struct = sized("crpc_region_info")
            check(lib.crpc_region_get_info(pointer, self._handle[0], struct), "region")
            words = tuple(word for word, flag in ACCESSES.items() if struct.access & flag)
            return region_info(struct, words)

    def _check_waiting(self) -> None:
        """A channel uses the memory from the moment a transfer names it, also while the library has
        not seen the transfer: a coroutine's is posted at the end of the loop's turn, or when there
        is room."""
        bits = self.bits
        for channel in self._context._channels.values():
            for box in (channel._sends, channel._receives):
                if any(buffer.region == bits for transfer in box.waiting for buffer in transfer._buffers):
                    raise error_of(lib.CRPC_E_INVALID, "deregister: a transfer that waits to be posted uses this memory")

    def close(self) -> None:
        """Deregisters the memory. Raises InvalidArgument while a channel uses it. Closing twice
        does no harm."""
        if self._closed:
            return
        if self._context._pointer is not None:
            with self._context._use as pointer:
                self._check_waiting()
                check(lib.crpc_region_deregister(pointer, self._handle[0]), "deregister")
                if self in self._context._regions:
                    self._context._regions.remove(self)
        self._closed = True
        self._memory = None
