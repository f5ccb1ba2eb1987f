"""_tags.py: receives with tags (TM-SRQs), and what messages to them begin with."""
from __future__ import annotations

import struct
import time
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional, TypeVar

from . import _asyncio
from ._guards import through
from ._native import ffi, lib
from ._options import number, pin, pin_writable, timeout_ns
from ._queue import SharedReceiveQueue
from ._queue_options import QueueOptions
from ._records import COMPLETION, MARK
from ._transfer import Outbox
from ._work import CHUNK, RECEIVE, Piece, Received, Work, piece_of, post
from .errors import CopyrpcError, InvalidArgument, ProtocolError, check, error_of, new_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._context import Context
    from ._queue import BaseQueue
    from ._work import Place, Places

TAG_ADD: int = lib.CRPC_QUEUE_TAG_ADD
TAG_REMOVE: int = lib.CRPC_QUEUE_TAG_REMOVE
TAG_SYNC: int = lib.CRPC_QUEUE_TAG_SYNC
#: The mask of a buffer for one tag alone.
TAG_MASK_ALL = (1 << 64) - 1
#: How long what tag_header makes is.
TAG_HEADER_BYTES: int = lib.CRPC_TAG_HEADER_BYTES

_BUSY: int = lib.CRPC_E_BUSY
_CANCELED: int = lib.CRPC_E_CANCELED
_NOT_FOUND: int = lib.CRPC_E_NOT_FOUND
_SYNC: int = lib.CRPC_COMPLETION_SYNC
_names = {RECEIVE: "receive", TAG_ADD: "receive_tag", TAG_REMOVE: "remove", TAG_SYNC: "synchronize"}
# struct ibv_tmh of libibverbs, in network byte order.
_HEADER = struct.Struct(">B3xIQ")
_kinds = {lib.CRPC_TAG_NONE: "none", lib.CRPC_TAG_RENDEZVOUS: "rendezvous", lib.CRPC_TAG_FINISHED: "finished", lib.CRPC_TAG_EAGER: "eager"}

R = TypeVar("R")  # Received, Matched, or bool


# ---- Headers ----


class TagHeader(NamedTuple):
    """What a message to a TaggedReceiveQueue begins with."""

    #: "eager"; of other programs also "rendezvous", "finished", and "none", which has no tag.
    kind: str
    tag: int
    context: int


def tag_header(tag: int, context: int = 0) -> bytes:
    """Returns the TAG_HEADER_BYTES that a message with a tag begins with. `context` is any number of 32
    bits for the receiver. Any Queue can send it: before the payload, in the same message."""
    return _HEADER.pack(lib.CRPC_TAG_EAGER, number(context, "context", 0, 0xFFFFFFFF), number(tag, "tag", 0, TAG_MASK_ALL))


def write_tag_header(memory: Buffer, tag: int, context: int = 0) -> None:
    """Writes the same to the first TAG_HEADER_BYTES of a buffer."""
    pinned = pin_writable(memory, "memory")
    if len(pinned) < TAG_HEADER_BYTES:
        raise ValueError(f"a tag's header has {TAG_HEADER_BYTES} bytes, and memory {len(pinned)}")
    ffi.memmove(pinned, tag_header(tag, context), TAG_HEADER_BYTES)


def read_tag_header(message: Buffer) -> TagHeader:
    """Reads what a message begins with that nothing has matched. It comes from the peer. Raises
    ProtocolError if it has no such header; the device has taken it for a message without a tag."""
    pinned = pin(message, "message")
    first = ffi.buffer(pinned)[:TAG_HEADER_BYTES]
    kind, context, tag = _HEADER.unpack(first) if len(first) == TAG_HEADER_BYTES else (-1, 0, 0)
    if kind not in _kinds:
        raise ProtocolError("the message has no header with a tag", lib.CRPC_E_PROTOCOL)
    return TagHeader(_kinds[kind], tag, context) if kind != lib.CRPC_TAG_NONE else TagHeader("none", 0, 0)


# ---- Ops ----


class Matched(NamedTuple):
    """A message that has matched a buffer."""

    #: How much of the memory was filled, without the header.
    size: int
    tag: int
    #: The number in its header.
    context: int
    #: The queue over which it came; None if that is closed.
    queue: Optional[BaseQueue]
    #: It is the request of a rendezvous: copyrpc.h, CRPC_COMPLETION_RENDEZVOUS. Its header is in the memory, too.
    rendezvous: bool = False


class TagWork(Work[R]):
    """An op of a TaggedReceiveQueue under way: see TaggedReceiveQueue.post_receive_tag and so on."""

    __slots__ = ("_abandoned",)
    _opcode_names: ClassVar[dict[int, str]] = _names
    _queue: TaggedReceiveQueue

    def __init__(self, queue: TaggedReceiveQueue, opcode: int, pieces: list[Piece], *, tag: int = 0, operand: int = 0) -> None:
        """With the lock. Receives are made by TagReceive."""
        self._immediate = self._compare = self._target = 0
        self._remote = tag, 0
        self._operand = operand
        self._abandoned = False
        self._begin(queue, opcode, 0, pieces)

    def _abandon(self) -> None:
        self._abandoned = True

    def _result(self) -> R:
        if self._opcode == TAG_REMOVE and self._status == _NOT_FOUND or self._opcode == TAG_SYNC and self._status == _BUSY:
            return False  # type: ignore[return-value]
        return super()._result()

    def _value(self) -> Any:
        if self._opcode != TAG_ADD:
            return True
        _, flags, _, _, bits, _, tag, _, size, _, view, _ = self._record
        over = self._queue._pump._queues.get(bits)
        queue = over if over is not self._queue else None  # the library names the SRQ if the queue is gone
        return Matched(size, tag, view & 0xFFFFFFFF, queue, bool(flags & lib.CRPC_COMPLETION_RENDEZVOUS))

    def _arrived(self, record: tuple[int, ...]) -> None:
        """May be called again if it was cut."""
        self._record = record
        self._finish(record[3], 0, 0)

    # ---- For the application ----

    def remove(self, timeout: Optional[float] = None) -> bool:
        """Of a receive with a tag: takes the memory back. Returns True when that is done: then wait()
        raises Canceled. Returns False if a message was faster; wait() has it, or will have it."""
        queue = self._queue
        with queue._pump._use:
            removal = queue._removing(self)
            return queue._finish(removal, timeout) if removal is not None else self._status == _CANCELED

    async def aremove(self) -> bool:
        """Does the same as remove, for coroutines. If the task is cancelled, the removal goes on."""
        queue = self._queue
        attachment = await _asyncio.ready(queue._pump)
        with queue._pump._use:
            removal = queue._removing(self)
            if removal is None:
                return self._status == _CANCELED
            queue._schedule(removal, attachment)
        return await queue._afinish(removal)


class TagReceive(Work[Received]):
    """An ordinary receive of a TaggedReceiveQueue. While it has a message with a tag that nobody has looked
    at, nobody can say that all were looked at."""

    __slots__ = ("_abandoned",)
    _queue: TaggedReceiveQueue

    def __init__(self, queue: TaggedReceiveQueue, places: Places) -> None:
        self._abandoned = False
        super().__init__(queue, RECEIVE, places)

    def _unexpected(self) -> bool:
        return self._status == 0 and bool(self._record[1] & _SYNC)

    def _arrived(self, record: tuple[int, ...]) -> None:
        if record[1] & _SYNC and not self._abandoned:
            self._queue._unseen.add(self)
        super()._arrived(record)

    def _abandon(self) -> None:
        self._abandoned = True
        self._queue._unseen.discard(self)

    def _result(self) -> Received:
        self._queue._unseen.discard(self)
        return super()._result()

    def _value(self) -> Any:
        return super()._value()._replace(unexpected=self._unexpected())


def post_commands(queue: TaggedReceiveQueue, works: list[Any], taken: Any) -> tuple[int, int]:
    """As post, for what does not wait for room in the list of tags. Nobody says that all messages were looked at while the
    package has some that nobody has asked for."""
    if queue._has_unseen():
        first = next((index for index, work in enumerate(works) if work._opcode == TAG_SYNC), len(works))
        if first < len(works):
            count, reason = post(queue, works[:first], taken) if first else (0, 0)
            return count, reason if count < first else _BUSY
    return post(queue, works, taken)


# ---- The queue ----


class TaggedReceiveQueue(SharedReceiveQueue):
    """Receives that several queues share, whose device matches tags: a TM-SRQ, made by
    Context.tagged_queue. Queues name it as QueueOptions.receive_queue.

    receive_tag() gives memory for a message with a tag. A message goes to the oldest memory that matches
    its tag, without its header. What matches none goes to receive(), with its header, and its Received is
    `unexpected`: from then on, memory that is given matches nothing until synchronize() says that the
    application has looked at all such messages."""

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        self._commands = Outbox(self, post_commands, CHUNK)
        self._unseen: weakref.WeakSet[Work[Any]] = weakref.WeakSet()  # whose messages nobody has asked for yet
        super().__init__(context, bits, options)

    # ---- With the lock ----

    def _boxes(self) -> tuple[Outbox, ...]:
        return self._commands, *super()._boxes()

    def _box(self, work: Work[Any]) -> Outbox:
        return self._commands if work._opcode in (TAG_REMOVE, TAG_SYNC) else super()._box(work)

    def _has_unseen(self) -> bool:
        """Whether the package has unexpected messages that the application was not given."""
        pump = self._pump
        if len(self._unseen):
            return True
        if any(_is_unexpected(COMPLETION.unpack(record)) for record, _ in pump._backlog):
            return True
        for works in pump._works:
            if works.poster is self and works.native.completed:
                done = ffi.buffer(works.native.completions, works.native.completed * COMPLETION.size)
                if any(map(_is_unexpected, COMPLETION.iter_unpack(done))):
                    return True
        return False

    def _receiving(self, places: Places) -> Work[Received]:
        self._check()
        return TagReceive(self, places)

    def _receiving_tag(self, place: Place, tag: int, mask: int) -> TagWork[Matched]:
        self._check()
        number(mask, "mask", 0, TAG_MASK_ALL)
        if number(tag, "tag", 0, TAG_MASK_ALL) & ~mask:
            raise InvalidArgument(f"tag {tag:#x} has ones where the mask {mask:#x} has none: nothing could match it", lib.CRPC_E_INVALID)
        if isinstance(place, (list, tuple)):
            raise TypeError("receive_tag: the memory of a tag is one place, not several")
        return TagWork(self, TAG_ADD, [piece_of(self._pump, place, "receive_tag", True)], tag=tag, operand=mask)

    def _removing(self, work: TagWork[Any]) -> Optional[TagWork[bool]]:
        """Makes a removal of what the library has. None if nothing is to be removed any more."""
        if work._status is not None or self._sends.take_back(work, _CANCELED):
            return None
        self._check()
        return TagWork(self, TAG_REMOVE, [], operand=MARK | work._id)

    def _give_up(self, work: Work[Any]) -> None:
        if not isinstance(work, TagWork) or work._opcode != TAG_ADD:
            super()._give_up(work)
        elif not work._abandoned:
            removal = self._removing(work) if self._error is None else None
            if removal is not None:
                self._begin_removal(removal)
            work._abandon()

    def _begin_removal(self, removal: TagWork[bool]) -> None:
        self._commands.waiting.append(removal)
        self._commands.pour()
        self._pump._rearm()

    def _native_submit(self, context: Any, ops: Any, count: int, region: int, pieces: Any, piece_count: int) -> int:
        some = count
        if self._has_unseen():
            some = int(lib.copyrpc_native_queue_find(ops, count, TAG_SYNC))
        taken = super()._native_submit(context, ops, some, region, pieces, piece_count) if some or not count else 0
        if taken == some < count:
            self._pump._reason[0] = _BUSY
        return taken

    # ---- Messages with tags ----

    def receive_tag(self, place: Place, tag: int, mask: int = TAG_MASK_ALL, *, timeout: Optional[float] = None) -> Matched:
        """Gives memory for a message whose tag is equal to `tag` where `mask` has ones, and waits for it.
        `place` is a slice of a Region, or a buffer that lies in one. Waits, too, while QueueOptions.tags
        are open. If `timeout` or an exception such as KeyboardInterrupt ends the wait, the memory is
        taken back. (A message that has begun to come in stops for neither: then Timeout says so, and the
        memory is in use until all of it is there.)"""
        pump = self._pump
        limit = timeout_ns(timeout)
        with pump._use:
            work = self._receiving_tag(place, tag, mask)
            try:
                self._sends.waiting.append(work)
                self._sends.pour()
                pump._rearm()
                if not pump._wait(work.done, time.monotonic_ns() + limit if limit else None):
                    self._end_in_time(work)
            except BaseException:  # Ctrl-C perhaps
                if pump._pointer is not None:
                    through(self._give_up, work)
                raise
            return work._result()

    def _end_in_time(self, work: TagWork[Matched]) -> None:
        """The time is over. Returns if a message was faster."""
        removal = self._removing(work)
        if removal is not None:
            self._begin_removal(removal)
            self._pump._wait(removal.done)  # the work's end comes first, if the memory was taken back
        if work._status is None:
            work._abandon()
            raise error_of(lib.CRPC_E_TIMEOUT, "receive_tag: a message has begun to come in, and its memory is in use until it has ended")
        if work._status == _CANCELED:
            raise error_of(lib.CRPC_E_TIMEOUT, "receive_tag: the memory was taken back")

    async def areceive_tag(self, place: Place, tag: int, mask: int = TAG_MASK_ALL) -> Matched:
        """Does the same as receive_tag, for coroutines. If the task is cancelled, the memory is taken back,
        and in use until that is done; a message that was faster is lost."""
        return await self._arun(lambda: self._receiving_tag(place, tag, mask))

    def post_receive_tag(self, place: Place, tag: int, mask: int = TAG_MASK_ALL) -> TagWork[Matched]:
        """Gives memory for a message with a tag. test() and wait() of the work tell what came, and
        remove() takes the memory back. Raises NoRoom if QueueOptions.tags are open."""
        with self._pump._use:
            work = self._receiving_tag(place, tag, mask)
            self._post(work)
            return work

    # ---- Unexpected messages ----

    def _synchronizing(self) -> TagWork[bool]:
        self._check()
        return TagWork(self, TAG_SYNC, [])

    def synchronize(self, *, timeout: Optional[float] = None) -> bool:
        """Says that the application has looked at all unexpected messages: those that receive() and wait()
        have returned, and Context.poll has given. Memory matches again from then on. Returns False, and
        says nothing, if the package has more of them: somebody is about to get one, or there is a Work
        to wait() for, which has it."""
        with self._pump._use:
            return self._finish(self._synchronizing(), timeout)

    async def asynchronize(self) -> bool:
        """Does the same as synchronize, for coroutines."""
        return await self._arun(lambda: self._synchronizing())

    def _refusal(self, status: int, what: str) -> CopyrpcError:
        if status == _BUSY:
            return error_of(status, f"{what}: TAG_SYNC, but there are unexpected messages that were not looked at")
        return super()._refusal(status, what)


def _is_unexpected(record: tuple[int, ...]) -> bool:
    return record[0] == lib.CRPC_COMPLETION_WORK and record[2] == RECEIVE and record[1] & _SYNC != 0


def open_tagged_queue(context: Context, options: QueueOptions) -> TaggedReceiveQueue:
    c_options = options.to_c(lib.CRPC_QUEUE_KIND_TM_SRQ)
    with context._use as pointer:
        handle = ffi.new("crpc_queue *")
        error = new_error()
        check(lib.crpc_queue_open(pointer, c_options, handle, error), "tagged_queue", error)
        return TaggedReceiveQueue(context, handle.bits, options)
