"""_pump.py: the one place that polls a context, and hands completions to whom they belong.

A context belongs to one thread at a time; here that is whoever holds `_lock`, which every call of the library is made under and
nobody sleeps under. Of the threads that wait for something, one is the leader: it polls, and sleeps on the context's descriptor
with the lock let go. The others sleep each on a lock of its own, and are woken when what they wait for has come or when the
leader leaves. An event loop is one more sleeper: see _asyncio.py.

Who hands a connection over to this context holds `_visit_lock` instead, and has the lock of another context. Nobody takes any lock
under `_visit_lock`, so two that hand over to each other, or close meanwhile, do not wait for each other.

Names with an underscore that take the lock say so; all others of them are called with it held.

A signal handler may raise an exception between any two steps. The lock, and sleeping without it, are in C, where none comes. What
must not be cut in two goes `through`: it is a function that goes on where it was cut, when it is called again, and the exception
comes after it. Statements without a call among them are never cut, but by Python 3.9, which runs handlers before nearly every instruction.
There `except`, `finally` and the end of a `with` can be left out as a whole, by a second exception. So what must come at the end of a wait is a
step of an Attempt or a Last, which C does (attempt.c), and hold.c sees to it that no `with` keeps the lock."""
from __future__ import annotations

import atexit
import functools
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import errors
from ._guards import Hold, Last, Results, Tally, Use, copy_spans, through
from ._logging import LogFeed
from ._message import Message, end_views, memory
from ._native import ffi, lib
from ._records import COMPLETION, MARK, OP
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    import asyncio

    from ._arrays import Batch
    from ._asyncio import Attachment
    from ._call import Call
    from ._channel import Channel
    from ._endpoint import Endpoint
    from ._queue import BaseQueue
    from ._region import Region
    from ._request import Request
    from ._reserve import Reservation
    from ._transfer import Buffer
    from ._work_array import WorkArray

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
WORK: int = lib.CRPC_COMPLETION_WORK
SRQ_LIMIT: int = lib.CRPC_COMPLETION_SRQ_LIMIT
ABANDONED: int = lib.CRPC_COMPLETION_ABANDONED
RECONNECTING: int = lib.CRPC_COMPLETION_RECONNECTING
OF_CHANNEL: int = lib.CRPC_COMPLETION_OF_CHANNEL
OF_QUEUE: int = lib.CRPC_COMPLETION_OF_QUEUE
PLACED: int = lib.CRPC_COMPLETION_PLACED
AGAIN: int = lib.CRPC_E_AGAIN

#: In errors, the context whose `_visit` it is.
VISITED = "the context to hand over to"

CAPACITY = 1024

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
        self.renew()

    def renew(self) -> None:
        """To be woken again."""
        lock = threading.Lock()
        lock.acquire()
        self.lock = lock
        self.woken = False

    def wake(self) -> None:
        if not self.woken:
            self.woken = True
            try:
                self.lock.release()
            except RuntimeError:  # Requests.stop, which takes no lock, was quicker
                pass


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
        self.places = ffi.new("struct copyrpc_native_place[]", CAPACITY)
        self.poll.places = self.places
        places = (self.span_ids, self.spans, ffi.addressof(self.poll[0], "spans_count"))
        self.span_places: Any = tuple(int(ffi.cast("uintptr_t", place)) for place in places)
        self.results_taken = Results(int(ffi.cast("uintptr_t", self.results)))
        self.event_bytes = ffi.buffer(self.events)
        self.batch: Optional[Batch] = None
        self.events_taken = Tally()

    def expect(self, batches: list[Batch]) -> None:
        """Of several threads' batches one goes the quick way."""
        self.batch = batches[0] if batches else None
        self.poll.low, self.poll.high = (self.batch.low, self.batch.high) if self.batch is not None else (0, 0)
        self.results_taken.taken = self.events_taken.value = 0

    def to_batch(self, batch: Batch) -> None:
        copy_spans(batch, batch.results, batch.low, *self.span_places)


class Pump:
    """What a Context is beneath its public methods."""

    _pointer: Any = None
    _log_feed: Optional[LogFeed] = None

    def __init__(self, holder: Any, keep_registered: bool, queues: bool) -> None:
        self._holder = holder  # of the library's pointer, until that is closed
        pointer = holder[0]
        self._pointer = pointer
        self._keep_registered = keep_registered
        self._forked = False
        self._lock = Hold(_busy)
        self._use = Use(self._lock, pointer, self._gone)
        self._visit_lock = Hold(_busy)
        self._visit = Use(self._visit_lock, pointer, functools.partial(self._gone, VISITED))
        self._owner = threading.get_ident()
        self._shared = False  # by threads or an event loop: payloads are copied at once
        self._sorted = Sorted()
        self._put = self._sorted.events_taken.put  # an event, to where it belongs: then it is handed out
        self._reason = ffi.new("int32_t *")
        self._lent: list[Message] = []
        self._returns: deque[tuple[int, int]] = deque()  # endpoints, and payloads in their arenas that were released
        self._ids = Tally()  # in user_data with MARK
        self._pending: dict[int, Any] = {}
        self._batches: list[Batch] = []
        self._tasks: dict[int, dict[asyncio.Task[None], Request]] = {}  # of each aserve, by their id: equal ones are not the same
        self._endpoints: dict[int, Endpoint] = {}
        self._channels: dict[int, Channel] = {}
        self._queues: dict[int, BaseQueue] = {}
        self._op_room = ffi.new("crpc_queue_op[]", CAPACITY) if queues else ffi.NULL  # to change ops of arrays in
        self._works: list[WorkArray] = []  # that somebody waits for: the library's poll has them as a chain
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
            lib.copyrpc_native_close(holder)
            raise errors.SystemCallFailed("no eventfd to wake a waiting thread by", lib.CRPC_E_SYSTEM, -self._wake_fd)
        _alive.add(self)

    def _gone(self, what: str = "the context") -> CopyrpcError:
        if self._forked:
            return errors.Forked(
                "this context was opened before fork() and belongs to the parent; open one in the child", lib.CRPC_E_STALE
            )
        return errors.Closed(f"{what} is closed", lib.CRPC_E_CLOSED)

    def _next_id(self) -> int:
        self._ids.value += 1
        return self._ids.value

    # ---- Polling ----

    def _poll(self) -> bool:
        """One poll, all of it handed out. False if there was nothing."""
        if self._lent:
            if self._sorted.poll.left:  # a step failed by itself
                through(self._hand_out)
            end_views(self._lent)
        return through(self._poll_once)

    def _poll_once(self) -> bool:
        arrived = self._sorted
        if not arrived.poll.left:
            self._polls += 1
            arrived.expect(self._batches)
            if self._returns:
                self._give_back()
            if lib.copyrpc_native_poll(self._pointer, arrived.poll) == 0:
                return False
        self._hand_out()
        return True

    def _hand_out(self) -> None:
        """Goes on where it was cut."""
        arrived = self._sorted
        poll = arrived.poll
        batch = arrived.batch
        if batch is not None and poll.spans_count:
            arrived.to_batch(batch)
        pendings = self._pending
        attachment = self._attachment
        draining = attachment if attachment is not None and attachment.draining else None
        while (result := arrived.results_taken.hand_out(poll.results_count, pendings, draining)) is not None:
            user_data, status, address, size = result
            pending = pendings.get(user_data)
            if pending is not None:
                pending._finish(status, address, size)
                del pendings[user_data]
            else:
                for batch in self._batches:
                    if batch.low <= user_data < batch.high:
                        batch.take(user_data, status, address, size)
                        break
            arrived.results_taken.taken += 1
        taken = arrived.events_taken
        events = poll.events_count
        if taken.value < events:
            for record in COMPLETION.iter_unpack(arrived.event_bytes[taken.value * 64 : events * 64]):
                before = taken.value
                self._hand_out_event(record)
                taken.value = before + 1  # unless it was put somewhere, which counts it
        if self._dropped:
            self._forget_dropped()
        self._wake_ready()
        poll.left = 0

    def _keep(self, record: tuple[int, ...]) -> None:
        """For an application's array, at its next poll. The last thing that is done with the record."""
        kind, address, size = record[0], record[7], record[8]
        # Those tell of the application's own memory, and so does what was placed in its arena.
        viewed = size and kind != SENT and kind != RECEIVED and kind != WORK and not record[1] & PLACED
        self._put(self._backlog, (COMPLETION.pack(*record), memory[address : address + size] if viewed else b""))

    def _hand_out_event(self, record: tuple[int, ...]) -> None:
        kind, flags, _, status, bits, user_data, token, _, _, _, _, endpoint_user_data = record
        if kind == RESPONSE or kind == REPLY or kind == CANCEL or kind == SENT or kind == RECEIVED:
            self._keep(record)
            return
        if kind == WORK:
            if not user_data & MARK:
                self._keep(record)
            else:
                pending = self._pending.get(user_data & ~MARK)
                if pending is not None:
                    pending._arrived(record)
                    self._pending.pop(user_data & ~MARK, None)
            return
        of_call = not flags & (OF_CHANNEL | OF_QUEUE)
        connection: Any = (self._endpoints if of_call else self._channels if flags & OF_CHANNEL else self._queues).get(bits)
        if kind == REQUEST or kind == ABANDONED:
            if connection is None:
                pass  # closed in the meantime
            elif endpoint_user_data & MARK:
                self._keep(record)
            elif kind == REQUEST:
                connection._request(record)
            else:
                connection._abandoned(token, status)
        elif kind == ROOM and of_call:
            self._room += 1
            if connection is not None:
                connection._room()
            if self._attachment is not None:  # a thread's poll may have found it, and a coroutine's calls may wait for it
                self._attachment.schedule()
        else:
            self._hand_out_change(kind, flags, status, bits, user_data, token, connection)

    def _hand_out_change(self, kind: int, flags: int, status: int, bits: int, user_data: int, token: int, connection: Any) -> None:
        """What has become of a connection or a device."""
        if self._log_feed is not None:  # it may say more of this
            self._log_feed.take(self._pointer)
        if kind == DEVICE:
            self._device_status = status
        elif kind == CONNECT_REQUEST:
            listener = self._listeners.get(user_data)
            if listener is not None:
                listener._connect_request(bits)
            else:
                self._reject_unknown(flags, bits)
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
        elif kind == SRQ_LIMIT:
            connection._limit_reached()
        elif kind == RECONNECTING:
            connection._reconnecting(status)

    def _reject_unknown(self, flags: int, bits: int) -> None:
        """A peer wanted to connect to a listener that is closed by now."""
        if flags & OF_QUEUE:
            lib.crpc_queue_reject(self._pointer, {"bits": bits}, ffi.NULL, 0)
        else:
            reject = lib.crpc_channel_reject if flags & OF_CHANNEL else lib.crpc_endpoint_reject
            reject(self._pointer, {"bits": bits}, 0)

    def _chain_works(self) -> None:
        """After a change of _works: the library's poll knows the same. May be called again if it was cut."""
        following = ffi.NULL
        for works in reversed(self._works):
            works.native.next = following
            following = works.native
        self._sorted.poll.works = following

    def _cancel_abandoned(self) -> None:
        """In the loop: tasks of requests whose callers wait no more."""
        for tasks in self._tasks.values():
            for task, request in list(tasks.items()):
                if request._is_left():
                    task.cancel()

    def _give_back_soon(self, bits: int, payload: int) -> None:
        """At the next poll, for which it wakes who sleeps: the peer may wait for just this place, and sends nothing that would. From
        any thread, without the lock."""
        self._returns.append((bits, payload))
        if self._pointer is None:
            return
        if self._leader is not None:
            lib.copyrpc_native_wake(self._wake_fd)
        if self._attachment is not None:
            self._attachment.schedule_unlocked()

    def _give_back(self) -> None:
        """Whoever released a payload in an arena need not have had the lock."""
        while self._returns:
            bits, payload = self._returns[0]
            lib.crpc_arena_give_back(self._pointer, {"bits": bits}, payload)
            self._returns.popleft()  # if this is cut, it is given back again, which does no harm

    def _look(self) -> None:
        """A poll of who does not wait."""
        self._poll()
        if self._sleeping or self._attachment is not None:
            self._rearm()

    def _poll_array(self, completions: Any, capacity: int) -> int:
        """A poll into an application's array."""
        arrived = self._sorted
        if arrived.poll.left:
            through(self._hand_out)
        if self._lent:
            end_views(self._lent)
        self._polls += 1
        arrived.expect(self._batches)
        if self._returns:
            self._give_back()
        count = lib.copyrpc_native_poll_array(self._pointer, completions, capacity, arrived.poll)
        if arrived.poll.left:
            through(self._hand_out)
        if self._sleeping or self._attachment is not None:
            self._rearm()
        return int(count)

    # ---- Waiting ----

    def _wait(self, done: Done, deadline: Optional[int] = None) -> bool:
        """Polls, or lets another thread poll, until done() or until `deadline` of time.monotonic_ns. False if the time is over."""
        if done():
            return True
        me = Waiter(done)
        with Last(self._leave, me):
            while not done():
                if self._leader is None:
                    self._leader = me
                    self._note_thread()
                    return self._lead(me, deadline)
                if me.woken:
                    me.renew()
                self._follow(me, deadline)
                if deadline is not None and time.monotonic_ns() >= deadline:
                    return done()
            return True

    def _wait_in_time(self, done: Done, limit_ns: int, what: str) -> None:
        """Waits for at most so long, 0 is no limit, and raises Timeout with these words."""
        if not self._wait(done, time.monotonic_ns() + limit_ns if limit_ns else None):
            raise error_of(lib.CRPC_E_TIMEOUT, what)

    def _leave(self, me: Waiter) -> None:
        """This thread waits no more: another is to lead, if nobody does."""
        if self._leader is me:
            self._leader = None
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
            if self._lock.contenders:
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
        self._lock.let_others()
        if self._pointer is None:
            raise self._gone()

    def _arm(self) -> bool:
        if self._log_feed is not None:
            through(self._log_feed.take, self._pointer)
        status = lib.crpc_context_arm(self._pointer)
        if status < 0 and status != AGAIN:
            raise error_of(status, "cannot wait for the device")
        return bool(status == 0)

    def _sleep(self, deadline: Optional[int]) -> None:
        """Until there is something to poll, without the lock."""
        left = _SLEEP_NS_MAX if deadline is None else max(0, min(_SLEEP_NS_MAX, deadline - time.monotonic_ns()))
        with Last(self._awake):
            self._sleeping = True
            self._lock.sleep(self._fd, self._wake_fd, left)
        if self._pointer is None:
            raise self._gone()

    def _awake(self) -> None:
        self._sleeping = False
        if self._pointer is None:
            self._close_wake()

    def _follow(self, me: Waiter, deadline: Optional[int]) -> None:
        """Sleeps until the leader wakes this thread, for a while at most."""
        self._shared = True
        left = _SLEEP_NS_MAX if deadline is None else max(0, min(_SLEEP_NS_MAX, deadline - time.monotonic_ns()))
        self._lock.follow(self._followers, me, me.lock.acquire, left / 1e9)
        if self._pointer is None:
            raise self._gone()

    def _wake_ready(self) -> None:
        """After something was handed out: wakes the threads and coroutines that have what they waited for."""
        for waiter in list(self._followers):
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

    def _abandon(self, endpoint_bits: int, user_data: int, pending: Any) -> None:
        """An exception such as KeyboardInterrupt has ended a call, and nobody will take the answer. It may have come before the
        library had the call, or behind that. Goes on where it was cut."""
        if self._pointer is not None and self._pending.get(user_data) is pending:
            self._cancel(endpoint_bits, user_data)
            self._pending.pop(user_data, None)

    def _abandon_call(self, call: Call) -> None:
        self._abandon(call._endpoint._bits, call._id, call)

    def _give_up(self, call: Call) -> None:
        """Takes the lock."""
        with self._lock:
            self._abandon_call(call)

    # ---- Memory of channels ----

    def _region_of(self, address: int, size: int, receiving: bool) -> int:
        """The region that memory lies in, 0 if there is none."""
        if size and self._regions:
            for region in reversed(self._regions):
                if region._covers(address, size, receiving):
                    return region.bits
        return 0

    def _region_for(self, address: int, size: int, access: int) -> Optional[Region]:
        """The region that memory of a queue's op lies in."""
        for region in reversed(self._regions):
            if region._contains(address, size, access):
                return region
        return None

    def _unpin(self, buffers: list[Buffer]) -> None:
        """A transfer is done with them. Python may unmap their memory as soon as we let go of it, so what the library registered
        for them ends first. An array of completions is handed out at once, and then all are forgotten in one crossing."""
        if self._pointer is None:  # the context is being closed: they are the device's until it is
            self._dropped.extend(buffers)
        elif not self._keep_registered:
            self._dropped.extend(buffer for buffer in buffers if not buffer.region)
            if not self._sorted.poll.left:
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
            fd, self._wake_fd = self._wake_fd, -1
            os.close(fd)

    def _close(self, lock_timeout: float = -1) -> None:
        """Takes the lock."""
        if self._pointer is None:
            return
        if lock_timeout < 0:
            with self._lock:
                self._close_held()
        elif self._lock.acquire(lock_timeout):
            try:
                self._close_held()
            finally:
                self._lock.__exit__()
        if self._log_feed is not None and self._pointer is None and lock_timeout != 0:  # else the garbage collector waits
            self._log_feed.finish()

    def _close_held(self) -> None:
        if self._pointer is not None:
            if self._lent:
                end_views(self._lent)
            for reservation in list(self._reservations.values()):
                reservation._end()
            self._pointer = self._use.pointer = None
            through(self._end)

    def _end(self) -> None:
        """Goes on where it was cut."""
        _alive.discard(self)
        with self._visit_lock:  # who hands over to this context has the pointer still
            self._visit.pointer = None
        if self._attachment is not None:
            self._attachment.detach()
            self._attachment = None
        for endpoint in list(self._endpoints.values()):
            endpoint._lost(self._gone())
        for connection in (*self._channels.values(), *self._queues.values()):
            connection._lost(self._gone())
        for pending in list(self._pending.values()):
            pending._finish(lib.CRPC_E_CLOSED, 0, 0)
        self._pending.clear()
        self._endpoints.clear()
        self._channels.clear()
        self._queues.clear()
        self._listeners.clear()
        if self._log_feed is not None and self._holder[0]:
            self._log_feed.take(self._holder[0], all_of_it=True)
            self._log_feed.end()
        lib.copyrpc_native_close(self._holder)
        while self._regions:  # their memory was the device's until then
            self._regions[-1]._let_go()
            del self._regions[-1]
        self._dropped.clear()
        for waiter in list(self._followers):
            waiter.wake()
        if self._sleeping:
            lib.copyrpc_native_wake(self._wake_fd)
        else:
            self._close_wake()

    def _after_fork(self) -> None:
        self._pointer = self._use.pointer = self._visit.pointer = None
        self._forked = True
        self._lock.renew()
        self._attachment = None


def _busy() -> CopyrpcError:
    return errors.InvalidArgument(
        "this thread is using the context already: a signal handler may call nothing but stop()", lib.CRPC_E_STATE
    )


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
