"""_queue.py: queues: what the NIC itself offers, with messages, and reads, writes and atomics of the
peer's memory."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional

from . import _asyncio
from ._native import lib
from ._options import number, sized, timeout_ns
from ._poster import Poster
from ._pump import CAPACITY
from ._queue_options import (
    QueueAddress,
    QueueInfo,
    QueueOptions,
    QueueStats,
    Remote,
    queue_address,
    queue_change,
    queue_info,
    queue_stats,
)
from ._region import Region
from ._transfer import Outbox
from ._work import (
    CHUNK,
    COMPARE_SWAP,
    FENCE,
    FETCH_ADD,
    READ,
    RECEIVE,
    SEND,
    SEND_IMMEDIATE,
    SEND_INVALIDATE,
    SOLICITED,
    WRITE,
    WRITE_IMMEDIATE,
    Received,
    Work,
    post,
)
from ._work_array import WorkArray
from .errors import CopyrpcError, Refused, check, error_of, new_error

if TYPE_CHECKING:
    from ._context import Context
    from ._work import Places

#: After these, the reason why the queue has ended says more.
_ENDED = (lib.CRPC_E_FLUSHED, lib.CRPC_E_DISCONNECTED, lib.CRPC_E_CLOSING)


class BaseQueue(Poster):
    """What all queues have in common: events, and arrays."""

    _kind = "crpc_queue"
    _form = "crpc_queue_op"
    _native_name = "queue"
    _leaving = "drain"
    #: What it receives lies behind a header.
    _datagrams = False

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        self._pump = context
        self._begin(context, bits)
        self._options = options  # keeps the SharedReceiveQueue
        self._sparse = options.sparse
        self._sends = Outbox(self, post, CHUNK)
        self._receives = Outbox(self, post, CHUNK)
        self._private_data = b""
        context._queues[bits] = self

    # ---- Events, with the lock ----

    def _end(self, status: int) -> None:
        if self._reason is None:
            struct = sized("crpc_queue_info")
            if lib.crpc_queue_get_info(self._pump._pointer, self._handle[0], struct) == 0:
                self._private_data = queue_info(struct).private_data
        super()._end(status)

    def _lost(self, error: CopyrpcError) -> None:
        if isinstance(error, Refused):
            error.private_data = self._private_data
        super()._lost(error)
        self._fail_boxes(error)
        self._pump._queues.pop(self._bits, None)  # last: if this was cut, it is done again

    def _error_again(self) -> CopyrpcError:
        error = super()._error_again()
        if isinstance(error, Refused):
            error.private_data = self._private_data
        return error

    def _forget(self) -> None:
        self._pump._queues.pop(self._bits, None)

    def _boxes(self) -> tuple[Outbox, ...]:
        return self._sends, self._receives

    def _refusal(self, status: int, what: str) -> CopyrpcError:
        """Returns the exception for an op that failed."""
        error = error_of(status, what)
        if status in _ENDED and self._error is not None:
            error.message = f"{error.message} (the queue: {self._error.message})"
        return error

    def _box(self, work: Work[Any]) -> Outbox:
        return self._receives if work._opcode == RECEIVE else self._sends

    # ---- Arrays ----

    def submit(
        self, ops: Any, count: Optional[int] = None, first: int = 0, *, region: Optional[Region] = None, pieces: Any = None
    ) -> int:
        """Submits `count` ops of an array from index `first`, with one call of the library: see
        queue_ops. Their completions come by Context.poll. Ops with a payload that name no region are
        in `region`. Returns how many were accepted. It accepts fewer if there was no room: poll, and
        then submit the rest. Raises an exception if the first op was refused for another reason."""
        return self._submit_array(ops, count, first, region, pieces)

    def _native_submit(self, context: Any, ops: Any, count: int, region: int, pieces: Any, piece_count: int) -> int:
        pump = self._pump
        return int(lib.copyrpc_native_queue_submit_array(
            context, self._handle[0], ops, count, {"bits": region}, pieces, piece_count, pump._op_room, CAPACITY, pump._reason
        ))  # fmt: skip

    def submit_and_wait(
        self,
        ops: Any,
        completions: Any = None,
        *,
        region: Optional[Region] = None,
        pieces: Any = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Submits all ops of an array as there is room, and waits until they have completed. Returns
        an array with a completion for each op, in the order in which they ended: in `completions` if
        that is given, otherwise a new one, of numpy if `ops` is. It is for the caller to look at
        `status`. If the library refuses an op, it gets a completion with the reason, and those
        behind it one with CRPC_E_CANCELED; if that is the first, this raises an exception. If
        `timeout` or an exception ends the wait, open ops go on, and nobody hears of them."""
        return self._wait_for_array(ops, completions, region, pieces, timeout)

    async def asubmit_and_wait(
        self, ops: Any, completions: Any = None, *, region: Optional[Region] = None, pieces: Any = None
    ) -> Any:
        """Does the same as submit_and_wait, for coroutines."""
        return await WorkArray(self, ops, completions, region, pieces).arun()

    # ---- Changing ----

    def _modify(self, change: Any) -> None:
        """With the lock."""
        self._check()
        error = new_error()
        check(lib.crpc_queue_modify(self._pump._pointer, self._handle[0], change, error), "modify", error)

    # ---- Looking ----

    def info(self) -> QueueInfo:
        """Describes the queue: its limits, its peer, what the peer has sent to connect."""
        return queue_info(self._info())

    def stats(self) -> QueueStats:
        """Returns the counters. After the queue has ended, returns their last values."""
        stats: QueueStats = self._stats()
        return stats

    def _read_stats(self) -> QueueStats:
        struct = sized("crpc_queue_stats")
        check(lib.crpc_queue_get_stats(self._pump._pointer, self._handle[0], struct))
        return queue_stats(struct)


class ReceivingQueue(BaseQueue):
    """What queues with receives have in common."""

    def _receiving(self, places: Places) -> Work[Received]:
        self._check()
        return Work(self, RECEIVE, places)

    def receive(self, places: Places, *, timeout: Optional[float] = None) -> Received:
        """Gives memory for one message of the peer, and waits for it. `places` is a slice of a
        Region, a buffer that lies in one, or a list of up to receive_pieces of them. If `timeout`
        or an exception such as KeyboardInterrupt ends the wait, the memory stays posted."""
        with self._pump._use:
            return self._finish(self._receiving(places), timeout)

    async def areceive(self, places: Places) -> Received:
        """Does the same as receive, for coroutines. If the task is cancelled, the memory stays
        posted."""
        return await self._arun(lambda: self._receiving(places))

    def post_receive(self, places: Places) -> Work[Received]:
        """Gives memory for one message. test() and wait() of the Work tell what came. Raises NoRoom
        if QueueOptions.receives are open."""
        with self._pump._use:
            return self._post(self._receiving(places))


class PairedQueue(BaseQueue):
    """What queues with a queue pair have in common."""

    def address(self) -> QueueAddress:
        """Returns what a program of any kind has to know of this queue, to connect its own to it, or for a
        Target."""
        with self._pump._use as pointer:
            self._check()
            struct = sized("crpc_queue_address")
            check(lib.crpc_queue_get_address(pointer, self._handle[0], struct), "address")
            return queue_address(struct)

    # ---- The end ----

    def fail(self) -> None:
        """Ends the queue at once: open ops raise Flushed."""
        with self._pump._use as pointer:
            self._check()
            check(lib.crpc_queue_fail(pointer, self._handle[0]), "fail")
            self._pump._rearm()

    def drain(self, timeout: Optional[float] = None) -> None:
        """Waits until what was sent has ended, for at most `timeout` seconds, and disconnects. Open
        receives raise Flushed."""
        self.disconnect(timeout)

    async def adrain(self, timeout: Optional[float] = None) -> None:
        """Does the same as drain, for coroutines."""
        await self.adisconnect(timeout)


class Queue(PairedQueue, ReceivingQueue):
    """A queue with a reliable connection to one peer, made by Context.queue_connect, queue_blob or a
    QueueListener.

    Memory is named by slices of a Region, by buffers that lie in one, or by lists of these. Other
    buffers of up to QueueOptions.inline_bytes are copied, where they are sent. Each op has three
    forms: send() waits for its end; asend() does so for coroutines; post_send() returns a Work. No
    op can be taken back: if `timeout`, a cancelled task or Ctrl-C ends the wait, it goes on."""

    # ---- Making ops, with the lock ----

    def _sending(
        self, places: Places, immediate: Optional[int], invalidate: Optional[int], solicited: bool, fence: bool
    ) -> Work[None]:
        self._check()
        if immediate is not None and invalidate is not None:
            raise ValueError("a message has an immediate, or invalidates a key; not both")
        number = immediate if immediate is not None else invalidate
        opcode = SEND_IMMEDIATE if immediate is not None else SEND_INVALIDATE if invalidate is not None else SEND
        return Work(self, opcode, places, flags=op_flags(solicited, fence), immediate=number or 0)

    def _writing(self, places: Places, remote: Remote, immediate: Optional[int], solicited: bool, fence: bool) -> Work[None]:
        self._check()
        opcode = WRITE_IMMEDIATE if immediate is not None else WRITE
        return Work(self, opcode, places, remote, flags=op_flags(solicited, fence), immediate=immediate or 0)

    def _reading(self, places: Places, remote: Remote, fence: bool) -> Work[int]:
        self._check()
        return Work(self, READ, places, remote, flags=op_flags(False, fence))

    def _swapping(self, remote: Remote, compare: int, swap: int, fence: bool) -> Work[int]:
        self._check()
        return Work(self, COMPARE_SWAP, None, remote, flags=op_flags(False, fence), compare=compare, operand=swap)

    def _adding(self, remote: Remote, add: int, fence: bool) -> Work[int]:
        self._check()
        return Work(self, FETCH_ADD, None, remote, flags=op_flags(False, fence), operand=add)

    # ---- Messages ----

    def send(
        self,
        places: Places,
        *,
        immediate: Optional[int] = None,
        invalidate: Optional[int] = None,
        solicited: bool = False,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Sends a message, which takes a receive of the peer: with an `immediate` of 32 bits, or with
        a remote key that the peer's device is to `invalidate`."""
        with self._pump._use:
            self._finish(self._sending(places, immediate, invalidate, solicited, fence), timeout)

    async def asend(
        self,
        places: Places,
        *,
        immediate: Optional[int] = None,
        invalidate: Optional[int] = None,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Does the same as send, for coroutines."""
        await self._arun(lambda: self._sending(places, immediate, invalidate, solicited, fence))

    def post_send(
        self,
        places: Places,
        *,
        immediate: Optional[int] = None,
        invalidate: Optional[int] = None,
        solicited: bool = False,
        fence: bool = False,
    ) -> Work[None]:
        """Starts to send a message. Raises NoRoom if there is no room for it."""
        with self._pump._use:
            return self._post(self._sending(places, immediate, invalidate, solicited, fence))

    # ---- The peer's memory ----

    def write(
        self,
        places: Places,
        remote: Remote,
        *,
        immediate: Optional[int] = None,
        solicited: bool = False,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Writes to the peer's memory. With an `immediate`, it then takes a receive of the peer."""
        with self._pump._use:
            self._finish(self._writing(places, remote, immediate, solicited, fence), timeout)

    async def awrite(
        self, places: Places, remote: Remote, *, immediate: Optional[int] = None, solicited: bool = False, fence: bool = False
    ) -> None:
        """Does the same as write, for coroutines."""
        await self._arun(lambda: self._writing(places, remote, immediate, solicited, fence))

    def post_write(
        self, places: Places, remote: Remote, *, immediate: Optional[int] = None, solicited: bool = False, fence: bool = False
    ) -> Work[None]:
        """Starts to write to the peer's memory."""
        with self._pump._use:
            return self._post(self._writing(places, remote, immediate, solicited, fence))

    def read(self, places: Places, remote: Remote, *, fence: bool = False, timeout: Optional[float] = None) -> int:
        """Reads the peer's memory. Returns how many bytes were read."""
        with self._pump._use:
            return self._finish(self._reading(places, remote, fence), timeout)

    async def aread(self, places: Places, remote: Remote, *, fence: bool = False) -> int:
        """Does the same as read, for coroutines."""
        return await self._arun(lambda: self._reading(places, remote, fence))

    def post_read(self, places: Places, remote: Remote, *, fence: bool = False) -> Work[int]:
        """Starts to read the peer's memory."""
        with self._pump._use:
            return self._post(self._reading(places, remote, fence))

    def compare_swap(
        self, remote: Remote, compare: int, swap: int, *, fence: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Replaces 8 bytes of the peer's memory by `swap`, if they are equal to `compare`. Returns
        what was there before: a number without a sign, in the byte order of the machines."""
        with self._pump._use:
            return self._finish(self._swapping(remote, compare, swap, fence), timeout)

    async def acompare_swap(self, remote: Remote, compare: int, swap: int, *, fence: bool = False) -> int:
        """Does the same as compare_swap, for coroutines."""
        return await self._arun(lambda: self._swapping(remote, compare, swap, fence))

    def post_compare_swap(self, remote: Remote, compare: int, swap: int, *, fence: bool = False) -> Work[int]:
        """Starts a compare_swap."""
        with self._pump._use:
            return self._post(self._swapping(remote, compare, swap, fence))

    def fetch_add(self, remote: Remote, add: int, *, fence: bool = False, timeout: Optional[float] = None) -> int:
        """Adds to 8 bytes of the peer's memory, modulo 2^64. Returns what was there before."""
        with self._pump._use:
            return self._finish(self._adding(remote, add, fence), timeout)

    async def afetch_add(self, remote: Remote, add: int, *, fence: bool = False) -> int:
        """Does the same as fetch_add, for coroutines."""
        return await self._arun(lambda: self._adding(remote, add, fence))

    def post_fetch_add(self, remote: Remote, add: int, *, fence: bool = False) -> Work[int]:
        """Starts a fetch_add."""
        with self._pump._use:
            return self._post(self._adding(remote, add, fence))

    # ---- Changing ----

    def modify(
        self,
        *,
        not_ready_wait: Optional[float] = None,
        access: Optional[Iterable[str]] = None,
        retry_timeout: Optional[int] = None,
        retry_count: Optional[int] = None,
        not_ready_retry_count: Optional[int] = None,
    ) -> None:
        """Changes the queue while it is in use; what is None stays as it is, and 0 means the library's
        default. `not_ready_wait` is how many seconds the peer waits before it sends again what found no
        receive. `access` is what the peer may do, over this queue, with regions that have the right, too: any
        of remote_write, remote_read and remote_atomic; what exceeds it ends the queue. A queue of
        Context.queue_blob can change in all of this before it is joined; devices do not let the retries of
        a connected queue change. Raises Unsupported for what the device refuses; then nothing has changed."""
        change = queue_change(
            not_ready_wait=not_ready_wait,
            access=access,
            retry_timeout=retry_timeout,
            retry_count=retry_count,
            not_ready_retry_count=not_ready_retry_count,
        )
        with self._pump._use:
            self._modify(change)

    # ---- Without rdma_cm, and without a blob ----

    def _join_address(self, address: QueueAddress) -> None:
        if not isinstance(address, QueueAddress):
            raise TypeError(f"address is a QueueAddress, not {type(address).__name__}")
        struct = address.to_c()
        with self._pump._use as pointer:
            self._check()
            error = new_error()
            check(lib.crpc_queue_join_address(pointer, self._handle[0], struct, error), "join_address", error)

    def join_address(self, address: QueueAddress, *, timeout: Optional[float] = 5.0) -> None:
        """Connects a queue of Context.queue_blob to the queue pair of any program, which connects its
        own to what address() returns."""
        limit = timeout_ns(timeout)
        self._join_address(address)
        with self._pump._use:
            self._settle(limit, "join_address")


class SharedReceiveQueue(ReceivingQueue):
    """Receives that several queues share: they name it as QueueOptions.receive_queue. Made by
    Context.queue_open."""

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        super().__init__(context, bits, options)
        self._up = True

        self._limits = 0  # how often CRPC_COMPLETION_SRQ_LIMIT came

    def _shared_handle(self) -> Any:
        self._check()
        return self._handle[0]

    # ---- Running low ----

    def _limit_reached(self) -> None:
        self._limits += 1

    def _low_since(self, limit: int) -> Callable[[], bool]:
        """Sets the limit. Returns what tells whether it was reached since."""
        with self._pump._use:
            seen = self._limits
            self._modify(queue_change(srq_limit=limit))
        return lambda: self._limits != seen or self._error is not None

    def run_low(self, limit: int, *, timeout: Optional[float] = None) -> None:
        """Waits until a message takes a receive and leaves fewer than `limit`. The SRQ has one limit: who
        waits with another one replaces it, and all who wait return. A limit of before can make this return
        early, once."""
        left = timeout_ns(timeout)
        low = self._low_since(number(limit, "limit", 1, 0xFFFFFFFF))
        with self._pump._use:
            self._pump._wait_in_time(low, left, "run_low")
            self._check()

    async def arun_low(self, limit: int) -> None:
        """Does the same as run_low, for coroutines."""
        await _asyncio.ready(self._pump)
        await _asyncio.wait(self._pump, self._low_since(number(limit, "limit", 1, 0xFFFFFFFF)))
        self._check()

    def _leave(self, timeout: Optional[float]) -> bool:
        return False  # it has no peer to take leave of

    def _close_handle(self, pointer: Any) -> None:
        check(lib.crpc_queue_close(pointer, self._handle[0]), "close, while queues use it")


def op_flags(solicited: bool, fence: bool) -> int:
    return (SOLICITED if solicited else 0) | (FENCE if fence else 0)
