"""_region.py: memory that is registered with the device until the application closes it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from ._closing import Closing
from ._guards import Pins
from ._native import ffi, lib
from ._options import REGION_ACCESSES, RegionInfo, number, pin, region_info, sized
from ._queue_options import Remote
from .errors import Closed, check, error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._context import Context
    from ._endpoint import Endpoint

IN_REGION: int = lib.CRPC_OP_REGION

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
        """The memory. For a channel, every slice of it is registered. Another device's has none here."""
        if self._memory is None:
            raise Closed("the region is closed, or another device's memory", lib.CRPC_E_CLOSED)
        return memoryview(ffi.buffer(self._memory))

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, part: slice) -> RegionSlice:
        """Returns a part of it, for ops of queues and lanes."""
        return RegionSlice(self, *_part(part, self._begin, len(self)))

    @property
    def remote(self) -> Remote:
        """What the peers of queues have to know to name its first byte. It must have been registered
        with remote rights."""
        return Remote(self._begin, self.info().remote_key)

    def __lt__(self, other: Region) -> bool:
        """Regions are kept in the order of their addresses."""
        return self._begin < other._begin

    def _contains(self, address: int, size: int, access: int) -> bool:
        inside = self._begin <= address and address + size <= self._end
        return inside and self._memory is not None and self._access & access == access

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
            words = tuple(word for word, flag in REGION_ACCESSES.items() if struct.access & flag)
            return region_info(struct, words)

    def prepare(self, endpoint: Endpoint) -> None:
        """Registers the region for payloads of this connection, so that the first one need not: a system call."""
        with self._context._use as pointer:
            error = sized("crpc_error")
            status = lib.crpc_region_prepare(pointer, self._handle[0], {"bits": endpoint._bits}, error)
            check(status, "prepare", error)

    def _check_usable(self, context: Any, name: str) -> None:
        """Raises unless `name`, which lies in it, can be used by `context`."""
        if self._context is not context:
            raise error_of(lib.CRPC_E_INVALID, f"{name} is in a region of another context")
        if self._closed:
            raise Closed(f"{name} is in a region that is closed", lib.CRPC_E_CLOSED)

    def _check_waiting(self) -> None:
        """Ops of queues and lanes that are not in arrays keep their memory, and so does the `region` of an
        array that somebody waits for. A channel uses it from the moment a transfer names it, also
        while the library has not seen the transfer: a coroutine's is posted at the end of the loop's
        turn, or when there is room."""
        from ._work import Work  # which knows regions

        bits = self.bits
        for pending in self._context._pending.values():
            if isinstance(pending, Work) and pending._uses(self):
                raise error_of(lib.CRPC_E_BUSY, "deregister: an op of a queue or a lane uses this memory")
        if any(works.region is self for works in self._context._works):
            raise error_of(lib.CRPC_E_BUSY, "deregister: an array of ops that somebody waits for uses this memory")
        for poster in (*self._context._queues.values(), *self._context._endpoints.values()):
            if any(work._uses(self) for box in poster._boxes() for work in box.waiting):
                raise error_of(lib.CRPC_E_BUSY, "deregister: an op that waits for room uses this memory")
        for channel in self._context._channels.values():
            for box in (channel._sends, channel._receives):
                if any(buffer.region == bits for transfer in box.waiting for buffer in transfer._buffers):
                    raise error_of(lib.CRPC_E_INVALID, "deregister: a transfer that waits to be posted uses this memory")

    def close(self) -> None:
        """Deregisters the memory. Raises InvalidArgument while a channel, or an op of a queue or a lane
        that is not in an array, uses it, and while it is granted. Closing twice does no harm."""
        if self._closed:
            return
        if self._context._pointer is not None:
            with self._context._use as pointer:
                self._check_waiting()
                check(lib.crpc_region_deregister(pointer, self._handle[0]), "deregister")
                if self in self._context._regions:
                    self._context._regions.remove(self)
        self._let_go()

    def _let_go(self) -> None:
        """The memory is the device's no more."""
        self._closed = True
        self._memory = None


class Named:
    """A payload that is no buffer, but knows how an op names it."""

    __slots__ = ()

    def _named(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        """See payload_of."""
        raise NotImplementedError

    def _held(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        """See held_payload_of."""
        raise NotImplementedError


class RegionSlice(Named):
    """A part of a Region, which ops of queues and lanes name: region[a:b]."""

    __slots__ = ("region", "address", "_bytes")

    def __init__(self, region: Region, address: int, size: int) -> None:
        self.region = region
        #: The address of its start.
        self.address = address
        self._bytes = size

    def __len__(self) -> int:
        return self._bytes

    def __getitem__(self, part: slice) -> RegionSlice:
        return RegionSlice(self.region, *_part(part, self.address, self._bytes))

    @property
    def memory(self) -> memoryview:
        """The memory. Another device's has none here."""
        offset = self.address - self.region.address
        return self.region.memory[offset : offset + self._bytes]

    @property
    def remote(self) -> Remote:
        """What the peers of queues have to know to name its first byte."""
        return self.region.remote.at(self.address - self.region.address)

    def _named(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        self.region._check_usable(context, name)
        return ffi.NULL, self._bytes, IN_REGION, self.address - self.region.address, self.region.bits

    def _held(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        return None, *self._named(context, name)[1:]

    def __repr__(self) -> str:
        offset = self.address - self.region.address
        return f"<copyrpc.RegionSlice [{offset}:{offset + self._bytes}]>"


def payload_of(payload: Union[Buffer, Named], context: Any, name: str) -> tuple[Any, int, int, int, int]:
    """A payload as an op names it: what is pinned, its length, the op's flags, the offset, and the region."""
    if isinstance(payload, Named):
        return payload._named(context, name)
    pinned = pin(payload, name)
    return pinned, len(pinned), 0, 0, 0


def held_payload_of(payload: Union[Buffer, Named], context: Any, name: str) -> tuple[Any, int, int, int, int]:
    """The same for fill_calls, which takes a Pins. (It also takes bytes as they are.)"""
    if isinstance(payload, Named):
        return payload._held(context, name)
    pinned = pin(payload, name)
    return Pins((payload,)), len(pinned), 0, 0, 0


def _part(part: slice, address: int, size: int) -> tuple[int, int]:
    """Returns the address and the size of a slice. Other than of a list, a slice of a region that
    goes past its end is a mistake."""
    if not isinstance(part, slice):
        raise TypeError("a part of a region is a slice such as region[0:4096]")
    if part.step not in (None, 1):
        raise ValueError("a part of a region has no step")
    first = number(part.start, "the start", 0, size) if part.start is not None else 0
    last = number(part.stop, "the end", first, size) if part.stop is not None else size
    return address + first, last - first
