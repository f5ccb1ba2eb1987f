"""_connection.py: what endpoints, channels and queues have in common: how they begin and end."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from . import _asyncio
from . import _options as options_module
from ._closing import Closing
from ._guards import through
from ._native import ffi, lib
from ._options import pin, sized, timeout_ns
from .errors import Closed, CopyrpcError, Disconnected, check, error_from, error_of, new_error

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._context import Context
    from ._pump import Pump

# How long leaving a `with` block waits for the peer to take leave too.
_LEAVE_SECONDS = 1.0


class Connection(Closing):
    """A connection to one peer."""

    #: What the library's functions for it begin with.
    _kind: str
    #: What the library's function that takes leave is called.
    _leaving = "disconnect"
    _context: Context
    _pump: Pump
    _bits: int

    def _begin(self, context: Context, bits: int) -> None:
        self._context = context
        self._bits = bits
        self._handle = ffi.new(self._kind + " *", {"bits": bits})
        self._asked = ffi.new("int32_t *", lib.CRPC_E_STATE)  # what the library said to accepting it
        self._up = False
        self._error: Optional[CopyrpcError] = None
        self._last_stats: Any = None  # once it has ended
        self._reason: Optional[CopyrpcError] = None  # while it ends
        self._owns_context = False
        #: For the application.
        self.user_data: Any = None

    @classmethod
    def _function(cls, verb: str) -> Any:
        return getattr(lib, f"{cls._kind}_{verb}")

    @property
    def context(self) -> Context:
        return self._context

    @property
    def connected(self) -> bool:
        return self._up and self._error is None

    @property
    def error(self) -> Optional[CopyrpcError]:
        """Why the connection has ended, or None."""
        return self._error

    @property
    def bits(self) -> int:
        """The handle, for ops in arrays."""
        return self._bits

    # ---- Events, with the lock ----

    def _connected(self, status: int) -> None:
        if status < 0:
            self._end(status)
        else:
            self._up = True

    def _disconnected(self, status: int) -> None:
        self._end(status)

    def _end(self, status: int) -> None:
        """Goes on where it was cut: what it is known by goes last, in _lost."""
        if self._reason is None:
            error = new_error()
            self._function("get_error")(self._pump._pointer, self._handle[0], error)
            if error.status < 0:
                reason = error_from(error)
            else:
                reason = error_of(status if status < 0 else lib.CRPC_E_DISCONNECTED, "the connection has ended")
            self._last_stats = self._read_stats()
            self._reason = reason
        if not self._in_use():
            self._function("close")(self._pump._pointer, self._handle[0])
        self._lost(self._reason)

    def _read_stats(self) -> Any:
        """Reads the counters. Called with the lock held, while there is a handle."""
        raise NotImplementedError

    def _stats(self) -> Any:
        if self._last_stats is None:
            with self._pump._use:
                self._check()
                return self._read_stats()
        return self._last_stats

    def _in_use(self) -> bool:
        """Tells whether something must end before the handle may."""
        return False

    def _close_handle(self, pointer: Any) -> None:
        self._function("close")(pointer, self._handle[0])

    def _end_uses(self) -> None:
        """Ends what keeps the handle in use."""

    def _lost(self, error: CopyrpcError) -> None:
        self._error = error

    def _forget(self) -> None:
        """It was not accepted."""
        raise NotImplementedError

    def _over(self) -> bool:
        return self._error is not None

    def _settled(self) -> bool:
        return self._up or self._error is not None

    def _error_again(self) -> CopyrpcError:
        """Returns the reason as a new exception, without a traceback."""
        error = self._error
        assert error is not None
        family = Disconnected if self._up and not isinstance(error, Closed) else type(error)
        return family(error.message, error.status, error.errno or 0, error.vendor_syndrome)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error_again()

    # ---- Being connected ----

    def _settle(self, limit_ns: int, what: str) -> None:
        """Waits until the connection is made, or raises why it is not. Called with the lock
        held."""
        self._pump._wait_in_time(self._settled, limit_ns, what)
        self._check()

    async def _asettle(self) -> None:
        """Does the same as _settle, for coroutines."""
        await _asyncio.wait(self._pump, self._settled)
        self._check()

    def _establish(self, limit_ns: int, what: str) -> Self:
        """Waits until the connection is made. If that fails, closes it."""
        try:
            with self._pump._use:
                self._settle(limit_ns, what)
        except BaseException:
            self.close()
            raise
        return self

    async def _aestablish(self) -> Self:
        """Does the same as _establish, for coroutines."""
        try:
            await self._asettle()
        except BaseException:
            self.close()
            raise
        return self

    def join(self, blob: Buffer, *, timeout: Optional[float] = 5.0) -> None:
        """Connects an endpoint, channel or queue that was made with a blob, using the peer's blob."""
        limit = timeout_ns(timeout)
        self._join(blob)
        with self._pump._use:
            self._settle(limit, "join")

    async def ajoin(self, blob: Buffer) -> None:
        """Does the same as join, for coroutines. Coroutines that use this context wait until the
        peer's blob was taken in; the loop goes on. Only functions that are no coroutines would hold
        the loop up meanwhile."""
        await _asyncio.in_thread(self._pump, self._join, blob)
        await self._asettle()

    def _join(self, blob: Buffer) -> None:
        pinned = pin(blob, "a blob")
        with self._pump._use as pointer:
            self._check()
            error = new_error()
            check(self._function("join")(pointer, self._handle[0], pinned, len(pinned), error), "join", error)

    # ---- Looking ----

    def _info(self) -> Any:
        """Returns what the library tells about the connection."""
        with self._pump._use as pointer:
            self._check()
            struct = sized(f"{self._kind}_info")
            check(self._function("get_info")(pointer, self._handle[0], struct))
            return struct

    # ---- The end ----

    def _leave(self, timeout: Optional[float]) -> bool:
        """Starts a graceful disconnect. Returns False if there is no connection any more. Called
        with the lock held."""
        if self._error is not None:
            return False
        limit = timeout_ns(timeout, options_module.FOREVER)
        status = self._function(self._leaving)(self._pump._pointer, self._handle[0], limit)
        if status not in (lib.CRPC_E_STATE, lib.CRPC_E_STALE):
            check(status, self._leaving)
            self._pump._rearm()
        return True

    def disconnect(self, timeout: Optional[float] = None) -> None:
        """Disconnects gracefully: ops under way on both sides finish first, for at most `timeout`
        seconds. Then closes the connection."""
        with self._pump._use:
            if self._leave(timeout):
                self._pump._wait(self._over)

    async def adisconnect(self, timeout: Optional[float] = None) -> None:
        """Does the same as disconnect, for coroutines."""
        await _asyncio.ready(self._pump)
        with self._pump._use:
            waiting = self._leave(timeout)
        if waiting:
            await _asyncio.wait(self._pump, self._over)

    def close(self) -> None:
        """Ends the connection at once. Everything under way raises Closed. Closing twice does no
        harm."""
        pump = self._pump
        if pump._pointer is None or (self._error is not None and not self._in_use()):
            if self._owns_context:
                self._context.close()
            return
        with pump._use as pointer:
            self._end_uses()
            if self._error is None:
                pump._poll()  # ends views, which must not outlive the ring
            if self._error is None:
                closed = Closed(f"the {type(self).__name__.lower()} is closed", lib.CRPC_E_CLOSED)
                self._close_handle(pointer)
                through(self._lost, closed)
                pump._poll()  # what was pending completes
                pump._wake_ready()
            pump._rearm()
        if self._owns_context:
            self._context.close()

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
        return f"<copyrpc.{type(self).__name__} {self._bits:#x} {state}>"
