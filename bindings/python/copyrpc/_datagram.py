"""_datagram.py: queues for datagrams, and where these go."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from ._closing import Closing
from ._native import ffi, lib
from ._options import number, pin, sized
from ._queue import BaseQueue, PairedQueue, ReceivingQueue, op_flags
from ._queue_options import QueueAddress, QueueOptions, queue_address, queue_change
from ._records import COMPLETION, Completion, dtype
from ._region import Region, RegionSlice
from ._work import SEND, SEND_IMMEDIATE, Received, Work
from .errors import Closed, check, error_of, new_error

if TYPE_CHECKING:
    import numpy

    from ._context import Context
    from ._work import Places

#: What precedes each message in the memory that receives it.
HEADER_BYTES: int = lib.CRPC_QUEUE_HEADER_BYTES


class Target(Closing):
    """Where datagrams go, or the ops of a DCIQueue: a queue pair or a DCT, and its key. Made by
    Context.target, and by DatagramQueue.target_of for answers. It ends with its context."""

    def __init__(self, context: Context, handle: Any, of_dci: bool = False) -> None:
        self._context = context
        self._handle = handle
        self._of_dci = of_dci
        self._closed = False

    @property
    def bits(self) -> int:
        """The handle, for the `target` field of ops in arrays."""
        return int(self._handle.bits)

    def address(self) -> QueueAddress:
        """Returns the address of the queue pair."""
        with self._context._use as pointer:
            struct = sized("crpc_queue_address")
            check(lib.crpc_target_get_address(pointer, self._handle[0], struct), "target")
            return queue_address(struct)

    def close(self) -> None:
        """Ops that were posted go on. Closing twice does no harm."""
        if not self._closed and self._context._pointer is not None:
            with self._context._use as pointer:
                check(lib.crpc_target_close(pointer, self._handle[0]), "target")
        self._closed = True

    def __repr__(self) -> str:
        return f"<copyrpc.Target {self.bits:#x}{' closed' if self._closed else ''}>"


def bits_of_target(queue: BaseQueue, target: Any, what: str, of_dci: bool) -> int:
    """Returns what an op of this queue calls a target. With the lock."""
    if not isinstance(target, Target):
        raise TypeError(f"target is a Target, not {type(target).__name__}")
    if target._context is not queue._pump:
        raise error_of(lib.CRPC_E_INVALID, f"{what}: the target belongs to another context")
    if target._closed:
        raise Closed(f"{what}: the target is closed", lib.CRPC_E_CLOSED)
    if target._of_dci != of_dci:
        need = "a DCIQueue needs a target with an access_key" if of_dci else "a DatagramQueue needs a target without an access_key"
        raise error_of(lib.CRPC_E_INVALID, f"{what}: {need}, see Context.target")
    return target.bits


def target_of_address(
    context: Context, address: QueueAddress, queue_key: int, service_level: int, access_key: Optional[int]
) -> Target:
    if not isinstance(address, QueueAddress):
        raise TypeError(f"address is a QueueAddress, not {type(address).__name__}")
    options = sized("crpc_target_options")
    options.queue_key = number(queue_key, "queue_key", 0, 0xFFFFFFFF)
    options.service_level = number(service_level, "service_level", 0, 0xFFFFFFFF)
    if access_key is not None:
        options.kind = lib.CRPC_QUEUE_KIND_DCI
        options.access_key = number(access_key, "access_key", 0, (1 << 64) - 1)
    struct = address.to_c()
    with context._use as pointer:
        handle = ffi.new("crpc_target *")
        error = new_error()
        check(lib.crpc_target_open(pointer, struct, options, handle, error), "target", error)
        return Target(context, handle, access_key is not None)


class DatagramQueue(PairedQueue, ReceivingQueue):
    """A queue for datagrams, made by Context.datagram_queue. Each send() goes to a target of its own.
    What it receives lies behind HEADER_BYTES of header, which count in Received.size. A datagram is lost
    if there is no receive, and nobody is told."""

    _datagrams = True

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        super().__init__(context, bits, options)
        self._up = True

    def modify(self, *, queue_key: int) -> None:
        """Gives the queue another key, which who sends to it must know from now on; 0 means the library's
        default."""
        change = queue_change(queue_key=queue_key)
        with self._pump._use:
            self._modify(change)

    def _sending(self, places: Places, target: Target, immediate: Optional[int], solicited: bool) -> Work[None]:
        """With the lock."""
        self._check()
        there = bits_of_target(self, target, "send", False)
        opcode = SEND_IMMEDIATE if immediate is not None else SEND
        return Work(self, opcode, places, flags=op_flags(solicited, False), immediate=immediate or 0, target=there)

    def send(
        self,
        places: Places,
        target: Target,
        *,
        immediate: Optional[int] = None,
        solicited: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Sends a datagram of at most QueueInfo.message_bytes_max, perhaps with an `immediate` of 32 bits.
        Returns when it was sent."""
        with self._pump._use:
            self._finish(self._sending(places, target, immediate, solicited), timeout)

    async def asend(
        self, places: Places, target: Target, *, immediate: Optional[int] = None, solicited: bool = False
    ) -> None:
        """Does the same as send, for coroutines."""
        await self._arun(lambda: self._sending(places, target, immediate, solicited))

    def post_send(
        self, places: Places, target: Target, *, immediate: Optional[int] = None, solicited: bool = False
    ) -> Work[None]:
        """Starts to send a datagram. Raises NoRoom if there is no room for it."""
        with self._pump._use:
            return self._post(self._sending(places, target, immediate, solicited))

    def target_of(self, received: Union[Received, Completion, numpy.void], header: Any = None) -> Target:
        """Makes a target for an answer to a datagram, with this queue's own key. Of a receive in an array,
        `received` is its completion, of a CompletionArray or of numpy's, and `header` the memory that was
        received into, of which HEADER_BYTES are enough: region[a:b], or a buffer. Who can forge the header of
        a datagram can have the answer sent to somebody else. An application that answers often keeps the
        targets of its peers."""
        completion = ffi.new("crpc_completion *")
        if isinstance(received, Received):
            source = received.source
            if source is None or received.queue is not self:
                raise ValueError(_no_datagram)
            if header is not None:
                raise ValueError("a Received has its header with it: header is for completions of arrays")
            record, kept = COMPLETION.pack(*source._record), source._header.ljust(HEADER_BYTES, b"\0")
        else:
            record, kept = _record_of(received), _header_of(header)
        ffi.memmove(completion, record, COMPLETION.size)
        if completion.endpoint.bits != self.bits:
            raise ValueError(_no_datagram)
        with self._pump._use as pointer:
            self._check()
            handle = ffi.new("crpc_target *")
            error = new_error()
            check(lib.crpc_target_of(pointer, completion, kept, handle, error), "target_of", error)
            return Target(self._context, handle)


_no_datagram = "what was received is no datagram of this queue"


def _record_of(completion: Any) -> bytes:
    """A completion as C has it, from one of the two forms of arrays."""
    if isinstance(completion, Completion):
        return COMPLETION.pack(*completion)
    kind = getattr(completion, "dtype", None)
    if kind is None or kind != dtype("crpc_completion") or completion.nbytes != COMPLETION.size:
        raise TypeError(f"received is a Received, or one completion of an array, not {type(completion).__name__}")
    return bytes(completion.tobytes())


def _header_of(memory: Any) -> bytes:
    if isinstance(memory, (Region, RegionSlice)):
        memory = memory.memory
    pinned = pin(memory, "header")
    if len(pinned) < HEADER_BYTES:
        raise ValueError(f"header has at least {HEADER_BYTES} bytes, not {len(pinned)}: see HEADER_BYTES")
    return bytes(ffi.buffer(pinned, HEADER_BYTES))
