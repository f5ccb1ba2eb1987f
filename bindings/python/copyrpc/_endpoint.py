"""_endpoint.py: one connection to one peer: calls, and requests of the peer's."""
from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterable, Literal, Optional, Union, overload

from . import _asyncio
from . import _options as options_module
from ._call import Call
from ._message import Reply
from ._native import ffi, lib
from ._options import EndpointInfo, EndpointOptions, Stats, number, pin, sized, timeout_ns
from ._records import MARK
from ._request import Request, Requests
from ._reserve import CallReservation, areserve, reserve
from .errors import Closed, CopyrpcError, Disconnected, check, error_from, error_of, new_error

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._context import Context
    from ._listener import Listener

CALL: int = lib.CRPC_OP_CALL
# How long leaving a `with` block waits for the peer to take leave too.
_LEAVE_SECONDS = 1.0


class Endpoint(Requests):
    """A connection. Made by Context.connect, or by a Listener."""

    def __init__(self, context: Context, bits: int, options: EndpointOptions, listener: Optional[Listener] = None) -> None:
        super().__init__(context)
        self._context = context
        self._bits = bits
        self._handle = ffi.new("crpc_endpoint *", {"bits": bits})
        self._options = options
        self._listener = listener
        self._up = False
        self._error: Optional[CopyrpcError] = None
        self._graceful = False
        self._owns_context = False
        #: For the application.
        self.user_data: Any = None
        context._endpoints[bits] = self

    @property
    def context(self) -> Context:
        return self._context

    @property
    def connected(self) -> bool:
        return self._up and self._error is None

    @property
    def error(self) -> Optional[CopyrpcError]:
        """Why it is no longer connected, or None."""
        return self._error

    @property
    def bits(self) -> int:
        """The handle, for the `endpoint` field of ops in arrays."""
        return self._bits

    # ---- Events, with the lock ----

    def _connected(self, status: int) -> None:
        if status < 0:
            self._end(status)
            return
        self._up = True
        if self._listener is not None:
            self._listener.endpoints.add(self)

    def _disconnected(self, status: int) -> None:
        self._graceful = status == 0
        self._end(status)

    def _end(self, status: int) -> None:
        error = new_error()
        lib.crpc_endpoint_get_error(self._pump._pointer, self._handle[0], error)
        if error.status < 0:
            self._lost(error_from(error))
        else:
            self._lost(error_of(status if status < 0 else lib.CRPC_E_DISCONNECTED, "the connection has ended"))
        if self._bits not in self._pump._reservations:  # whose memory is the ring's: it ends first
            lib.crpc_endpoint_close(self._pump._pointer, self._handle[0])

    def _lost(self, error: CopyrpcError) -> None:
        self._error = error
        pump = self._pump
        pump._endpoints.pop(self._bits, None)
        if pump._attachment is not None:
            pump._attachment.lost(self._bits, error.status)
        if self._listener is not None:
            self._listener.endpoints.discard(self)

    def _request(self, record: tuple[int, ...]) -> None:
        # Nobody receives at a closed listener; the connection is still to be served.
        (self if self._listener is None or self._listener._closed else self._listener)._queue.append(Request(self, record))

    def _over(self) -> bool:
        return self._error is not None

    def _error_again(self) -> CopyrpcError:
        """The reason once more, as an exception that has no traceback yet."""
        error = self._error
        assert error is not None
        family = Disconnected if self._up and not isinstance(error, Closed) else type(error)
        return family(error.message, error.status, error.errno or 0, error.vendor_syndrome)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error_again()

    # ---- Calls ----

    def _call_fields(self, method: int, reply_bytes_max: Optional[int]) -> int:
        if method.__class__ is not int or not 0 <= method <= 0xFFFF:
            number(method, "method", 0, 0xFFFF)
        if reply_bytes_max is None:
            return self._options.reply_bytes_max
        return number(reply_bytes_max, "reply_bytes_max", 0, 0xFFFFFFFF)

    def _start(
        self, request: Buffer, timeout: Optional[float], method: int, reply_bytes_max: Optional[int], in_place: bool = False
    ) -> Call:
        """With the lock."""
        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        pinned = pin(request, "a request")
        self._check()
        pump = self._pump
        user_data = pump._next_id()
        call = Call(self, user_data, in_place)
        pump._pending[user_data] = call
        try:
            op = (CALL, 0, method, 0, self._bits, MARK | user_data, 0, 0, len(pinned), most, limit, 0)
            pump._submit_one(self, op, pinned, time.monotonic_ns() + limit if limit else None, "call")
        except BaseException:
            pump._pending.pop(user_data, None)
            raise
        return call

    def start(
        self, request: Buffer, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> Call:
        """Begins a call; the Call gives its result. With other calls under way it may leave when somebody next waits."""
        with self._pump._use:
            return self._start(request, timeout, method, reply_bytes_max)

    def call(
        self, request: Buffer, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> bytes:
        """Calls the peer and gives its answer. `timeout` is in seconds; None is no limit. `reply_bytes_max` is the longest answer
        the peer may give."""
        pump = self._pump
        with pump._use:
            call = self._start(request, timeout, method, reply_bytes_max)
            try:
                pump._wait(call.done)
            except BaseException:
                self._abandon(call)
                raise
        status = call._status
        answer: bytes = call._answer
        if status != 0:
            assert status is not None
            raise error_of(status, "call", answer)
        return answer

    def call_view(
        self, request: Buffer, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> Reply:
        """Like call, but gives the answer where it arrived, not copied: `with endpoint.call_view(request) as reply:
        use(reply.payload)`. A status above 0 of the application's is in .status and raises nothing."""
        pump = self._pump
        with pump._use:
            call = self._start(request, timeout, method, reply_bytes_max, in_place=True)
            try:
                pump._wait(call.done)
            except BaseException:
                self._abandon(call)
                raise
        if not isinstance(call._answer, Reply):
            assert call._status is not None
            raise error_of(call._status, "call")
        return call._answer

    def _abandon(self, call: Call) -> None:
        """An exception ends the waiting, Ctrl-C perhaps: nobody will take the answer. With the lock."""
        pump = self._pump
        if pump._pointer is not None and pump._pending.pop(call._id, None) is not None:
            pump._cancel(self._bits, call._id)

    async def acall(
        self, request: Buffer, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> bytes:
        """call for coroutines. Cancelling the task cancels the call. `request` must not change until then."""
        limit = timeout_ns(timeout) if timeout is not None else 0
        most = self._call_fields(method, reply_bytes_max)
        pinned = pin(request, "a request")
        if self._error is not None:
            raise self._error_again()
        pump = self._pump
        attachment = pump._attachment
        loop = asyncio.get_running_loop()
        if attachment is None or attachment.loop is not loop or pump._pointer is None:
            attachment = _asyncio.attach(pump, loop)
        future: asyncio.Future[bytes] = loop.create_future()
        user_data = 0
        with pump._lock:
            if pump._pointer is None:
                raise pump._gone()
            pump._ids = user_data = pump._ids + 1
            pump._pending[user_data] = _asyncio.FutureCall(attachment, future)
            attachment.outbox[user_data] = (
                self._bits,
                pinned,
                len(pinned),
                method,
                most,
                time.monotonic_ns() + limit if limit else 0,
            )
            if not attachment.scheduled:
                attachment.schedule()
        try:
            return await future
        except asyncio.CancelledError:
            attachment.cancel(self._bits, user_data)
            raise

    @overload
    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = ...,
        method: int = ...,
        reply_bytes_max: Optional[int] = ...,
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
        return_exceptions: bool,
    ) -> list[Union[bytes, CopyrpcError]]: ...

    def call_many(
        self,
        requests: Iterable[Buffer],
        *,
        timeout: Optional[float] = None,
        method: int = 0,
        reply_bytes_max: Optional[int] = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Calls the peer with many requests at once and gives their answers in the same order. The first that failed is raised,
        when all have ended; with return_exceptions, exceptions stand in the list instead."""
        from ._arrays import Batch

        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        return Batch(self, requests, limit, method, most).run(return_exceptions)

    # ---- Payloads written in place ----

    def _reserved_call(
        self, payload_bytes: int, timeout: Optional[float], method: int, reply_bytes_max: Optional[int]
    ) -> CallReservation:
        limit = timeout_ns(timeout)
        most = self._call_fields(method, reply_bytes_max)
        size = number(payload_bytes, "payload_bytes", 0, 0xFFFFFFFF)
        return CallReservation(self, (CALL, 0, method, 0, self._bits, 0, 0, 0, size, most, limit, 0))

    def reserve(
        self, payload_bytes: int, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> CallReservation:
        """Room for a request that is written in place: `with endpoint.reserve(4096) as room: room.memory[:] = ...; call =
        room.commit()`. Until then the connection takes nothing else."""
        return reserve(self._reserved_call(payload_bytes, timeout, method, reply_bytes_max))

    async def areserve(
        self, payload_bytes: int, *, timeout: Optional[float] = None, method: int = 0, reply_bytes_max: Optional[int] = None
    ) -> CallReservation:
        """reserve for coroutines; see CallReservation.acommit. `timeout` counts from there."""
        return await areserve(self._reserved_call(payload_bytes, timeout, method, reply_bytes_max))

    # ---- Looking ----

    def info(self) -> EndpointInfo:
        """Limits, addresses, and what is open."""
        with self._pump._use as pointer:
            self._check()
            struct = sized("crpc_endpoint_info")
            check(lib.crpc_endpoint_get_info(pointer, self._handle[0], struct))
            return options_module.endpoint_info(struct)

    def stats(self) -> Stats:
        with self._pump._use as pointer:
            self._check()
            struct = sized("crpc_stats")
            check(lib.crpc_endpoint_get_stats(pointer, self._handle[0], struct))
            return options_module.stats(struct)

    # ---- By blob ----

    def _settled(self) -> bool:
        return self._up or self._error is not None

    def join(self, blob: Buffer, *, timeout: Optional[float] = 5.0) -> None:
        """Connects an endpoint of Context.blob with the blob of its peer."""
        limit = timeout_ns(timeout)
        self._join(blob)
        with self._pump._use:
            if not self._pump._wait(self._settled, time.monotonic_ns() + limit if limit else None):
                raise error_of(lib.CRPC_E_TIMEOUT, "join")
            self._check()

    async def ajoin(self, blob: Buffer) -> None:
        """join for coroutines."""
        self._join(blob)
        await _asyncio.wait(self._pump, self._settled)
        self._check()

    def _join(self, blob: Buffer) -> None:
        pinned = pin(blob, "a blob")
        with self._pump._use as pointer:
            self._check()
            error = new_error()
            check(lib.crpc_endpoint_join(pointer, self._handle[0], pinned, len(pinned), error), "join", error)

    # ---- The end ----

    def _leave(self, timeout: Optional[float]) -> bool:
        """Begins to take leave. False if there is nothing to leave any more. With the lock."""
        if self._error is not None:
            return False
        limit = timeout_ns(timeout, options_module.FOREVER)
        status = lib.crpc_endpoint_disconnect(self._pump._pointer, self._handle[0], limit)
        if status not in (lib.CRPC_E_STATE, lib.CRPC_E_STALE):
            check(status, "disconnect")
            self._pump._rearm()
        return True

    def disconnect(self, timeout: Optional[float] = None) -> None:
        """Takes leave: what is under way on either side finishes first, for at most `timeout` seconds. Then it is closed."""
        with self._pump._use:
            if self._leave(timeout):
                self._pump._wait(self._over)

    async def adisconnect(self, timeout: Optional[float] = None) -> None:
        """disconnect for coroutines."""
        with self._pump._use:
            waiting = self._leave(timeout)
        if waiting:
            await _asyncio.wait(self._pump, self._over)

    def close(self) -> None:
        """Ends the connection at once: calls under way raise Closed. Once is enough; more does no harm."""
        pump = self._pump
        if pump._pointer is None or (self._error is not None and self._bits not in pump._reservations):
            if self._owns_context:
                self._context.close()
            return
        with pump._use as pointer:
            reservation = pump._reservations.get(self._bits)
            if reservation is not None:
                reservation._end()
            if self._error is None:
                pump._poll()  # ends views, which must not outlive the ring
            if self._error is None:
                self._lost(Closed("the endpoint is closed", lib.CRPC_E_CLOSED))
                lib.crpc_endpoint_close(pointer, self._handle[0])
                pump._poll()  # what was pending completes
                pump._wake_ready()
            pump._rearm()
        if self._owns_context:
            self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if kind is None and self._pump._pointer is not None and self.connected:
                self.disconnect(_LEAVE_SECONDS)
        except CopyrpcError:
            pass  # it is over one way or the other
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if kind is None and self._pump._pointer is not None and self.connected:
                await self.adisconnect(_LEAVE_SECONDS)
        except CopyrpcError:
            pass
        finally:
            self.close()

    def __repr__(self) -> str:
        state = "connected" if self.connected else "connecting" if self._error is None else f"ended: {self._error}"
        return f"<copyrpc.Endpoint {self._bits:#x} {state}>"
