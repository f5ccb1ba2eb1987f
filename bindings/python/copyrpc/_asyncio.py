"""_asyncio.py: a context in an event loop.

The loop watches the context's descriptor. One wake-up drains everything that has come and resolves all its futures; calls that
coroutines make in one turn of the loop go out together, in one crossing, at the turn's end."""
from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ._guards import Last, fill_calls, through
from ._message import memory
from ._native import ffi, lib
from .errors import Closed, error_of

if TYPE_CHECKING:
    from ._channel import Channel
    from ._poster import Poster
    from ._pump import Done, Pump

OPS = 256


class Attachment:
    """Of one context to one loop."""

    def __init__(self, pump: Pump, loop: asyncio.AbstractEventLoop) -> None:
        self.pump = pump
        self.loop = loop
        self.thread = threading.get_ident()
        self.channels: list[Union[Channel, Poster]] = []  # that have something to send at the end of the turn
        self.outbox: dict[int, tuple[Any, ...]] = {}
        self.held: dict[int, tuple[Any, ...]] = {}  # the same, of endpoints that have no room
        self.full: set[int] = set()  # those endpoints
        self.ops = ffi.new("crpc_op[]", OPS)
        self.payloads = ffi.new("void *[]", OPS)
        self.places = (int(ffi.cast("uintptr_t", self.ops)), int(ffi.cast("uintptr_t", self.payloads)))
        self.sent: list[int] = []  # what the library was given last
        self.taken = ffi.new("int32_t *")  # how many of them it took, and the outbox has still
        self.turn = functools.partial(through, self.turn_once)
        self.scheduled = False
        self.draining = False
        self.busy = False  # after this turn comes another
        self.waiters: dict[asyncio.Future[None], Done] = {}
        self.stalled: Optional[asyncio.TimerHandle] = None
        self.room_seen = 0
        self.away = False  # a thread works on the context for a coroutine, and has the lock for long
        self.home = asyncio.Event()  # the reverse, to wait for
        self.home.set()
        self.late: list[Callable[[], Any]] = []  # what the loop has to do when the thread is done
        pump._shared = True
        loop.add_reader(pump._fd, self.turn)
        self.schedule()

    # ---- From any thread, with the lock ----

    def schedule(self) -> None:
        """Has the loop send, poll and arm soon."""
        if self.scheduled or self.draining or self.loop.is_closed():
            return
        if threading.get_ident() == self.thread:
            self.loop.call_soon(self.turn)
            self.scheduled = True  # if it is cut before this, there is a turn too many, and not one too few
        else:
            self.scheduled = True
            self.loop.call_soon_threadsafe(self.turn)

    def schedule_unlocked(self) -> None:
        """The same, without the lock."""
        if threading.get_ident() == self.thread:
            self.schedule()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.schedule)

    def wake_ready(self) -> None:
        if not self.waiters:
            return
        for future, done in list(self.waiters.items()):
            if done():
                self.resolve(future, None)
                del self.waiters[future]

    def resolve(self, future: asyncio.Future[Any], result: Any, error: Optional[BaseException] = None) -> None:
        if threading.get_ident() == self.thread:
            _resolve(future, result, error)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_resolve, future, result, error)

    def finish(self, future: asyncio.Future[bytes], status: int, address: int, size: int) -> None:
        """What comes for an Awaited and is no good answer, or comes in another thread."""
        payload: bytes = memory[address : address + size] if size else b""
        self.resolve(future, payload, None if status == 0 else error_of(status, "call", payload))

    def detach(self) -> None:
        """The context is being closed."""
        error = Closed("the context was closed", lib.CRPC_E_CLOSED)
        self.late.clear()
        self.settle()
        for box in (self.held, self.outbox):
            for user_data in list(box):
                self.fail(box, user_data, lib.CRPC_E_CLOSED)
        for future in self.waiters:
            self.resolve(future, None, error)
        self.waiters.clear()
        if not self.loop.is_closed():
            if threading.get_ident() == self.thread:
                self.loop.remove_reader(self.pump._fd)
            else:  # the descriptor will be gone by then: epoll has forgotten it, and the loop must too
                self.loop.call_soon_threadsafe(self.loop.remove_reader, self.pump._fd)

    # ---- In the loop ----

    def leave(self) -> None:
        """A thread works on the context from now on. Until come_back, the loop takes no lock, lest it has to wait for it."""
        self.away = True
        self.home.clear()
        self.loop.remove_reader(self.pump._fd)

    def come_back(self) -> None:
        """May be called again if it was cut."""
        self.away = False
        self.home.set()
        pump = self.pump
        if pump._pointer is None or pump._attachment is not self or self.loop.is_closed():
            return
        self.loop.add_reader(pump._fd, self.turn)
        while self.late:
            self.loop.call_soon(self.late[0])
            del self.late[0]
        self.schedule()

    def when_home(self, step: Callable[[], Any]) -> None:
        """Takes a step that takes the lock, now or when the thread is done."""
        if self.away:
            self.late.append(step)
        else:
            step()

    def turn_once(self) -> None:
        """Sends, drains, arms. Takes the lock. Is done again if it was cut."""
        self.scheduled = False
        pump = self.pump
        if self.away or pump._pointer is None or pump._attachment is not self:
            return
        with pump._lock:
            if pump._pointer is None:
                return
            with Last(self.end_turn):
                self.draining = self.busy = True
                if self.outbox or self.held and self.stalled is None:  # that was cut
                    self.flush()
                self.flush_channels()
                # What was resolved just now calls again, most likely: look once more after that, and arm when nothing comes.
                busy = pump._poll()
                if self.stalled is not None:
                    self.unstall()
                    busy = busy or (self.stalled is None and bool(self.outbox))
                if not busy:  # the garbage collector may have released payloads meanwhile
                    busy = bool(pump._returns) or not pump._arm()
                self.busy = busy

    def end_turn(self) -> None:
        """May be called again if it was cut."""
        self.draining = False
        if self.busy:
            self.schedule()

    def flush_channels(self) -> None:
        while self.channels:
            self.channels[-1]._flush()
            del self.channels[-1]

    def fail(self, box: dict[int, tuple[Any, ...]], user_data: int, status: int) -> None:
        """Ends a call that the library has not seen. May be called again if it was cut."""
        pending = self.pump._pending.get(user_data)
        if pending is not None:
            pending._finish(status, 0, 0)
            self.pump._pending.pop(user_data, None)
        box.pop(user_data, None)

    def settle(self) -> None:
        """What the library took is not in the outbox any more."""
        taken = self.taken[0]
        if taken > 0:
            if taken == len(self.outbox) and self.sent[taken - 1] in self.outbox:  # else it was cut behind this, and these are others
                self.outbox = {}
            else:
                for user_data in self.sent[:taken]:
                    self.outbox.pop(user_data, None)
            self.taken[0] = 0

    def flush(self) -> None:
        """Submits calls in the order in which they were made. Those of an endpoint that has no room hold up nobody else's."""
        pump = self.pump
        self.settle()  # the last flush was cut, perhaps
        if self.full:
            self.hold()
        while self.outbox:
            self.sent = fill_calls(self.outbox, *self.places, OPS)
            count = len(self.sent)
            taken = lib.copyrpc_native_submit_noted(pump._pointer, self.ops, self.payloads, count, pump._reason, self.taken)
            self.settle()
            if taken < count:
                reason = pump._reason[0]
                user_data = self.sent[max(taken, 0)]
                bits = self.outbox[user_data][0]
                if reason == lib.CRPC_E_AGAIN:
                    self.stall(bits)
                    continue
                self.fail(self.outbox, user_data, reason)

    def hold(self) -> None:
        """Sets calls of endpoints without room aside, and watches their deadlines."""
        moved = [key for key, entry in self.outbox.items() if entry[0] in self.full]
        for user_data in moved:
            self.held[user_data] = self.outbox[user_data]
            del self.outbox[user_data]
        if self.stalled is not None:
            if not moved:
                return
            self.stalled.cancel()
        deadlines = [entry[5] for entry in self.held.values() if entry[5]]
        delay = max(0.0, (min(deadlines) - time.monotonic_ns()) / 1e9) if deadlines else 3600.0
        self.stalled = self.loop.call_later(delay, through, self.expire)

    def release(self) -> None:
        """Those that were set aside are to be tried again, before what was called since."""
        if self.stalled is not None:
            self.stalled.cancel()
        self.full.clear()
        self.held.update(self.outbox)
        self.outbox, self.held = self.held, {}
        self.stalled = None  # not before this: if it was cut, it is done again as long as there is a timer

    def stall(self, bits: int) -> None:
        """An endpoint has no room: until some comes, its calls wait."""
        if not self.full:
            self.room_seen = self.pump._room
        self.full.add(bits)
        self.hold()

    def unstall(self) -> None:
        if self.pump._room != self.room_seen and self.stalled is not None:
            self.release()

    def expire(self) -> None:
        """Takes the lock."""
        if self.pump._pointer is None:
            return
        if self.away:
            self.late.append(functools.partial(through, self.expire))
            return
        with self.pump._lock:
            now = time.monotonic_ns()
            for user_data in [key for key, entry in self.held.items() if entry[5] and entry[5] <= now]:
                self.fail(self.held, user_data, lib.CRPC_E_TIMEOUT)
            self.release()
            self.schedule()

    def lost(self, bits: int, status: int) -> None:
        """An endpoint is no more. With the lock."""
        self.settle()
        for box in (self.held, self.outbox):
            for user_data in [key for key, entry in box.items() if entry[0] == bits]:
                self.fail(box, user_data, status)
        if self.stalled is not None:
            self.room_seen = -1
            self.schedule()

    def cancel(self, bits: int, user_data: int) -> None:
        """Takes the lock."""
        pump = self.pump
        if pump._pointer is None:
            return
        if self.away:
            self.late.append(functools.partial(through, self.cancel, bits, user_data))
            return
        with pump._lock:
            if pump._pointer is None:
                return
            self.settle()
            for box in (self.outbox, self.held):
                if user_data in box:
                    pump._pending.pop(user_data, None)
                    del box[user_data]
                    return
            if user_data in pump._pending:
                pump._cancel(bits, user_data)


def _resolve(future: asyncio.Future[Any], result: Any, error: Optional[BaseException]) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def attach(pump: Pump, loop: asyncio.AbstractEventLoop) -> Attachment:
    """Takes the lock."""
    with pump._use:
        attachment = pump._attachment
        if attachment is not None and attachment.loop is loop:
            return attachment
        if attachment is not None and not attachment.loop.is_closed():
            raise RuntimeError("this context is used in another event loop that is still open; a context serves one at a time")
        if attachment is not None:
            for user_data in [*attachment.held, *attachment.outbox]:  # never sent, and nobody is left to be told
                pump._pending.pop(user_data, None)
            attachment.flush_channels()
        pump._attachment = Attachment(pump, loop)
        return pump._attachment


async def ready(pump: Pump) -> Attachment:
    """The attachment to the running loop, when no thread works on the context for it. Until the next await, the lock is soon had."""
    attachment = pump._attachment
    loop = asyncio.get_running_loop()
    if attachment is None or attachment.loop is not loop or pump._pointer is None:
        attachment = attach(pump, loop)
    while attachment.away:
        await attachment.home.wait()
    return attachment


async def in_thread(pump: Pump, step: Callable[..., None], *arguments: Any) -> None:
    """Takes a step that has the lock for long, in a thread: the loop has others to serve. If the task is canceled, the step
    goes on by itself."""
    attachment = await ready(pump)

    def done(work: asyncio.Future[None]) -> None:
        through(attachment.come_back)
        if not work.cancelled():
            work.exception()  # told, if anybody still waits

    try:
        attachment.leave()
        work = attachment.loop.run_in_executor(None, step, *arguments)
    except BaseException:
        through(attachment.come_back)
        raise
    work.add_done_callback(done)
    await asyncio.shield(work)


async def wait(pump: Pump, done: Done) -> None:
    """Until done(). Raises Closed if the context is closed meanwhile."""
    while True:
        attachment = await ready(pump)
        if done():
            return
        future: asyncio.Future[None] = attachment.loop.create_future()
        forget = functools.partial(_forget_waiter, attachment, future)
        try:
            with pump._use:
                if done():
                    return
                attachment.waiters[future] = done
                attachment.schedule()
            await future
        except BaseException:  # the task was canceled: nobody waits here any more
            through(attachment.when_home, forget)
            raise


def _forget_waiter(attachment: Attachment, future: asyncio.Future[None]) -> None:
    with attachment.pump._lock:
        attachment.waiters.pop(future, None)
