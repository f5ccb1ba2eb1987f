"""_door.py: what listeners for calls, channels and queues have in common: an address, and peers
that want to connect."""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

from . import _asyncio
from ._closing import Closing
from ._connection import Connection
from ._native import ffi, lib
from ._options import number, sized, timeout_ns
from .errors import check, error_of, new_error

if TYPE_CHECKING:
    from ._context import Context
    from ._pump import Pump

C = TypeVar("C", bound=Connection)
O = TypeVar("O")  # noqa: E741, options


class Asking(Generic[C, O]):
    """A peer that wants to connect. Use accept() or reject()."""

    def __init__(self, door: Door[C, O], bits: int, info: Any) -> None:
        self._door = door
        self._bits = bits
        self._decided = False
        self.peer_address: str = info.peer_address

    def _decide(self) -> None:
        if self._decided:
            raise error_of(lib.CRPC_E_STATE, "this connection was accepted or rejected before")
        self._decided = True

    def _accept(self, options: Optional[O]) -> C:
        """Called with the lock held."""
        self._decide()
        try:
            return self._door._accept(self._bits, self._door._checked(options) if options is not None else self._door._options)
        except BaseException:
            self._decided = False  # it remains to be accepted or rejected
            raise

    def accept(self, options: Optional[O] = None, *, timeout: Optional[float] = 5.0) -> C:
        """Accepts the peer, and waits until the connection is made. Returns the connection. If that
        takes too long or fails, closes it."""
        limit = timeout_ns(timeout)
        with self._door._pump._use:
            connection = self._accept(options)
        return connection._establish(limit, "accept")

    async def aaccept(self, options: Optional[O] = None) -> C:
        """Does the same as accept, for coroutines."""
        pump = self._door._pump
        await _asyncio.ready(pump)
        with pump._use:
            connection = self._accept(options)
        return await connection._aestablish()



class AskingWithToken(Asking[C, O]):
    """A peer that wants to connect, and has said who it is by a token."""

    def __init__(self, door: Door[C, O], bits: int, info: Any) -> None:
        super().__init__(door, bits, info)
        #: The token in the peer's options.
        self.token: bytes = info.token

    def reject(self, reason: int = 0) -> None:
        """Rejects the peer. The peer's connect raises Refused, whose message contains `reason`."""
        number(reason, "reason", 0, 0xFFFFFFFF)
        with self._door._pump._use:
            self._decide()
            check(self._door._reject(self._bits, reason), "reject")


class Door(Closing, Generic[C, O]):
    """An address that peers can connect to."""

    #: The prefix of the library's functions for its connections.
    _kind: str
    _pump: Pump
    _asking: type[Asking[C, O]]

    def _open(self, context: Context, address: bytes, backlog: int, options: O, flags: int) -> None:
        self._pump = context
        self._context = context
        self._options = options
        self._closed = False
        self._owns_context = False
        self._connections: deque[Any] = deque()
        self._key = context._next_id()
        self._handle = ffi.new("crpc_listener *")
        c_options = sized("crpc_listener_options")
        c_options.backlog = number(backlog, "backlog", 0, 0xFFFFFFFF)
        c_options.user_data = self._key
        c_options.flags = flags
        error = new_error()
        check(lib.crpc_listener_open(context._pointer, address, c_options, self._handle, error), "listen", error)
        context._listeners[self._key] = self
        info = self._info()
        self.port: int = info.port
        #: For example "192.0.2.1:47110".
        self.address: str = ffi.string(info.address).decode()

    def _info(self) -> Any:
        struct = sized("crpc_listener_info")
        check(lib.crpc_listener_get_info(self._pump._pointer, self._handle[0], struct))
        return struct

    def counts(self) -> tuple[int, int]:
        """Returns how many connections were requested, and how many of them the library refused."""
        with self._pump._use:
            info = self._info()
            return info.requests, info.refused

    def _function(self, verb: str) -> Any:
        return getattr(lib, f"{self._kind}_{verb}")

    # ---- With the lock ----

    def _checked(self, options: Optional[O]) -> O:
        raise NotImplementedError

    def _describe(self, struct: Any) -> Any:
        raise NotImplementedError

    def _made(self, bits: int, options: O) -> C:
        raise NotImplementedError

    def _known(self, bits: int) -> Optional[C]:
        raise NotImplementedError

    def _c_options(self, options: O) -> Any:
        """Makes the struct for accepting a peer."""
        raise NotImplementedError

    def _connect_request(self, bits: int) -> None:
        struct = sized(f"{self._kind}_info")
        if self._function("get_info")(self._pump._pointer, {"bits": bits}, struct) == 0:
            self._pump._put(self._connections, self._asking(self, bits, self._describe(struct)))
        else:
            self._reject(bits, 0)

    def _accept(self, bits: int, options: O) -> C:
        """Goes on where it was cut: what is accepted is known by then, so that its events find it."""
        connection = self._known(bits)
        if connection is None:
            connection = self._made(bits, options)
        error = new_error()
        c_options = self._c_options(options)
        if connection._asked[0]:
            accept = getattr(lib, f"copyrpc_native_{self._kind[5:]}_accept_noted")
            accept(self._pump._pointer, connection._handle[0], c_options, error, connection._asked)
        if connection._asked[0]:
            status = connection._asked[0]
            connection._forget()
            check(status, "accept", error)
        return connection

    def _reject(self, bits: int, reason: int) -> int:
        return int(self._function("reject")(self._pump._pointer, {"bits": bits}, reason))

    def _over(self) -> bool:
        return self._closed

    def _connection_ready(self) -> bool:
        return bool(self._connections) or self._closed

    def _check_choosy(self) -> None:
        """Raises an exception if the application does not accept connections itself."""

    # ---- For the application ----

    def _next(self, timeout: Optional[float]) -> Any:
        limit = timeout_ns(timeout)
        with self._pump._use:
            self._check_choosy()
            self._pump._wait_in_time(self._connection_ready, limit, "nobody connected")
            return self._connections.popleft() if self._connections else None

    async def _anext(self) -> Any:
        self._check_choosy()
        while not self._closed:
            await _asyncio.wait(self._pump, self._connection_ready)
            if self._connections:  # unless another coroutine was quicker
                return self._connections.popleft()
        return None

    def close(self) -> None:
        """Stops listening. Connections stay until they or their context are closed. Closing twice
        does no harm."""
        pump = self._pump
        if pump._pointer is not None and not self._closed:
            with pump._use as pointer:
                if not self._closed:
                    self._closed = True
                    pump._listeners.pop(self._key, None)
                    while self._connections:  # nobody can accept these any more
                        self._reject(self._connections.popleft()._bits, 0)
                    lib.crpc_listener_close(pointer, self._handle[0])
                    pump._wake_ready()
        if self._owns_context:
            self._context.close()

    def __repr__(self) -> str:
        return f"<copyrpc.{type(self).__name__} {self.address}{' closed' if self._closed else ''}>"
