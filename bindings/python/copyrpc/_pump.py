"""_pump.py: the one place that polls a context, and hands completions to whom they belong.

A context belongs to one thread at a time; here that is whoever holds `_lock`, which every call of the library is made under and
nobody sleeps under. Of the threads that wait for something, one is the leader: it polls, and sleeps on the context's descriptor
with the lock let go. The others sleep each on a lock of its own, and are woken when what they wait for has come or when the
leader leaves. An event loop is one more sleeper: see _asyncio.py.

Names with an underscore that take the lock say so; all others of them are called with it held."""
from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from . import errors
from ._message import Message, end_views, memory
from ._native import ffi, lib
from ._records import COMPLETION, OP
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    from ._arrays import Batch
    from ._asyncio import Attachment
    from ._endpoint import Endpoint
    from ._listener import Listener

MARK: int = lib.COPYRPC_NATIVE_MARK
RESPONSE: int = lib.CRPC_COMPLETION_RESPONSE
REPLY: int = lib.CRPC_COMPLETION_REPLY
CANCEL: int = lib.CRPC_COMPLETION_CANCEL
REQUEST: int = lib.CRPC_COMPLETION_REQUEST
CONNECT_REQUEST: int = lib.CRPC_COMPLETION_CONNECT_REQUEST
CONNECTED: int = lib.CRPC_COMPLETION_CONNECTED
DISCONNECTED: int = lib.CRPC_COMPLETION_DISCONNECTED
ROOM: int = lib.CRPC_COMPLETION_ROOM
DEVICE: int = lib.CRPC_COMPLETION_DEVICE
AGAIN: int = lib.CRPC_E_AGAIN

CAPACITY = 1024
_NO_RESULTS: list[Any] = []

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
        pump._lock.acquire()
        if pump._pointer is None:
            pump._lock.release()
            raise pump._gone()
        return pump._pointer

    def __exit__(self, *ignored: object) -> None:
        self.pump._lock.release()


class Pump:
    """What a Context is beneath its public methods."""

    def __init__(self, pointer: Any) -> None:
        self._pointer: Any = pointer
        self._forked = False
        self._lock = threading.Lock()
        self._use = Use(self)
        self._owner = threading.get_ident()
        self._shared = False  # by threads or an event loop: payloads are copied at once
        self._completions = ffi.new("crpc_completion[]", CAPACITY)
        self._completion_bytes = ffi.buffer(self._completions)
        self._others: Any = None  # of _poll_array
        self._other_count = ffi.new("uint32_t *")
        self._reason = ffi.new("int32_t *")
        self._records: Optional[Iterator[tuple[int, ...]]] = None  # polled, and not yet handed out
        self._lent: list[Message] = []
        self._ids = MARK
        self._pending: dict[int, Any] = {}
        self._batches: list[Batch] = []
        self._endpoints: dict[int, Endpoint] = {}
        self._listeners: dict[int, Listener] = {}
        self._regions: list[Any] = []
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
        records = self._records
        if records is None:
            if self._lent:
                end_views(self._lent)
            self._polls += 1
            count = lib.crpc_poll(self._pointer, self._completions, CAPACITY)
            if count == 0:
                return False
            records = self._records = COMPLETION.iter_unpack(self._completion_bytes[: count * 64])
        self._hand_out(records)  # an exception of a signal handler's may leave some for the next time
        self._records = None
        self._wake_ready()
        return True

    def _hand_out(self, records: Iterator[tuple[int, ...]]) -> None:
        pop = self._pending.pop
        batch = self._batches[0] if self._batches else None  # of several threads' batches the others take the slow way
        low, high, results = (batch.low, batch.high, batch.results) if batch is not None else (0, 0, _NO_RESULTS)
        for record in records:
            kind, _, _, status, _, user_data, _, address, size, _, _, _ = record
            if kind == RESPONSE and low <= user_data < high and status == 0:
                results[user_data - low] = memory[address : address + size]
                batch.left -= 1  # type: ignore[union-attr]
            elif kind == RESPONSE or kind == REPLY or kind == CANCEL:
                pending = pop(user_data, None)
                if pending is not None:
                    pending._finish(status, address, size)
                elif user_data < MARK:
                    self._keep(record)
                else:
                    for batch_of in self._batches:
                        if batch_of.low <= user_data < batch_of.high:
                            batch_of.take(user_data, status, address, size)
                            break
            else:
                self._hand_out_event(record)

    def _keep(self, record: tuple[int, ...]) -> None:
        """For an application's array, at its next poll."""
        address, size = record[7], record[8]
        self._backlog.append((COMPLETION.pack(*record), memory[address : address + size] if size else b""))

    def _hand_out_event(self, record: tuple[int, ...]) -> None:
        kind, _, _, status, bits, user_data, _, _, _, _, _, endpoint_user_data = record
        if kind == ROOM:
            self._room += 1
            return
        if kind == DEVICE:
            self._device_status = status
            return
        if kind == CONNECT_REQUEST:
            listener = self._listeners.get(user_data)
            if listener is not None:
                listener._connect_request(bits)
            else:
                lib.crpc_endpoint_reject(self._pointer, {"bits": bits}, 0)
            return
        endpoint = self._endpoints.get(bits)
        if endpoint is None:
            return  # closed in the meantime
        if kind == REQUEST:
            if endpoint_user_data & MARK:
                self._keep(record)
            else:
                endpoint._request(record)
        elif kind == CONNECTED:
            endpoint._connected(status)
        elif kind == DISCONNECTED:
            endpoint._disconnected(status)

    def _poll_array(self, completions: Any, capacity: int) -> int:
        """A poll into an application's array."""
        if self._records is not None:
            self._hand_out(self._records)
            self._records = None
        if self._lent:
            end_views(self._lent)
        if self._others is None or len(self._others) < capacity:
            self._others = ffi.new("crpc_completion[]", capacity)
        self._polls += 1
        count = lib.copyrpc_native_poll_array(self._pointer, completions, capacity, self._others, self._other_count)
        others = self._other_count[0]
        if others:
            self._records = COMPLETION.iter_unpack(ffi.buffer(self._others)[: others * 64])
            self._hand_out(self._records)
            self._records = None
            self._wake_ready()
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
            if self._poll():
                spins = 0
                continue
            if deadline is not None and time.monotonic_ns() >= deadline:
                return False
            spins += 1
            if spins > _SPINS and self._arm():
                self._sleep(deadline)
                spins = 0
        return True

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
        left = -1.0 if deadline is None else max(0.0, (deadline - time.monotonic_ns()) / 1e9)
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
        OP.pack_into(ffi.buffer(ops), 0, lib.CRPC_OP_CANCEL, 0, 0, 0, endpoint_bits, self._next_id(), user_data, 0, 0, 0, 0, 0)
        lib.crpc_submit(self._pointer, ops, 1, ffi.NULL, 0, self._reason)
        self._rearm()

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
            pointer, self._pointer = self._pointer, None
            _alive.discard(self)
            if self._attachment is not None:
                self._attachment.detach()
                self._attachment = None
            for endpoint in list(self._endpoints.values()):
                endpoint._lost(self._gone())
            for pending in list(self._pending.values()):
                pending._finish(lib.CRPC_E_CLOSED, 0, 0)
            self._pending.clear()
            self._endpoints.clear()
            self._listeners.clear()
            self._regions.clear()
            lib.crpc_context_close(pointer)
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
