"""_request.py: requests of a peer, and the queue in which they wait for the application."""
from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Literal, Optional, Union

from . import _asyncio
from ._call import Call
from ._drain import Drain, drop_not_started
from ._guards import Attempt, take, through
from ._message import Message
from ._native import ffi, lib
from ._options import choice, number, pin, timeout_ns
from ._records import MARK
from ._region import RegionSlice, payload_of
from ._reserve import ReplyReservation, reserve
from ._status import Status
from ._trace import Trace, trace_of_request
from .errors import Closed, CopyrpcError, Disconnected, RemoteError, error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._endpoint import Endpoint
    from ._pump import Pump

    Payload = Union[Buffer, RegionSlice]
    Answer = Union[Buffer, RegionSlice, None]
    Handler = Callable[["Request"], Answer]
    AsyncHandler = Callable[["Request"], Union[Awaitable[Answer], Answer]]

REPLY: int = lib.CRPC_OP_REPLY
DROP: int = lib.CRPC_OP_DROP
#: Instead of a token: the connection has ended, and the endpoint has another one, or none.
LOST = -1
#: What the library says to an answer for such a connection.
_GONE = (lib.CRPC_E_STALE, lib.CRPC_E_DISCONNECTED)
QUIET: int = lib.CRPC_OP_QUIET
AFTER: int = lib.CRPC_OP_AFTER

_log = logging.getLogger("copyrpc")


class Request(Message):
    """A request of the peer. Answer it with reply() or drop()."""

    __slots__ = ("endpoint", "method", "reply_bytes_max", "_token", "_outcome", "_deadline_ns", "_trace")

    def __init__(self, endpoint: Endpoint, record: tuple[int, ...], *, stays: bool = False) -> None:
        super().__init__(endpoint._pump, record[7], record[8], stays=stays)
        self.endpoint: Endpoint = endpoint
        self.method = record[2]
        self.reply_bytes_max = record[9]
        self._token = record[6]
        self._outcome: Optional[int] = None  # once it is answered: a status of an answer, or CRPC_E_* that its caller gets
        self._deadline_ns = time.monotonic_ns() + record[5] if record[5] else 0

    @property
    def answered(self) -> bool:
        return self._outcome is not None

    @property
    def deadline(self) -> Optional[float]:
        """When its caller waits no more, as a time of time.monotonic(); None: it did not say."""
        return self._deadline_ns / 1e9 if self._deadline_ns else None

    @property
    def abandoned(self) -> bool:
        """Tells whether its caller waits no more: it has canceled its call, or its deadline has passed; or the connection has
        ended. Tasks of aserve are canceled when one of these is told. A handler of serve can look now and then, as it is told only while somebody
        polls the context. An answer is still due, but nobody sees it."""
        return (
            self._token in self.endpoint._left
            or self._token == LOST
            or self.endpoint._error is not None
            or (self._deadline_ns != 0 and time.monotonic_ns() >= self._deadline_ns)
        )

    @property
    def trace(self) -> Optional[Trace]:
        """The trace that the call belongs to, if its caller has sent one. The library knows it as long as the request is open. What was
        looked at before the answer stays; who looks only then gets None."""
        try:
            return self._trace
        except AttributeError:  # nobody has looked: who does not must not pay
            pass
        self._trace: Optional[Trace] = self._read_trace()
        return self._trace

    def _read_trace(self) -> Optional[Trace]:
        if self._outcome is not None or self._pump._pointer is None:
            return None
        with self._pump._use as pointer:
            return None if self._token == LOST else trace_of_request(pointer, self.endpoint._bits, self._token)

    def _is_left(self) -> bool:
        """Tells whether its handler is to be canceled. Not for a deadline that has passed by this side's clock: its caller might not know
        that yet, and what it heard first would be that the request was dropped. It tells when it knows."""
        if self._outcome is not None:  # what goes on behind its answer is for no caller
            return self._token == LOST
        return self._token in self.endpoint._left or self.endpoint._error is not None

    def _useless(self) -> bool:
        """Tells whether it was abandoned, as far as that is known; the clock is looked at only if somebody has left."""
        return self._token == LOST or (bool(self.endpoint._left) and self.abandoned)

    def _lose(self) -> None:
        """The connection that it came by has ended, and the endpoint goes on. Nobody waits for an answer, and none is due."""
        if self._outcome is None:
            self._outcome = lib.CRPC_E_CANCELED
            self._token = LOST

    def _lost_by(self, error: CopyrpcError, what: str) -> CopyrpcError:
        """The library has refused an answer. Returns what to raise: the connection may have ended before anybody has polled that."""
        if self.endpoint._lasting is None or error.status not in _GONE or self.endpoint._error is not None:
            return error
        self._lose()
        return self._gone(what)

    def _gone(self, what: str) -> CopyrpcError:
        return error_of(lib.CRPC_E_DISCONNECTED, f"{what}: this request came by a connection that has ended")

    def _check_open(self, what: str) -> None:
        if self._outcome is not None:
            raise self._gone(what) if self._token == LOST else error_of(lib.CRPC_E_STALE, f"{what}: this request was answered before")
        if self.endpoint._error is not None:
            raise self.endpoint._error_again()

    def _answer(self, opcode: int, status: int, payload: Any, size: int, what: str, flags: int = QUIET) -> None:
        with self._pump._use:
            self._answer_held(opcode, status, payload, size, what, flags)

    def _answer_held(self, opcode: int, status: int, payload: Any, size: int, what: str, flags: int) -> None:
        """Called with the lock held."""
        self._check_open(what)
        op = (opcode, flags, 0, status, self.endpoint._bits, 0, self._token, 0, size, 0, 0, 0)
        try:
            self._pump._submit_one(self.endpoint, op, payload, None, what)
        except CopyrpcError as error:
            raise self._lost_by(error, what) from None
        self._note_answered(lib.CRPC_E_DROPPED if opcode == DROP and status == 0 else status)

    def _note_answered(self, outcome: int) -> None:
        self._outcome = outcome
        self.endpoint._left.pop(self._token, None)

    def _drop_not_started(self) -> None:
        """Nothing was done of it: an answer is due, if its peer is still there. Called with the lock held."""
        if self._outcome is None and self.endpoint._error is None:
            try:
                self._answer_held(DROP, lib.CRPC_E_NOT_STARTED, ffi.NULL, 0, "drop", QUIET)
            except CopyrpcError:
                pass  # its peer has gone meanwhile

    def _reply_from(self, payload: RegionSlice, status: int, after: bool) -> Call:
        """Answers with a part of a region. The Call ends when it may change."""
        self._check_size(len(payload))
        pump = self._pump
        pinned, size, flags, offset, region = payload_of(payload, pump, "a reply")
        if after:
            raise error_of(lib.CRPC_E_INVALID, "reply: a payload in a region does not go with `after`")
        sent = Call(self.endpoint)
        with pump._use:
            self._check_open("reply")
            sent._id = pump._next_id()
            pump._pending[sent._id] = sent
            op = (REPLY, flags, 0, status, self.endpoint._bits, MARK | sent._id, self._token, offset, size, 0, 0, region)
            try:
                pump._submit_one(self.endpoint, op, pinned, None, "reply")
                self._note_answered(status)
            except CopyrpcError as error:
                pump._pending.pop(sent._id, None)
                raise self._lost_by(error, "reply") from None
            except BaseException:
                if self._outcome is None:
                    pump._pending.pop(sent._id, None)
                raise
        return sent

    @staticmethod
    def _check_sent(sent: Call) -> None:
        if sent._status:
            raise error_of(sent._status, "reply")

    def reply(self, payload: Payload = b"", status: int = 0, *, after: bool = False) -> None:
        """Answers the request. A status above 0 is an error of the application: the caller gets a
        RemoteError. With `after`, the answer is sent when all ops of the lane that were posted before it have
        completed, as in Endpoint.call. If the payload is a part of a region, `region[a:b]`, the device reads
        it there, and this returns when it has: then the memory may change."""
        number(status, "a reply's status", 0, 0x7FFFFFFF)
        if isinstance(payload, RegionSlice):
            sent = self._reply_from(payload, status, after)
            with self._pump._use:
                self._pump._wait(sent.done)
            self._check_sent(sent)
            return
        pinned = pin(payload, "a reply")
        self._check_size(len(pinned))
        self._answer(REPLY, status, pinned, len(pinned), "reply", QUIET | AFTER if after else QUIET)

    async def areply(self, payload: Payload = b"", status: int = 0, *, after: bool = False) -> None:
        """Does the same as reply, for coroutines. `after` also means ops that coroutines have begun before."""
        await _asyncio.ready(self._pump)
        if after:
            await self.endpoint._poured()
        if isinstance(payload, RegionSlice):
            number(status, "a reply's status", 0, 0x7FFFFFFF)
            sent = self._reply_from(payload, status, after)
            await _asyncio.wait(self._pump, sent.done)
            self._check_sent(sent)
        else:
            self.reply(payload, status, after=after)

    def _check_size(self, size: int) -> None:
        if size > self.reply_bytes_max:
            raise error_of(
                lib.CRPC_E_TOO_BIG, f"the reply has {size} bytes and its caller takes {self.reply_bytes_max} (its reply_bytes_max)"
            )

    def reserve(self, payload_bytes: int, status: int = 0) -> ReplyReservation:
        """Reserves room for a reply that is written in place: `with request.reserve(4096) as room:
        room.memory[:] = ...; room.commit()`. Until then the connection accepts nothing else."""
        number(status, "a reply's status", 0, 0x7FFFFFFF)
        size = number(payload_bytes, "payload_bytes", 0, 0xFFFFFFFF)
        self._check_size(size)
        if self._outcome is not None:
            self._check_open("reserve")
        try:
            return reserve(ReplyReservation(self, (REPLY, QUIET, 0, status, self.endpoint._bits, 0, self._token, 0, size, 0, 0, 0)))
        except CopyrpcError as error:
            raise self._lost_by(error, "reserve") from None

    def drop(self, *, not_started: bool = False) -> None:
        """Drops the request without an answer: the caller gets Dropped. With `not_started` it gets NotStarted: nothing was done
        of the request, and it can be sent again, here or elsewhere."""
        self._answer(DROP, lib.CRPC_E_NOT_STARTED if not_started else 0, ffi.NULL, 0, "drop")

    def _fail(self, error: Exception) -> None:
        """A handler raised this. Answers with it, if an answer is still possible. Logs the
        traceback, which nobody else would see, unless the handler meant the error for the peer or
        failed only because this peer has gone."""
        gone = self._pump._pointer is None or self.endpoint._error is not None or self._token == LOST
        if isinstance(error, RemoteError):
            status, payload = error.status, error.payload
        else:
            status, payload = Status.UNKNOWN, f"{type(error).__name__}: {error}".encode("utf-8", "replace")
            if not (gone and isinstance(error, Disconnected)):
                _log.error("the handler of a request failed (method %d, from %s)", self.method, self.endpoint, exc_info=error)
        if self._outcome is None and not gone:
            self._refuse(status, payload)

    def _refuse(self, status: int, payload: bytes) -> None:
        """Answers with an error, as much of it as the caller takes."""
        try:
            self.reply(payload[: self.reply_bytes_max], status)
        except CopyrpcError:
            pass  # the peer has gone, and will not miss it

    def _let_go(self) -> None:
        """An exception ends what was done with the request. May be called again if it was cut."""
        self.__exit__(_Cut, _cut, None)

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """If the block did not answer the request, answers it: with the exception that ended the
        block, or by dropping it."""
        if self._outcome is None and self._pump._pointer is not None and self.endpoint._error is None:
            try:
                if isinstance(value, Exception):
                    self._fail(value)
                else:
                    self.drop()
            except (CopyrpcError, BufferError):  # the exception that ends the block tells more than this one
                if value is None and self._token != LOST:
                    raise
        super().__exit__(kind, value, trace)


class PlacedRequest(Request):
    """A request whose payload lies in the arena that its endpoint has lent: see Endpoint.lend. It stays there, whatever is
    polled, until the request is released."""

    __slots__ = ("_arena", "_memory", "_returned")

    def __init__(self, endpoint: Endpoint, record: tuple[int, ...], arena: RegionSlice) -> None:
        super().__init__(endpoint, record, stays=True)
        self._arena = arena
        self._memory = arena.region._memory  # pinned as long as it is looked at; None: a dma-buf, where nobody can
        self._returned = False

    @property
    def place(self) -> RegionSlice:
        """Where the payload is."""
        first = self._address - self._arena.address
        return self._arena[first : first + self._bytes]

    @property
    def payload(self) -> memoryview:
        if self._memory is None:
            raise error_of(lib.CRPC_E_UNSUPPORTED, "the payload is in another device's memory: see request.place")
        return super().payload

    def release(self) -> None:
        super().release()
        self._give_back()

    def _give_back(self) -> None:
        if not self._returned:
            self._returned = True
            if self._token == LOST:  # the arena was lent for a connection that has ended
                return
            self._pump._give_back_soon(self.endpoint._bits, self._address)

    def __del__(self) -> None:
        if not self._returned and self._end_view():  # else the memory is still looked at
            self._give_back()


class _Cut(BaseException):
    """Stands for an exception that is no error of the handler's."""


_cut = _Cut()


class Requests:
    """A queue of requests, which a listener or an endpoint has."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._queue: deque[Request] = deque()
        self._stopped = False
        self._grace: Optional[float] = None  # of stop()
        #: Requests that aserve(overload="refuse") has answered with Status.RESOURCE_EXHAUSTED.
        self.overloaded = 0

    def _over(self) -> bool:
        """Tells whether no more requests can come."""
        raise NotImplementedError

    def _drained(self) -> list[Endpoint]:
        """Takes no more connections. Returns those that are to be disconnected."""
        raise NotImplementedError

    def _ready(self) -> bool:
        return bool(self._queue) or self._stopped or self._over()

    def _take(self, held: list[Request]) -> Optional[Request]:
        """The next request, which is also put in `held`, in the same step. Called with the lock held."""
        while self._queue and not self._stopped:
            request = take(self._queue, held)
            if request.endpoint._error is None and not request._useless():
                return request
            request._drop_not_started()
            request._outcome = lib.CRPC_E_NOT_STARTED
            held.remove(request)
            request.release()
        return None

    def _put_back(self, held: list[Request]) -> None:
        """An exception came before anybody had these."""
        while held:
            if not self._queue or self._queue[0] is not held[-1]:  # else it was cut just behind this
                self._queue.appendleft(held[-1])
            del held[-1]

    def _ended(self) -> bool:
        """Tells whether to return None. stop() causes that once."""
        if self._stopped or self._over():
            self._stopped = False
            return True
        return False

    def receive(self, timeout: Optional[float] = None) -> Optional[Request]:
        """Waits for the next request. Returns None when no more can come: after stop() or close(),
        or when the peer has disconnected. Requests whose callers wait no more are skipped."""
        limit = timeout_ns(timeout)
        deadline = time.monotonic_ns() + limit if limit else None
        held: list[Request] = []
        try:
            while True:
                with Attempt(self._pump._use, self._put_back, held):
                    if not self._ready() and not self._pump._wait(self._ready, deadline):
                        raise error_of(lib.CRPC_E_TIMEOUT, "no request came")
                    request = self._take(held)
                    if request is not None or self._ended():
                        return request
        except BaseException:
            if held:  # it was cut behind that block
                through(self._put_back, held)
            raise

    def stop(self, grace: Optional[float] = None) -> None:
        """Makes serve() return, or receive() return None, once. May be called from another thread
        or from a signal handler. With `grace`, serve() and aserve() end the service before they return: no more connections are
        accepted; handlers that run may finish, those of aserve in at most so many seconds; requests that have not begun are dropped as
        not started, so that their callers can send them again elsewhere. The connections take leave at once, and end when all is answered."""
        if grace is not None:
            if not isinstance(grace, (int, float)) or not 0 <= grace < float("inf"):
                raise ValueError(f"the grace is a number of seconds, not {grace!r}")
            self._grace = float(grace)
        self._stopped = True
        pump = self._pump
        if pump._pointer is not None:
            lib.copyrpc_native_wake(pump._wake_fd)  # no lock: a signal handler may have interrupted who holds it
            for waiter in list(pump._followers):
                waiter.wake()
            if pump._attachment is not None and not pump._attachment.loop.is_closed():
                pump._attachment.loop.call_soon_threadsafe(pump._attachment.wake_ready)

    def _take_grace(self) -> float:
        grace, self._grace = self._grace, None
        return grace or 0.0

    def serve(self, handler: Handler) -> None:
        """Answers requests one after the other until no more can come. The handler returns the
        reply's payload; None is an empty one. The text of an exception in the handler goes to the
        caller as a RemoteError, its traceback to the logger "copyrpc". BaseExceptions such as
        KeyboardInterrupt end serve()."""
        if not callable(handler):
            raise TypeError(f"a handler is a function that takes a Request, not {type(handler).__name__}")
        while True:
            try:
                request = self.receive()
            except Closed:
                if self._pump._pointer is None and not self._pump._forked:
                    return
                raise
            if request is None:
                if self._grace is not None:
                    Drain(self, self._take_grace()).run()
                return
            try:
                try:
                    answer = handler(request)
                    if request._outcome is None:
                        request.reply(b"" if answer is None else answer)
                except Exception as error:
                    request._fail(error)
                answer = None  # may look at the request's payload
                request.__exit__(None, None, None)
            except BaseException:
                answer = None
                through(request._let_go)
                raise

    def __aiter__(self) -> AsyncIterator[Request]:
        return self._requests()

    async def _requests(self) -> AsyncIterator[Request]:
        while True:
            request = await self.areceive()
            if request is None:
                return
            yield request

    async def areceive(self) -> Optional[Request]:
        """Does the same as receive, for coroutines."""
        while True:
            try:
                await _asyncio.wait(self._pump, self._ready)
            except Closed:
                if self._pump._pointer is None and not self._pump._forked:
                    return None
                raise
            held: list[Request] = []
            try:
                with self._pump._use:
                    request = self._take(held)
                    if request is not None or self._ended():
                        return request
            except BaseException:
                if held:
                    through(self._put_back, held)
                raise

    async def aserve(self, handler: AsyncHandler, *, requests_max: int = 1024, overload: Literal["wait", "refuse"] = "wait") -> None:
        """Does the same as serve, for coroutines. Each request gets a task of its own. At most
        `requests_max` tasks run at once. Other requests wait in the queue; with overload="refuse",
        they are answered with Status.RESOURCE_EXHAUSTED at once, without a task, and counted in
        `overloaded`. The task of a request whose caller waits no more is canceled. When aserve ends, it
        cancels the tasks that still run, and waits until they have ended; see stop()."""
        number(requests_max, "requests_max", 1, 0xFFFFFFFF)
        refuse = choice(overload, "overload", {"wait": 0, "refuse": 1})
        tasks: dict[asyncio.Task[None], Request] = {}

        def has_room() -> bool:
            return len(tasks) < requests_max or self._stopped or self._over()

        def ended(task: asyncio.Task[None]) -> None:
            full = len(tasks) >= requests_max
            request = tasks.pop(task)
            if request._outcome is None:  # it was canceled before it began
                through(drop_not_started, request)
            if full and self._pump._pointer is not None and self._pump._attachment is not None:
                self._pump._attachment.when_home(wake_ready)

        def wake_ready() -> None:
            if self._pump._pointer is not None:
                with self._pump._use:
                    self._pump._wake_ready()

        self._pump._tasks[id(tasks)] = tasks
        try:
            while True:
                if len(tasks) >= requests_max and not refuse:
                    await _asyncio.wait(self._pump, has_room)
                request = await self.areceive()
                if request is None:
                    if self._grace is not None:
                        await Drain(self, self._take_grace()).arun(list(tasks))
                    return
                if len(tasks) >= requests_max and refuse:
                    await self._overload(request)
                    continue
                task = asyncio.ensure_future(self._answer_by(handler, request))
                tasks[task] = request
                task.add_done_callback(ended)
        except Closed:
            if self._pump._pointer is not None or self._pump._forked:
                raise
        finally:
            running = list(tasks)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            del self._pump._tasks[id(tasks)]

    async def _overload(self, request: Request) -> None:
        """Answers a request that would be one too many."""
        self.overloaded += 1
        with request:
            await _asyncio.ready(self._pump)
            request._refuse(Status.RESOURCE_EXHAUSTED, b"the server has as many requests open as it takes: try again later")

    async def _answer_by(self, handler: AsyncHandler, request: Request) -> None:
        with request:
            try:
                answer: Any = handler(request)
                if hasattr(answer, "__await__"):
                    answer = await answer
                if request._outcome is None:
                    await _asyncio.ready(self._pump)
                    request.reply(b"" if answer is None else answer)
            except Exception as error:
                if request._outcome is None and self._pump._pointer is not None:
                    await _asyncio.ready(self._pump)
                request._fail(error)
            answer = None
