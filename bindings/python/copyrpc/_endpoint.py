"""_endpoint.py: one connection to one peer: calls, and requests of the peer."""
from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterable, Iterator, Literal, Optional, Union, overload

from . import _asyncio
from . import _options as options_module
from ._call import Call
from ._guards import Attempt, Awaited, through
from ._lane import Lane
from ._lasting import ConnectionEvent, Lasting
from ._message import Reply
from ._native import lib
from ._options import EndpointInfo, EndpointOptions, Stats, number, sized, timeout_ns
from ._records import MARK
from ._region import RegionSlice, held_payload_of, payload_of
from ._request import PlacedRequest, Request, Requests
from ._reserve import CallReservation, areserve, reserve
from ._text import read_text
from .errors import CopyrpcError, Timeout, check, error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._context import Context
    from ._listener import Listener

    Payload = Union[Buffer, RegionSlice]

CALL: int = lib.CRPC_OP_CALL
AFTER: int = lib.CRPC_OP_AFTER
IDEMPOTENT: int = lib.CRPC_OP_IDEMPOTENT
PLACED: int = lib.CRPC_COMPLETION_PLACED
SIZE_MAX = 0xFFFFFFFF


def _flags(after: bool, idempotent: bool) -> int:
    return (AFTER if after else 0) | (IDEMPOTENT if idempotent else 0)


class Endpoint(Lane, Requests):
    """A connection for calls, made by Context.connect or a Listener; and for one-sided ops, if both sides have
    EndpointOptions.lane."""

    _kind = "crpc_endpoint"

    def __init__(self, context: Context, bits: int, options: EndpointOptions, listener: Optional[Listener] = None) -> None:
        Requests.__init__(self, context)
        self._begin(context, bits)
        self._options = options
        self._listener = listener
        self._arena: Optional[RegionSlice] = None  # which the peer was lent
        self._left: dict[int, int] = {}  # requests that are open, and whose callers wait no more: why
        self._lasting = Lasting() if options.reconnect else None
        self._target = ""  # the address that it was asked to connect to
        self._described: dict[str, dict[str, Any]] = {}  # what opentelemetry.py says of the connection of now
        context._endpoints[bits] = self

    # ---- Events, with the lock ----

    def _connected(self, status: int) -> None:
        super()._connected(status)
        self._described.clear()
        if self._up and self._listener is not None:
            self._listener.endpoints.add(self)
        if self._lasting is not None:
            self._lasting.error = None
            self._pump._put(self._lasting.events, ConnectionEvent(True, None))

    def _reconnecting(self, status: int) -> None:
        """Goes on where it was cut."""
        assert self._lasting is not None
        event = self._lasting.lose(self, status)
        self._cancel_tasks()
        self._pump._put(self._lasting.events, event)

    def _in_use(self) -> bool:
        return self._bits in self._pump._reservations  # whose memory is the ring's: it ends first

    def _end_uses(self) -> None:
        if self._in_use():
            self._pump._reservations[self._bits]._end()

    def _lost(self, error: CopyrpcError) -> None:
        super()._lost(error)
        pump = self._pump
        if pump._attachment is not None:
            # As the library tells those that it has, whatever the reason is: the connection's timeout is not theirs.
            told = error.status in (lib.CRPC_E_CLOSED, lib.CRPC_E_PROTOCOL)
            pump._attachment.lost(self._bits, error.status if told else lib.CRPC_E_DISCONNECTED)
        self._fail_boxes(error)
        self._cancel_tasks()
        if self._listener is not None:
            self._listener.endpoints.discard(self)
        pump._endpoints.pop(self._bits, None)  # last: if this was cut, it is done again

    def _forget(self) -> None:
        self._pump._endpoints.pop(self._bits, None)

    def _open_works(self) -> bool:
        return self._options.lane and super()._open_works()

    def _request(self, record: tuple[int, ...]) -> None:
        # Nobody receives at a closed listener; the connection is still to be served.
        taker = self if self._listener is None or self._listener._closed else self._listener
        request: Request
        if record[1] & PLACED:
            assert self._arena is not None
            request = PlacedRequest(self, record, self._arena)
        else:
            request = Request(self, record)
        if self._lasting is not None:
            self._lasting.requests.add(request)
        self._pump._put(taker._queue, request)

    def _abandoned(self, token: int, status: int) -> None:
        self._left[token] = status
        self._cancel_tasks()

    def _cancel_tasks(self) -> None:
        """Those of aserve whose requests nobody waits for."""
        pump = self._pump
        if pump._tasks and pump._attachment is not None and not pump._attachment.loop.is_closed():
            pump._attachment.loop.call_soon_threadsafe(pump._cancel_abandoned)

    def _drained(self) -> list[Endpoint]:
        return [self]

    # ---- Connections that follow one another ----

    @property
    def connected(self) -> bool:
        return self._up and self._error is None and (self._lasting is None or self._lasting.error is None)

    @property
    def reconnecting(self) -> Optional[CopyrpcError]:
        """With EndpointOptions.reconnect: why there is no connection at present, while it tries to make one. None if there is one."""
        return None if self._lasting is None or self._error is not None else self._lasting.error

    def _settle(self, limit_ns: int, what: str) -> None:
        try:
            super()._settle(limit_ns, what)
        except Timeout:
            self._say_why_not(what)
            raise

    def _say_why_not(self, what: str) -> None:
        """The time for the first connection is over. Raises why the last attempt has failed, if one has."""
        error = self.reconnecting
        if error is not None:
            raise type(error)(f"{what}: {error.message}", error.status, error.errno or 0, error.vendor_syndrome)

    async def _aestablish_in_time(self, timeout: Optional[float], what: str) -> Self:
        """Does the same as _establish, for coroutines."""
        limit = timeout_ns(timeout)
        try:
            if limit:
                await asyncio.wait_for(self._asettle(), limit / 1e9)
            else:
                await self._asettle()
        except BaseException as problem:
            try:
                if isinstance(problem, asyncio.TimeoutError) and not isinstance(problem, Timeout):
                    self._say_why_not(what)
                    raise error_of(lib.CRPC_E_TIMEOUT, what) from None
                raise
            finally:
                self.close()
        return self

    def _events(self) -> deque[ConnectionEvent]:
        if self._lasting is None:
            raise error_of(lib.CRPC_E_STATE, "only an endpoint with EndpointOptions.reconnect has events: its connection comes back")
        return self._lasting.events

    def _eventful(self) -> bool:
        return bool(self._events()) or self._error is not None

    def events(self, timeout: Optional[float] = None) -> Iterator[ConnectionEvent]:
        """With EndpointOptions.reconnect: yields what becomes of its connections as it happens. The last 256 that nobody has taken
        are kept. Ends with the endpoint, or after `timeout` seconds without an event; 0 yields those that there are already."""
        events, limit = self._events(), timeout_ns(timeout)
        while True:
            with self._pump._use:
                self._pump._look()
                self._pump._wait(self._eventful, time.monotonic_ns() + limit if limit else None)
                if not events:
                    return
                event = events.popleft()
            yield event

    async def aevents(self) -> AsyncIterator[ConnectionEvent]:
        """Does the same as events, for coroutines. Ends with the endpoint."""
        events = self._events()
        while True:
            await _asyncio.wait(self._pump, self._eventful)
            if events:
                yield events.popleft()
            elif self._error is not None:
                return

    # ---- Calls ----

    def _call_fields(self, method: int, reply_bytes_max: Optional[int]) -> int:
        if method.__class__ is not int or not 0 <= method <= 0xFFFF:
            number(method, "method", 0, 0xFFFF)
        if reply_bytes_max is None:
            return self._options.reply_bytes_max
        return number(reply_bytes_max, "reply_bytes_max", 0, 0xFFFFFFFF)

    def _start(
        self, call: Call, request: Payload, timeout: Optional[float], method: int, reply_bytes_max: Optional[int], wanted: int
    ) -> None:
        """Called with the lock held. If an exception comes, the caller must abandon the call."""
        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        pinned, size, flags, offset, region = payload_of(request, self._pump, "a request")
        self._check()
        pump = self._pump
        call._id = pump._next_id()
        pump._pending[call._id] = call
        flags |= wanted
        op = (CALL, flags, method, 0, self._bits, MARK | call._id, 0, offset, size, most, limit, region)
        pump._submit_one(self, op, pinned, time.monotonic_ns() + limit if limit else None, "call")

    def start(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> Call:
        """Starts a call, and returns a Call with the result. If other calls are open, it may only
        be sent when a thread next waits. With `after`, it is sent when all ops of the lane that were posted
        before it have completed, and so is what is called later."""
        pump = self._pump
        call = Call(self)
        try:
            with pump._use:
                self._start(call, request, timeout, method, reply_bytes_max, _flags(after, idempotent))
        except BaseException:
            through(pump._give_up, call)
            raise
        return call

    def _call(
        self, call: Call, request: Payload, timeout: Optional[float], method: int, reply_bytes_max: Optional[int], wanted: int
    ) -> None:
        """Until it is answered, or an exception such as KeyboardInterrupt ends the wait."""
        pump = self._pump
        with Attempt(pump._use, pump._abandon_call, call):
            self._start(call, request, timeout, method, reply_bytes_max, wanted)
            pump._wait(call.done)

    def call(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> bytes:
        """Calls the peer and returns its answer. `timeout` is in seconds; None means no limit.
        `reply_bytes_max` is the length of the longest answer that the peer may give. With `after`, the
        request is sent when all ops of the lane that were posted before it have completed: the peer then
        finds what writes have written. So is what is called later. If one of these ops fails while the request
        waits, the connection ends; one that has failed, or was refused, before is for the caller to see.
        A `request` that is a part of a region, `region[a:b]`, is read by the device where it is: nothing is
        copied. It must not change until the call has ended, and goes with no `after`. `idempotent` says that to do
        it twice is as to do it once: an endpoint with EndpointOptions.reconnect may then send it again, when nobody
        knows whether it was done."""
        call = Call(self)
        self._call(call, request, timeout, method, reply_bytes_max, _flags(after, idempotent))
        status = call._status
        answer: bytes = call._answer
        if status != 0:
            assert status is not None
            raise error_of(status, "call", answer)
        return answer

    def call_view(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> Reply:
        """Does the same as call, but returns the answer where it arrived, without a copy: `with
        endpoint.call_view(request) as reply: use(reply.payload)`. A status above 0 from the peer's
        application is in .status, and raises nothing."""
        call = Call(self, in_place=True)
        self._call(call, request, timeout, method, reply_bytes_max, _flags(after, idempotent))
        if not isinstance(call._answer, Reply):
            assert call._status is not None
            raise error_of(call._status, "call")
        return call._answer

    async def acall(
        self,
        request: Payload,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
    ) -> bytes:
        """Does the same as call, for coroutines. Cancelling the task cancels the call. `request`
        must not change until the call has ended. `after` also means ops that coroutines have begun before."""
        limit = timeout_ns(timeout) if timeout is not None else 0
        pump = self._pump
        if reply_bytes_max is None and method.__class__ is int and 0 <= method <= 0xFFFF:
            most = self._options.reply_bytes_max
        else:
            most = self._call_fields(method, reply_bytes_max)
        pinned: Any = request
        size = flags = offset = region = 0
        if request.__class__ is bytes:
            size = len(request)
        if size == 0 or size > SIZE_MAX:
            pinned, size, flags, offset, region = held_payload_of(request, pump, "a request")
        if self._error is not None:
            raise self._error_again()
        attachment = pump._attachment
        loop = asyncio.get_running_loop()
        if attachment is None or attachment.loop is not loop or pump._pointer is None:
            attachment = _asyncio.attach(pump, loop)
        while attachment.away:
            await attachment.home.wait()
        if after:
            await self._poured()
        future: asyncio.Future[bytes] = loop.create_future()
        pending = Awaited(attachment, future)
        if after or idempotent:
            flags |= _flags(after, idempotent)
        entry = (self._bits, pinned, size, method, most, time.monotonic_ns() + limit if limit else 0, flags, offset, region)
        try:
            pending.post(pump._use, pump._ids, pump._pending, entry)
            if not attachment.scheduled:
                with pump._lock:
                    attachment.schedule()
            return await future
        except BaseException:  # the task was canceled, or a signal handler raised something
            if pending.id and not future.done() or future.cancelled():
                through(attachment.cancel, self._bits, pending.id)
            raise
        finally:
            # The future has the exception, whose traceback has this frame: in that ring, a pinned memoryview would wait for the
            # garbage collector, which cannot break it (CPython 3.11 ends in a segmentation fault).
            del future, entry, pinned

    @overload
    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = ...,
        method: int = ...,
        reply_bytes_max: Optional[int] = ...,
        after: bool = ...,
        idempotent: bool = ...,
        return_exceptions: Literal[False] = ...,
    ) -> list[bytes]: ...

    @overload
    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = ...,
        method: int = ...,
        reply_bytes_max: Optional[int] = ...,
        after: bool = ...,
        idempotent: bool = ...,
        return_exceptions: bool,
    ) -> list[Union[bytes, CopyrpcError]]: ...

    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        after: bool = False,
        idempotent: bool = False,
        return_exceptions: bool = False,
    ) -> Any:
        """Calls the peer with many requests at once. Returns the answers in the same order. When
        all calls have ended, raises the first exception, or with return_exceptions puts exceptions
        in the list."""
        from ._arrays import Batch

        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        return Batch(self, requests, limit, method, most, _flags(after, idempotent)).run(return_exceptions)

    # ---- Payloads written in place ----

    def _reserved_call(
        self, payload_bytes: int, timeout: Optional[float], method: int, reply_bytes_max: Optional[int], idempotent: bool
    ) -> CallReservation:
        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        size = number(payload_bytes, "payload_bytes", 0, 0xFFFFFFFF)
        return CallReservation(self, (CALL, _flags(False, idempotent), method, 0, self._bits, 0, 0, 0, size, most, limit, 0))

    def reserve(
        self,
        payload_bytes: int,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        idempotent: bool = False,
    ) -> CallReservation:
        """Reserves room for a request that is written in place: `with endpoint.reserve(4096) as
        room: room.memory[:] = ...; call = room.commit()`. Until then the connection accepts nothing
        else."""
        return reserve(self._reserved_call(payload_bytes, timeout, method, reply_bytes_max, idempotent))

    async def areserve(
        self,
        payload_bytes: int,
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        idempotent: bool = False,
    ) -> CallReservation:
        """Does the same as reserve, for coroutines; see CallReservation.acommit, from which
        `timeout` counts."""
        return await areserve(self._reserved_call(payload_bytes, timeout, method, reply_bytes_max, idempotent))

    # ---- Arenas ----

    def lend(self, memory: RegionSlice, place_bytes: int) -> None:
        """Lends the peer memory of a region, `region[a:b]`, cut into places of place_bytes: at most 24, each a multiple of 16
        bytes. Payloads that it sends from a region, of 2 KiB and more, then land there, and are copied by nobody: a request
        stays in its place until it is released, also after other polls; an answer as long as other answers do. A request may
        be longer than the ring. If no place is free, payloads come by the ring, as ever. The region must have been registered
        with "local_write", and cannot be closed before the endpoint. Completions in arrays have COMPLETION_PLACED: give them
        back with give_back."""
        if not isinstance(memory, RegionSlice):
            raise TypeError(f"what is lent is a part of a region, region[a:b], not {type(memory).__name__}")
        size = number(place_bytes, "place_bytes", 1, SIZE_MAX)
        memory.region._check_usable(self._pump, "what is lent")
        with self._pump._use as pointer:
            error = sized("crpc_error")
            offset = memory.address - memory.region.address
            places = len(memory) // size
            status = lib.crpc_arena_lend(
                pointer, {"bits": self._bits}, memory.region._handle[0], offset, size, min(places, SIZE_MAX), error
            )
            check(status, "lend", error)
            self._arena = memory

    def give_back(self, payload: int) -> None:
        """Lets the peer use the place of a payload again: of a completion in an array. `payload` is its address."""
        address = number(payload, "payload", 0, 0xFFFFFFFFFFFFFFFF)
        with self._pump._use as pointer:
            check(lib.crpc_arena_give_back(pointer, {"bits": self._bits}, address), "give_back")

    # ---- Looking ----

    def info(self) -> EndpointInfo:
        """Describes the endpoint: limits, addresses, and open calls."""
        return options_module.endpoint_info(self._info())

    def stats(self) -> Stats:
        """Returns the counters. After the connection has ended, returns their last values."""
        stats: Stats = self._stats()
        return stats

    def flight_records(self) -> str:
        """Returns what the endpoint has done last, with `flight_records` of the context: a line for each op and each completion,
        oldest first. When its connection has ended, they are in the log (Context.log)."""
        with self._pump._use as pointer:
            self._check()
            return read_text(lambda text, room: lib.crpc_endpoint_flight_records(pointer, self._handle[0], text, room))

    def _read_stats(self) -> Stats:
        struct = sized("crpc_stats")
        check(lib.crpc_endpoint_get_stats(self._pump._pointer, self._handle[0], struct))
        return options_module.stats(struct)
