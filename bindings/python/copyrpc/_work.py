"""_work.py: ops of queues under way, one by one, and the memory that they name. _lane_work.py has those of lanes."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, ClassVar, Generic, NamedTuple, Optional, Sequence, TypeVar, Union, cast

from ._native import ffi, lib
from ._options import number, pin, timeout_ns
from ._records import MARK, PIECE, QUEUE_OP
from ._region import Region, RegionSlice
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Buffer

    from ._asyncio import Attachment
    from ._poster import Poster
    from ._pump import Pump
    from ._queue import BaseQueue

    Place = Union[RegionSlice, Region, Buffer]
    Places = Union[Place, Sequence[Place]]

SEND: int = lib.CRPC_QUEUE_SEND
SEND_IMMEDIATE: int = lib.CRPC_QUEUE_SEND_IMMEDIATE
SEND_INVALIDATE: int = lib.CRPC_QUEUE_SEND_INVALIDATE
WRITE: int = lib.CRPC_QUEUE_WRITE
WRITE_IMMEDIATE: int = lib.CRPC_QUEUE_WRITE_IMMEDIATE
READ: int = lib.CRPC_QUEUE_READ
COMPARE_SWAP: int = lib.CRPC_QUEUE_COMPARE_SWAP
FETCH_ADD: int = lib.CRPC_QUEUE_FETCH_ADD
RECEIVE: int = lib.CRPC_QUEUE_RECEIVE
SIGNAL: int = lib.CRPC_QUEUE_SIGNAL
FENCE: int = lib.CRPC_QUEUE_FENCE
SOLICITED: int = lib.CRPC_QUEUE_SOLICITED
_INLINE: int = lib.CRPC_QUEUE_INLINE
_PIECES: int = lib.CRPC_QUEUE_PIECES

_names = {
    SEND: "send", SEND_IMMEDIATE: "send", SEND_INVALIDATE: "send", WRITE: "write", WRITE_IMMEDIATE: "write", READ: "read",
    COMPARE_SWAP: "compare_swap", FETCH_ADD: "fetch_add", RECEIVE: "receive",
}  # fmt: skip
_messages = (SEND, SEND_IMMEDIATE, SEND_INVALIDATE, RECEIVE)
_atomics = (COMPARE_SWAP, FETCH_ADD)
#: Ops that one crossing takes at the most: all of their pieces fit in crpc_queue_submit.
CHUNK: int = lib.CRPC_QUEUE_SUBMIT_PIECES_MAX // lib.CRPC_QUEUE_PIECES_MAX
_UINT64_MAX = (1 << 64) - 1

R = TypeVar("R")  # None, int, or Received


class Received(NamedTuple):
    """What a receive got."""

    #: How much of its memory was filled: nothing if a WRITE with an immediate took the receive.
    size: int
    immediate: Optional[int]
    #: The remote key that the peer has invalidated.
    invalidated: Optional[int]
    #: The queue over which it came; None if that is closed.
    queue: Optional[BaseQueue]
    #: If a WRITE with an immediate took the receive: how many bytes the peer has written elsewhere.
    written: int = 0
    #: Of a datagram: where it comes from. Of what came to a DCTQueue, too, where the device says so.
    source: Optional[Source] = None
    #: Of a TaggedReceiveQueue: it has a tag, and nothing matched. Its memory begins with the header.
    unexpected: bool = False


class Source:
    """Who has sent. Of a datagram, where it comes from, as its header says: for DatagramQueue.target_of."""

    __slots__ = ("_record", "_header")

    def __init__(self, record: tuple[int, ...], header: bytes) -> None:
        self._record = record
        self._header = header

    @property
    def queue_pair_number(self) -> int:
        return self._record[6] & 0xFFFFFFFF

    def __repr__(self) -> str:
        return f"<copyrpc.Source, queue pair {self.queue_pair_number:#x}>"


class Piece(NamedTuple):
    """One place of a payload."""

    region: Optional[Region]  # None: the memory is in none, so it is sent inline
    address: int
    size: int
    pinned: Any


def piece_of(pump: Pump, place: Any, what: str, filled: bool) -> Piece:
    """Finds the region of a place. Called with the lock held."""
    if isinstance(place, Region):
        place = place[:]
    if isinstance(place, RegionSlice):
        region = place.region
        region._check_usable(pump, f"{what}: the memory")
        return Piece(region, place.address, len(place), None)
    pinned = pin(place, f"{what}: the payload")
    address = int(ffi.cast("uintptr_t", pinned))
    if len(pinned) == 0:
        return Piece(None, 0, 0, None)
    found = pump._region_for(address, len(pinned), lib.CRPC_ACCESS_LOCAL_WRITE if filled else 0)
    if found is None and filled:
        raise error_of(lib.CRPC_E_INVALID, f"{what}: memory that is filled lies in a region with local_write, see Context.register")
    return Piece(found, address, len(pinned), pinned)


def pieces_of(pump: Pump, places: Any, what: str, filled: bool, most: int) -> tuple[list[Piece], bool]:
    """Returns a place, or those of a list, and whether they are to be copied: if one is in no region. Called
    with the lock held."""
    several = isinstance(places, (list, tuple))
    if several and not 1 <= len(places) <= most:
        raise ValueError(f"{what}: a list has 1 to {most} places, not {len(places)}")
    pieces = [piece_of(pump, place, what, filled) for place in (places if several else [places])]
    if not any(piece.region is None and piece.size for piece in pieces):
        return pieces, False
    if any(piece.region is not None and piece.region._memory is None for piece in pieces):
        raise error_of(lib.CRPC_E_INVALID, f"{what}: a list has memory without a region, which is copied, and another device's")
    return [piece._replace(region=None) for piece in pieces], True


class Work(Generic[R]):
    """An op of a queue or of an endpoint's lane under way: see Queue.post_send, Endpoint.post_write and so
    on. Its memory belongs to the device until it has ended."""

    __slots__ = (
        "_queue", "_opcode", "_flags", "_immediate", "_pieces", "_remote", "_compare", "_operand", "_target", "_stream", "_id", "_posted",
        "_status", "_record", "_header", "_future", "__weakref__",
    )  # fmt: skip
    _opcode_names: ClassVar[dict[int, str]] = _names

    def __init__(
        self,
        queue: BaseQueue,
        opcode: int,
        places: Any,
        remote: Any = None,
        *,
        flags: int = 0,
        immediate: int = 0,
        compare: int = 0,
        operand: int = 0,
        target: int = 0,
        stream: int = 0,
    ) -> None:
        """With the lock."""
        pump = queue._pump
        name = _names[opcode]
        self._immediate = number(immediate, "immediate", 0, 0xFFFFFFFF)
        self._compare = number(compare, "compare", 0, _UINT64_MAX)
        self._operand = number(operand, "operand", 0, _UINT64_MAX)
        self._target = target
        self._remote = _checked(remote) if opcode not in _messages else (0, 0)
        pieces: list[Piece] = []
        if opcode not in _atomics:
            pieces, is_inline = pieces_of(pump, places, name, opcode in (READ, RECEIVE), lib.CRPC_QUEUE_PIECES_MAX)
            flags |= _INLINE if is_inline else 0
            flags |= _PIECES if isinstance(places, (list, tuple)) else 0
        if queue._sparse:
            flags |= SIGNAL
        self._begin(queue, opcode, flags, pieces)
        self._stream = number(stream, "stream", 0, 0xFFFF)

    def _begin(self, queue: Poster, opcode: int, flags: int, pieces: list[Piece]) -> None:
        self._queue = queue  # or the endpoint whose lane it is for
        self._opcode = opcode
        self._flags = flags
        self._pieces = pieces
        self._stream = 0
        self._id = queue._pump._next_id()
        self._posted = False
        self._status: Optional[int] = None
        self._record: tuple[int, ...] = ()
        self._header = b""
        self._future: Optional[tuple[Attachment, asyncio.Future[None]]] = None

    # ---- With the lock ----

    def _op_count(self) -> int:
        return 1

    def _pack(self, view: Any, index: int, pieces: list[tuple[int, int, int, int]]) -> None:
        """Writes its op; adds its pieces to those of all ops of the crossing."""
        region, address, size = 0, self._compare, 0
        if self._flags & _PIECES:
            address, size = len(pieces), len(self._pieces)
            pieces.extend((bits_of(piece), piece.address, piece.size, 0) for piece in self._pieces)
        elif self._pieces:
            region, address, size = bits_of(self._pieces[0]), self._pieces[0].address, self._pieces[0].size
        there, key = self._remote
        QUEUE_OP.pack_into(
            view, index * 64, self._opcode, self._flags, self._stream, self._immediate, MARK | self._id, region, address, size, key,
            there, self._operand, self._target,
        )  # fmt: skip

    def _uses(self, region: Region) -> bool:
        return self._status is None and any(piece.region is region for piece in self._pieces)

    def _arrived(self, record: tuple[int, ...]) -> None:
        """May be called again if it was cut."""
        self._record = record
        if record[1] & lib.CRPC_COMPLETION_GRH:  # before the memory is used again
            self._header = self._first_bytes(lib.CRPC_QUEUE_HEADER_BYTES)
        self._finish(record[3], 0, 0)

    def _finish(self, status: int, address: int, size: int) -> None:
        self._status = status
        if self._future is not None:
            attachment, future = self._future
            attachment.resolve(future, None)

    def _forget(self) -> None:
        """It was cut before the library had it."""
        self._queue._pump._pending.pop(self._id, None)

    def _abandon(self) -> None:
        """The library has it, and nobody waits for its end any more. May be called again if it was cut."""

    def _first_bytes(self, size: int) -> bytes:
        """Returns what its memory begins with; less if that is a dma-buf's."""
        found = b""
        for piece in self._pieces:
            if piece.region is None or piece.region._memory is None:
                break
            found += ffi.buffer(ffi.cast("char *", piece.address), min(piece.size, size - len(found)))[:]
        return found

    def _fail(self, status: int) -> None:
        """It was never posted."""
        self._finish(status, 0, 0)

    def _result(self) -> R:
        if self._status:
            raise self._error()
        return cast(R, self._value())

    def _value(self) -> Any:
        if self._opcode == READ:
            return sum(piece.size for piece in self._pieces)
        if self._opcode in _atomics:
            return self._record[6]
        if self._opcode != RECEIVE:
            return None
        _, flags, _, _, bits, _, written, _, size, detail, _, _ = self._record
        queue = self._queue._pump._queues.get(bits)
        has_source = queue is not None and queue._datagrams
        if flags & lib.CRPC_COMPLETION_OF_DCT:
            has_source = written & 0xFFFFFFFF != 0
            written >>= 32
        elif size:  # of a datagram, that word says where it comes from
            written = 0
        return Received(
            size,
            detail if flags & lib.CRPC_COMPLETION_IMMEDIATE else None,
            detail if flags & lib.CRPC_COMPLETION_INVALIDATED else None,
            queue,
            written,
            Source(self._record, self._header) if has_source else None,
        )

    def _error(self) -> CopyrpcError:
        status, name = self._status or 0, self._opcode_names[self._opcode]
        if status == lib.CRPC_E_TOO_BIG and self._flags & _INLINE:
            size = sum(piece.size for piece in self._pieces)
            name += f" of {size} bytes that lie in no region: see QueueOptions.inline_bytes, and Context.register"
        error = self._queue._refusal(status, name)
        error.vendor_syndrome = self._record[9] if self._record else 0
        return error

    # ---- For the application ----

    def done(self) -> bool:
        """Returns True if its end is known already. test() looks for new completions."""
        return self._status is not None

    def test(self) -> bool:
        """Looks for new completions without waiting. Returns True if this op has ended; wait() then
        returns its result, or raises."""
        if self._status is None:
            pump = self._queue._pump
            with pump._use:
                pump._look()
        return self._status is not None

    def wait(self, timeout: Optional[float] = None) -> R:
        """Waits until the op has ended. Returns what read(), receive() and so on return. `timeout`
        only limits the wait; the op goes on."""
        limit = timeout_ns(timeout)
        if self._status is None:
            pump = self._queue._pump
            with pump._use:
                pump._wait_in_time(self.done, limit, f"waiting for a {self._opcode_names[self._opcode]}, which goes on")
        return self._result()

    def __repr__(self) -> str:
        state = "under way" if self._status is None else "done" if not self._status else "failed"
        return f"<copyrpc.Work {self._opcode_names[self._opcode]} {state}>"


def bits_of(piece: Piece) -> int:
    return piece.region.bits if piece.region is not None and piece.size else 0


def _checked(remote: Any) -> tuple[int, int]:
    if not isinstance(remote, tuple) or len(remote) != 2:
        raise TypeError(f"a place at the peer is a Remote(address, key), not {type(remote).__name__}")
    return number(remote[0], "a remote address", 0, _UINT64_MAX), number(remote[1], "a remote key", 0, 0xFFFFFFFF)


def post(queue: BaseQueue, works: list[Work[Any]], taken: Any) -> tuple[int, int]:
    """Submits works. Returns how many were accepted, and why not the next. *taken is the number of
    accepted ops. Called with the lock held."""
    return post_as("crpc_queue_op[]", lib.copyrpc_native_queue_submit_noted, queue, works, taken)


def post_as(array: str, submit: Callable[..., int], queue: Any, works: Sequence[Work[Any]], taken: Any) -> tuple[int, int]:
    """Does the same with ops of this type, of a queue or a lane."""
    pump = queue._pump
    ops = ffi.new(array, len(works))
    view = ffi.buffer(ops)
    parts: list[tuple[int, int, int, int]] = []
    for index, work in enumerate(works):
        work._pack(view, index, parts)
        pump._pending[work._id] = work  # before the library has it: an exception, of a signal handler's perhaps, may come at any time
    pieces = ffi.new("crpc_piece[]", max(1, len(parts)))
    for index, part in enumerate(parts):
        PIECE.pack_into(ffi.buffer(pieces), index * PIECE.size, *part)
    count = submit(pump._pointer, queue._handle[0], ops, len(works), pieces, len(parts), pump._reason, taken)
    count = max(count, 0)
    for work in works[:count]:
        work._posted = True
    for work in works[count:]:
        pump._pending.pop(work._id, None)
    return count, int(pump._reason[0])
