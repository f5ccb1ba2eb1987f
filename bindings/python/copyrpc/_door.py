"""_door.py: what listeners for calls, channels and queues have in common: an address, and peers
that want to connect. Those can be handed over to a listener of another context, of another thread."""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Optional, Sequence, TypeVar

from . import _asyncio
from ._closing import Closing
from ._connection import Connection
from ._native import ffi, lib
from ._options import number, sized, timeout_ns
from ._pump import VISITED
from .errors import Closed, CopyrpcError, check, error_of, new_error

if TYPE_CHECKING:
    from ._context import Context
    from ._pump import Pump

C = TypeVar("C", bound=Connection)
O = TypeVar("O")  # noqa: E741, options


class Asking(Generic[C, O]):
    """A peer that wants to connect. Use accept(), reject() or hand_over()."""

    def __init__(self, door: Door[C, O], bits: int, info: Any) -> None:
        self._door = door
        self._bits = bits
        self._decided = False
        self._said = ffi.new("int32_t *", lib.CRPC_E_STATE)  # by the library, to handing it over
        self.peer_address: str = info.peer_address

    def _decide(self) -> None:
        if self._decided:
            raise error_of(lib.CRPC_E_STATE, "this connection was accepted, rejected or handed over before")
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

    def hand_over(self, listener: Door[C, O]) -> None:
        """Hands the peer over to a listener of the same kind in another context, which another
        thread may be using. There it is as if the peer had connected to that listener: it accepts
        the peer, or its next_connection() returns it.

        The two contexts use the same port of the same device. Raises NoResource if 128 peers that
        were handed over wait in that context, and Closed if that or the listener is closed. After
        an exception, the peer still is to be accepted, rejected or handed over here. Does not wait
        for the other thread, so that coroutines can call it, too."""
        door = self._door
        door._check_taker(listener)
        with door._pump._use:
            self._decide()
            try:
                door._hand_over(self._bits, listener, self._said)
            except BaseException:
                self._decided = self._said[0] == 0
                raise


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
    """An address that peers can connect to. Without an address, it has the peers that other
    listeners hand over to it."""

    #: The prefix of the library's functions for its connections.
    _kind: str
    _pump: Pump
    _asking: type[Asking[C, O]]

    def _open(
        self, context: Context, address: Optional[bytes], backlog: int, options: O, spread: Sequence[Door[C, O]], flags: int
    ) -> None:
        self._pump = context
        self._context = context
        self._options = options
        self._closed = False
        self._owns_context = False
        self._connections: deque[Any] = deque()
        self._key = context._next_id()
        self._latest = 0  # of the peers that want to connect
        self._came = 0
        self._spread = tuple(spread)
        self._takers = 1 + len(self._spread)
        self._turn = -1  # whose the latest is: 0 means this listener's, and 1 that of the first in _spread
        self._said = ffi.new("int32_t *")  # by the library, to handing it over
        #: Why a peer could not be handed over to a listener in `spread`: the last time. Another has taken it.
        self.spread_error: Optional[CopyrpcError] = None
        self._handle: Any = None
        self.port: int = 0
        #: For example "192.0.2.1:47110".
        self.address: str = ""
        for other in self._spread:
            self._check_taker(other)
            if other._pump is context:
                raise error_of(lib.CRPC_E_INVALID, "spread: a listener of the same context")
            other._check_open()
        if address is not None:
            self._listen(address, backlog, flags)
        elif backlog:
            raise error_of(lib.CRPC_E_INVALID, "a listener without an address has no backlog")
        context._listeners[self._key] = self

    def _check_taker(self, other: Door[C, O]) -> None:
        if not isinstance(other, Door) or other._kind != self._kind:
            raise TypeError(f"a {type(self).__name__} hands peers over to another one, not to {type(other).__name__}")

    def _check_open(self) -> None:
        """Raises an exception if it can take no peers. Needs no lock."""
        if self._pump._pointer is None:
            raise self._pump._gone(VISITED)
        if self._closed:
            raise Closed("the listener to hand over to is closed", lib.CRPC_E_CLOSED)

    def _listen(self, address: bytes, backlog: int, flags: int) -> None:
        handle = ffi.new("crpc_listener *")
        c_options = sized("crpc_listener_options")
        c_options.backlog = number(backlog, "backlog", 0, 0xFFFFFFFF)
        c_options.user_data = self._key
        c_options.flags = flags
        error = new_error()
        check(lib.crpc_listener_open(self._pump._pointer, address, c_options, handle, error), "listen", error)
        self._handle = handle
        info = self._info()
        self.port = info.port
        self.address = ffi.string(info.address).decode()

    def _info(self) -> Any:
        struct = sized("crpc_listener_info")
        check(lib.crpc_listener_get_info(self._pump._pointer, self._handle[0], struct))
        return struct

    def counts(self) -> tuple[int, int]:
        """Returns how many connections were requested, and how many of them the library refused. Of a
        listener without an address: how many were handed over to it, and 0."""
        with self._pump._use:
            if self._handle is None:
                return self._came, 0
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
        """Goes on where it was cut."""
        if bits != self._latest:
            self._latest = bits
            self._came += 1
            self._turn = (self._turn + 1) % self._takers
        if not self._pass_on(bits):
            self._ask(bits)

    def _pass_on(self, bits: int) -> bool:
        """Has another listener take the peer: the one whose turn it is, or the next that can. False if it is this one's turn."""
        while self._turn:
            self._said[0] = lib.CRPC_E_STATE
            try:
                self._hand_over(bits, self._spread[self._turn - 1], self._said)
                return True
            except CopyrpcError as error:
                if self._said[0] == lib.CRPC_E_STALE:  # it was cut when this was done
                    return True
                self.spread_error = error
            self._turn = (self._turn + 1) % self._takers
        return False

    def _ask(self, bits: int) -> None:
        """A peer for this listener."""
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

    def _hand_over(self, bits: int, listener: Door[C, O], said: Any) -> None:
        """Writes to *said what the library says to it, so that who is cut knows."""
        error = new_error()
        hand_over = getattr(lib, f"copyrpc_native_{self._kind[5:]}_hand_over_noted")
        with listener._pump._visit as to:  # instead of its lock, which its own thread may have for long
            listener._check_open()  # if it closes just now, its context rejects the peer
            hand_over(self._pump._pointer, {"bits": bits}, to, listener._key, error, said)
        check(said[0], "hand_over", error)

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
        self._stop_listening()
        if self._owns_context:
            self._context.close()

    def _stop_listening(self) -> None:
        pump = self._pump
        if pump._pointer is not None and not self._closed:
            with pump._use as pointer:
                if not self._closed:
                    self._closed = True
                    pump._listeners.pop(self._key, None)
                    while self._connections:  # nobody can accept these any more
                        self._reject(self._connections.popleft()._bits, 0)
                    if self._handle is not None:
                        lib.crpc_listener_close(pointer, self._handle[0])
                    pump._wake_ready()

    def __repr__(self) -> str:
        return f"<copyrpc.{type(self).__name__} {self.address or 'without an address'}{' closed' if self._closed else ''}>"
