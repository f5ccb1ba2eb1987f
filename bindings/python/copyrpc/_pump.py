"""_pump.py: the one place that polls a context, and hands completions to whom they belong.

A context belongs to one thread at a time; here that is whoever holds `_lock`, which every call of the library is made under and
nobody sleeps under. Of the threads that wait for something, one is the leader: it polls, and sleeps on the context's descriptor
with the lock let go. The others sleep each on a lock of its own, and are woken when what they wait for has come or when the
leader leaves. An event loop is one more sleeper: see _asyncio.py.

Names with an underscore that take the lock say so; all others of them are called with it held."""
from __future__ import annotations

import atexit
import os
import struct
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from . import errors
from ._message import Message, end_views, memory
from ._native import ffi, lib
from ._records import COMPLETION, MARK, OP
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    from ._arrays import Batch
    from ._asyncio import Attachment
    from ._channel import Channel
    from ._endpoint import Endpoint
    from ._region import Region
    from ._reserve import Reservation
    from ._transfer import Buffer

RESPONSE: int = lib.CRPC_COMPLETION_RESPONSE
REPLY: int = lib.CRPC_COMPLETION_REPLY
CANCEL: int = lib.CRPC_COMPLETION_CANCEL
REQUEST: int = lib.CRPC_COMPLETION_REQUEST
CONNECT_REQUEST: int = lib.CRPC_COMPLETION_CONNECT_REQUEST
CONNECTED: int = lib.CRPC_COMPLETION_CONNECTED
DISCONNECTED: int = lib.CRPC_COMPLETION_DISCONNECTED
ROOM: int = lib.CRPC_COMPLETION_ROOM
DEVICE: int = lib.CRPC_COMPLETION_DEVICE
SENT: int = lib.CRPC_COMPLETION_SENT
RECEIVED: int = lib.CRPC_COMPLETION_RECEIVED
RAIL: int = lib.CRPC_COMPLETION_RAIL
OF_CHANNEL: int = lib.CRPC_COMPLETION_OF_CHANNEL
AGAIN: int = lib.CRPC_E_AGAIN

CAPACITY = 1024
# copyrpc_native_span and copyrpc_native_result.
_SPAN = struct.Struct("<QQ")
_RESULT = struct.Struct("<QqQQ")

#: Polls that find nothing before a waiter goes to sleep.
_SPINS = 8
# A signal that comes just before a sleep begins does not end it; this bounds how long it may go unseen.
_SLEEP_NS_MAX = 500_000_000

Done = Callable[[], bool]


class Waiter:
    """A thread that waits for `done`."""

    __slots__ = ("done", "lock", "woken")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.lock = threading.Lock()
        self.lock.acquire()
        self.woken = False

    def wake(self) -> None:
        if not self.woken:
            self.woken = True
            try:
                self.lock.release()
            except RuntimeError:  # Requests.stop, which takes no lock, was quicker
                pass


class Use:
    """`with pump._use as pointer`: takes the lock, if the context is open and this process's own."""

    __slots__ = ("pump",)

    def __init__(self, pump: Pump) -> None:
        self.pump = pump

    def __enter__(self) -> Any:
        pump = self.pump
        if pump._pointer is None:  # before the lock: in a forked child a thread that is not there may hold it
            raise pump._gone()
        if not pump._lock.acquire(False):
            pump._contenders.append(None)  # a leader that always finds something lets others have a go
            try:
                pump._lock.acquire()
            finally:
                pump._contenders.pop()
        if pump._pointer is None:
            pump._lock.release()
            raise pump._gone()
        return pump._pointer

    def __exit__(self, *ignored: object) -> None:
        self.pump._lock.release()


class Sorted:
    """What the last poll brought, and how far it was handed out."""

    def __init__(self) -> None:
        self.spans = ffi.new("struct copyrpc_native_span[]", CAPACITY)
        self.span_ids = ffi.new("uint64_t[]", CAPACITY)
        self.results = ffi.new("struct copyrpc_native_result[]", CAPACITY)
        self.events = ffi.new("crpc_completion[]", CAPACITY)
        self.poll = ffi.new("struct copyrpc_native_poll *")
        self.poll.capacity = CAPACITY
        self.poll.spans = self.spans
        self.poll.span_ids = self.span_ids
        self.poll.results = self.results
        self.poll.events = self.events
        self.span_bytes = ffi.buffer(self.spans)
        self.result_bytes = ffi.buffer(self.results)
        self.event_bytes = ffi.buffer(self.events)
        self.batch: Optional[Batch] = None
        self.left = False
        self.result_iterator: Optional[Iterator[tuple[int, ...]]] = None
        self.event_iterator: Optional[Iterator[tuple[int, ...]]] = None

    def expect(self, batches: list[Batch]) -> None:
        """Of several threads' batches one goes the quick way."""
        self.batch = batches[0] if batches else None
        self.poll.low, self.poll.high = (self.batch.low, self.batch.high) if self.batch is not None else (0, 0)
        self.result_iterator = self.event_iterator = None

    def anything(self) -> bool:
        poll = self.poll
        return bool(poll.spans_count or poll.results_count or poll.events_count)

    def to_batch(self, batch: Batch) -> None:
        poll = self.poll
        count = poll.spans_count
        replies = [memory[begin:end] for begin, end in _SPAN.iter_unpack(self.span_bytes[: count * _SPAN.size])]
        if poll.in_order:
            first = poll.first_id - batch.low
            batch.results[first : first + count] = replies
        else:
            for user_data, reply in zip(ffi.unpack(self.span_ids, count), replies):
                batch.results[user_data - batch.low] = reply
        batch.left -= count
        poll.spans_count = 0

    def take_results(self) -> Iterator[tuple[int, ...]]:
        if self.result_iterator is None:
            self.result_iterator = _RESULT.iter_unpack(self.result_bytes[: self.poll.results_count * _RESULT.size])
        return self.result_iterator

    def take_events(self) -> Iterator[tuple[int, ...]]:
        if self.event_iterator is None:
            self.event_iterator = COMPLETION.iter_unpack(self.event_bytes[: self.poll.events_count * 64])
        return self.event_iterator


class Pump:
    """What a Context is beneath its public methods."""

    _pointer: Any = None

    def __init__(self, pointer: Any, keep_registered: bool) -> None:
        self._pointer = pointer
        self._keep_registered = keep_registered
        self._forked = False
        self._lock = threading.Lock()
        self._contenders: list[None] = []
        self._use = Use(self)
        self._owner = threading.get_ident()
        self._shared = False  # by threads or an event loop: payloads are copied at once
        self._sorted = Sorted()
        self._reason = ffi.new("int32_t *")
        self._lent: list[Message] = []
        self._ids = 0  # in user_data with MARK
        self._pending: dict[int, Any] = {}
        self._batches: list[Batch] = []
        self._endpoints: dict[int, Endpoint] = {}
        self._channels: dict[int, Channel] = {}
        self._listeners: dict[int, Any] = {}
        self._regions: list[Region] = []  # by address
        self._dropped: list[Buffer] = []  # of transfers that are done, still registered
        self._reservations: dict[int, Reservation] = {}  # of endpoints
        self._backlog: deque[tuple[bytes, bytes]] = deque()  # completions for arrays, and their payloads
        self._polls = 0  # a view of an earlier one is dead
        self._room = 0  # how often CRPC_COMPLETION_ROOM came
        self._device_status = 0
        self._fd = lib.crpc_context_fd(pointer)
        self._wake_fd = lib.copyrpc_native_wake_open()
        self._leader: Optional[Waiter] = None
        self._sleeping = False
        self._followers: list[Waiter] = []
        self._attachment: Optional[Attachment] = None
        if self._wake_fd < 0:
            lib.crpc_context_close(pointer)
            raise errors.SystemCallFailed("no eventfd to wake a waiting thread by", lib.CRPC_E_SYSTEM, -self._wake_fd)
        _alive.add(self)

    def _gone(self) -> CopyrpcError:
        if self._forked:
            return errors.Forked(
                "this context was opened before fork() and belongs to the parent; open one in the child", lib.CRPC_E_STALE
            )
        return errors.Closed("the context is closed", lib.CRPC_E_CLOSED)

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    # ---- Polling ----

    def _poll(self) -> bool:
        """One poll, all of it handed out. False if there was nothing."""
        arrived = self._sorted
        if arrived.left:
            self._hand_out()  # the last time an exception, of a signal handler's perhaps, came in between
        if self._lent:
            end_views(self._lent)
        self._polls += 1
        arrived.expect(self._batches)
        count = lib.copyrpc_native_poll(self._pointer, arrived.poll)
        if count == 0:
            return False
        arrived.left = True
        self._hand_out()
        return True

    def _hand_out(self) -> None:
        arrived = self._sorted
        batch = arrived.batch
        if batch is not None and arrived.poll.spans_count:
            arrived.to_batch(batch)
        pop = self._pending.pop
        for user_data, status, address, size in arrived.take_results():
            pending = pop(user_data, None)
            if pending is not None:
                pending._finish(status, address, size)
            else:
                for batch in self._batches:
                    if batch.low <= user_data < batch.high:
                        batch.take(user_data, status, address, size)
                        break
        for record in arrived.take_events():
            self._hand_out_event(record)
        self._forget_dropped()
        arrived.left = False
        self._wake_ready()

    def _keep(self, record: tuple[int, ...]) -> None:
        """For an application's array, at its next poll."""
        kind, address, size = record[0], record[7], record[8]
        viewed = size and kind != SENT and kind != RECEIVED  # those tell of the application's own memory
        self._backlog.append((COMPLETION.pack(*record), memory[address : address + size] if viewed else b""))

    def _hand_out_event(self, record: tuple[int, ...]) -> None:
        kind, flags, _, status, bits, user_data, token, _, _, _, _, endpoint_user_data = record
        if kind == RESPONSE or kind == REPLY or kind == CANCEL or kind == SENT or kind == RECEIVED:
            self._keep(record)
            return
        of_channel = flags & OF_CHANNEL
        connection: Any = (self._channels if of_channel else self._endpoints).get(bits)
        if kind == REQUEST:
            if connection is None:
                pass  # closed in the meantime
            elif endpoint_user_data & MARK:
                self._keep(record)
            else:
                connection._request(record)
        elif kind == ROOM and not of_channel:
            self._room += 1
            if self._attachment is not None:  # a thread's poll may have found it, and a coroutine's calls may wait for it
                self._attachment.schedule()
        elif kind == DEVICE:
            self._device_status = status
        elif kind == CONNECT_REQUEST:
            listener = self._listeners.get(user_data)
            if listener is not None:
                listener._connect_request(bits)
            else:
                reject = lib.crpc_channel_reject if of_channel else lib.crpc_endpoint_reject
                reject(self._pointer, {"bits": bits}, 0)
        elif connection is None:
            pass  # closed in the meantime
        elif kind == CONNECTED:
            connection._connected(status)
        elif kind == DISCONNECTED:
            connection._disconnected(status)
        elif kind == ROOM:
            connection._room()
        elif kind == RAIL:
            connection._rail(token, status)

    def _look(self) -> None:
        """A poll of who does not wait."""
        self._poll()
        if self._sleeping or self._attachment is not None:
            self._rearm()

    def _poll_array(self, completions: Any, capacity: int) -> int:
        """A poll into an application's array."""
        arrived = self._sorted
        if arrived.left:
            self._hand_out()
        if self._lent:
            end_views(self._lent)
        self._polls += 1
        arrived.expect(self._batches)
        count = lib.copyrpc_native_poll_array(self._pointer, completions, capacity, arrived.poll)
        if arrived.anything():
            arrived.left = True
            self._hand_out()
        if self._sleeping or self._attachment is not None:
            self._rearm()
        return int(count)

    # ---- Waiting ----

    def _wait(self, done: Done, deadline: Optional[int] = None) -> bool:
        """Polls, or lets another thread poll, until done() or until `deadline` of time.monotonic_ns. False if the time is over."""
        me = None
        while not done():
            if self._leader is None:
                waiter = me or Waiter(done)
                self._leader = waiter
                self._note_thread()
                try:
                    return self._lead(waiter, deadline)
                finally:
                    self._leader = None
                    self._hand_on()
            if me is None or me.woken:
                me = Waiter(done)
            if not self._follow(me, deadline):
                self._hand_on()
                return done()
        if me is not None:
            self._hand_on()
        return True

    def _wait_in_time(self, done: Done, limit_ns: int, what: str) -> None:
        """Waits for at most so long, 0 is no limit, and raises Timeout with these words."""
        if not self._wait(done, time.monotonic_ns() + limit_ns if limit_ns else None):
            raise error_of(lib.CRPC_E_TIMEOUT, what)

    def _hand_on(self) -> None:
        """This thread waits no more: another is to lead, if nobody does."""
        if self._leader is None and self._followers:
            self._followers[0].wake()
        elif self._attachment is not None:
            self._attachment.schedule()

    def _note_thread(self) -> None:
        if not self._shared and threading.get_ident() != self._owner:
            self._shared = True

    def _lead(self, me: Waiter, deadline: Optional[int]) -> bool:
        spins = 0
        while not me.done():
            busy = self._poll()
            if deadline is not None and time.monotonic_ns() >= deadline:
                return me.done()
            if self._contenders:
                self._yield_lock()
            if busy:
                spins = 0
                continue
            spins += 1
            if spins > _SPINS and self._arm():
                self._sleep(deadline)
                spins = 0
        return True

    def _yield_lock(self) -> None:
        self._lock.release()
        try:
            time.sleep(0)  # lets go of the GIL too: without it the lock could not change hands
        finally:
            self._lock.acquire()
        if self._pointer is None:
            raise self._gone()

    def _arm(self) -> bool:
        status = lib.crpc_context_arm(self._pointer)
        if status < 0 and status != AGAIN:
            raise error_of(status, "cannot wait for the device")
        return bool(status == 0)

    def _sleep(self, deadline: Optional[int]) -> None:
        """Until there is something to poll, without the lock."""
        left = _SLEEP_NS_MAX if deadline is None else max(0, min(_SLEEP_NS_MAX, deadline - time.monotonic_ns()))
        self._sleeping = True
        self._lock.release()
        try:
            lib.copyrpc_native_sleep(self._fd, self._wake_fd, left)
        finally:
            self._lock.acquire()
            self._sleeping = False
            if self._pointer is None:
                self._close_wake()
        if self._pointer is None:
            raise self._gone()

    def _follow(self, me: Waiter, deadline: Optional[int]) -> bool:
        """Sleeps until the leader wakes this thread. False if the time is over."""
        self._shared = True
        self._followers.append(me)
        left = -1.0 if deadline is None else min(threading.TIMEOUT_MAX, max(0.0, (deadline - time.monotonic_ns()) / 1e9))
        self._lock.release()
        try:
            in_time = me.lock.acquire(timeout=left)
        finally:
            self._lock.acquire()
            self._followers.remove(me)
        if self._pointer is None:
            raise self._gone()
        return in_time

    def _wake_ready(self) -> None:
        """After something was handed out: wakes the threads and coroutines that have what they waited for."""
        for waiter in self._followers:
            if waiter.done():
                waiter.wake()
        if self._sleeping and self._leader is not None and self._leader.done():
            lib.copyrpc_native_wake(self._wake_fd)
        if self._attachment is not None:
            self._attachment.wake_ready()

    def _rearm(self) -> None:
        """After ops were submitted, or a poll: sends what gathered if a sleeper is to see the rest."""
        attachment = self._attachment
        if self._sleeping:
            while not self._arm():
                self._poll()
        elif attachment is not None and self._leader is None:
            attachment.schedule()

    # ---- Ops ----

    def _wait_for_room(self, endpoint: Endpoint, seen: int, deadline: Optional[int], what: str) -> None:
        """After a submit that got CRPC_E_AGAIN."""
        if not self._wait(lambda: self._room != seen or endpoint._error is not None, deadline):
            raise error_of(lib.CRPC_E_TIMEOUT, f"{what} found no room")
        endpoint._check()

    def _submit_one(self, endpoint: Endpoint, op: tuple[Any, ...], payload: Any, deadline: Optional[int], what: str) -> None:
        """Submits one op, packed as OP, whose payload is at `payload`; waits while there is no room."""
        ops = ffi.new("crpc_op[1]")
        OP.pack_into(ffi.buffer(ops), 0, *op)
        payloads = ffi.new("void *[1]", [payload])
        while True:
            seen = self._room
            if lib.copyrpc_native_submit(self._pointer, ops, payloads, 1, self._reason) == 1:
                break
            reason = self._reason[0]
            if reason != AGAIN:
                raise error_of(reason, what)
            self._wait_for_room(endpoint, seen, deadline, what)
        self._rearm()

    def _cancel(self, endpoint_bits: int, user_data: int) -> None:
        """Ends a call. Its completion comes at the next poll, and so does the cancel's, which nobody waits for."""
        ops = ffi.new("crpc_op[1]")
        OP.pack_into(ffi.buffer(ops), 0, lib.CRPC_OP_CANCEL, 0, 0, 0, endpoint_bits, MARK | self._next_id(), MARK | user_data, 0, 0, 0, 0, 0)
        lib.crpc_submit(self._pointer, ops, 1, ffi.NULL, 0, self._reason)
        self._rearm()

    # ---- Memory of channels ----

    def _region_of(self, address: int, size: int, receiving: bool) -> int:
        """The region that memory lies in, 0 if there is none."""
        if size and self._regions:
            for region in reversed(self._regions):
                if region._covers(address, size, receiving):
                    return region.bits
        return 0

    def _unpin(self, buffers: list[Buffer]) -> None:
        """A transfer is done with them. Python may unmap their memory as soon as we let go of it, so what the library registered
        for them ends first. An array of completions is handed out at once, and then all are forgotten in one crossing."""
        if self._pointer is None:  # the context is being closed: they are the device's until it is
            self._dropped.extend(buffers)
        elif not self._keep_registered:
            self._dropped.extend(buffer for buffer in buffers if not buffer.region)
            if not self._sorted.left:
                self._forget_dropped()

    def _forget_dropped(self) -> None:
        dropped = list(self._dropped)
        if dropped:
            addresses = ffi.new("void *[]", [buffer.pinned for buffer in dropped])
            sizes = ffi.new("uint64_t[]", [len(buffer.pinned) for buffer in dropped])
            lib.copyrpc_native_forget(self._pointer, addresses, sizes, len(dropped))
            del self._dropped[: len(dropped)]

    # ---- The end ----

    def _close_wake(self) -> None:
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _close(self, lock_timeout: float = -1) -> None:
        """Takes the lock."""
        if self._pointer is None:
            return
        if not self._lock.acquire(timeout=lock_timeout):
            return
        try:
            if self._pointer is None:
                return
            if self._lent:
                end_views(self._lent)
            for reservation in list(self._reservations.values()):
                reservation._end()
            pointer, self._pointer = self._pointer, None
            _alive.discard(self)
            if self._attachment is not None:
                self._attachment.detach()
                self._attachment = None
            for endpoint in list(self._endpoints.values()):
                endpoint._lost(self._gone())
            for channel in list(self._channels.values()):
                channel._lost(self._gone())
            for pending in list(self._pending.values()):
                pending._finish(lib.CRPC_E_CLOSED, 0, 0)
            self._pending.clear()
            self._endpoints.clear()
            self._channels.clear()
            self._listeners.clear()
            lib.crpc_context_close(pointer)
            self._regions.clear()  # their memory was the device's until then
            self._dropped.clear()
            for waiter in self._followers:
                waiter.wake()
            if self._sleeping:
                lib.copyrpc_native_wake(self._wake_fd)
            else:
                self._close_wake()
        finally:
            self._lock.release()

    def _after_fork(self) -> None:
        self._pointer = None
        self._forked = True
        self._lock = threading.Lock()
        self._attachment = None


_alive: weakref.WeakSet[Pump] = weakref.WeakSet()


def _forget_in_child() -> None:
    for pump in list(_alive):
        pump._after_fork()
    _alive.clear()


def _close_at_exit() -> None:
    for pump in list(_alive):
        try:
            pump._close(lock_timeout=1.0)
        except BufferError:
            pass  # a payload is still looked at; the system takes the context down with the process


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(_close_at_exit)
