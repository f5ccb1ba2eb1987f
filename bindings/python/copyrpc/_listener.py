"""_listener.py: accepting connections, and the requests that come over them."""
from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from . import _asyncio
from ._closing import Closing
from ._endpoint import Endpoint
from ._native import ffi, lib
from ._options import EndpointInfo, EndpointOptions, endpoint_info, endpoint_options, number, sized, timeout_ns
from ._records import MARK
from ._request import Requests
from .errors import CopyrpcError, check, error_of, new_error

if TYPE_CHECKING:
    from ._context import Context


class ConnectionRequest:
    """A peer that wants to connect, at a listener without auto_accept: accept() or reject() it."""

    def __init__(self, listener: Listener, bits: int, info: EndpointInfo) -> None:
        self._listener = listener
        self._bits = bits
        self._decided = False
        self.peer_address = info.peer_address
        #: What the peer's EndpointOptions.token says.
        self.token = info.token

    def _decide(self) -> None:
        if self._decided:
            raise error_of(lib.CRPC_E_STATE, "this connection was accepted or rejected before")
        self._decided = True

    def _accept(self, options: Optional[EndpointOptions]) -> Endpoint:
        """With the lock."""
        self._decide()
        try:
            return self._listener._accept(self._bits, endpoint_options(options or self._listener._options))
        except BaseException:
            self._decided = False  # it remains to be accepted or rejected
            raise

    def accept(self, options: Optional[EndpointOptions] = None, *, timeout: Optional[float] = 5.0) -> Endpoint:
        """Accepts it, and waits until it is connected."""
        limit = timeout_ns(timeout)
        pump = self._listener._pump
        with pump._use:
            endpoint = self._accept(options)
            if not pump._wait(endpoint._settled, time.monotonic_ns() + limit if limit else None):
                raise error_of(lib.CRPC_E_TIMEOUT, "accept")
            endpoint._check()
        return endpoint

    async def aaccept(self, options: Optional[EndpointOptions] = None) -> Endpoint:
        """accept for coroutines."""
        pump = self._listener._pump
        with pump._use:
            endpoint = self._accept(options)
        try:
            await _asyncio.wait(pump, endpoint._settled)
            endpoint._check()
        except BaseException:
            endpoint.close()
            raise
        return endpoint

    def reject(self, reason: int = 0) -> None:
        """The peer's connect raises Refused, whose message shows `reason`."""
        number(reason, "reason", 0, 0xFFFFFFFF)
        with self._listener._pump._use as pointer:
            self._decide()
            check(lib.crpc_endpoint_reject(pointer, {"bits": self._bits}, reason), "reject")


class Listener(Closing, Requests):
    """Made by Context.listen. Requests of all its connections come to it."""

    def __init__(
        self, context: Context, address: bytes, backlog: int, options: EndpointOptions, auto_accept: bool, arrays: bool
    ) -> None:
        super().__init__(context)
        self._context = context
        self._options = options
        self._auto_accept = auto_accept
        self._arrays = arrays
        self._closed = False
        self._owns_context = False
        self._connections: deque[ConnectionRequest] = deque()
        self._key = context._next_id()
        self._handle = ffi.new("crpc_listener *")
        #: The connections that there are.
        self.endpoints: set[Endpoint] = set()
        #: Connections that could not be accepted, and why: the last of them.
        self.accept_error: Optional[CopyrpcError] = None
        c_options = sized("crpc_listener_options")
        c_options.backlog = number(backlog, "backlog", 0, 0xFFFFFFFF)
        c_options.user_data = self._key
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
        """How many connections were asked for, and how many of these the library refused."""
        with self._pump._use:
            info = self._info()
            return info.requests, info.refused

    # ---- Events, with the lock ----

    def _connect_request(self, bits: int) -> None:
        if self._auto_accept:
            try:
                self._accept(bits, self._options)
            except CopyrpcError as error:  # the peer hears of it; the listener goes on
                self.accept_error = error
                lib.crpc_endpoint_reject(self._pump._pointer, {"bits": bits}, 0)
            return
        struct = sized("crpc_endpoint_info")
        if lib.crpc_endpoint_get_info(self._pump._pointer, {"bits": bits}, struct) == 0:
            self._connections.append(ConnectionRequest(self, bits, endpoint_info(struct)))

    def _accept(self, bits: int, options: EndpointOptions) -> Endpoint:
        error = new_error()
        c_options = options.to_c(MARK if self._arrays else 0)
        c_options.token_bytes = 0
        check(lib.crpc_endpoint_accept(self._pump._pointer, {"bits": bits}, c_options, error), "accept", error)
        return Endpoint(self._context, bits, options, self)

    def _over(self) -> bool:
        return self._closed

    # ---- Connections ----

    def _connection_ready(self) -> bool:
        return bool(self._connections) or self._closed

    def _check_choosy(self) -> None:
        if self._auto_accept:
            raise error_of(lib.CRPC_E_STATE, "this listener accepts by itself; make it with auto_accept=False")

    def next_connection(self, timeout: Optional[float] = None) -> Optional[ConnectionRequest]:
        """Waits for a peer that wants to connect, at a listener without auto_accept. None when the listener is closed."""
        limit = timeout_ns(timeout)
        with self._pump._use:
            self._check_choosy()
            if not self._pump._wait(self._connection_ready, time.monotonic_ns() + limit if limit else None):
                raise error_of(lib.CRPC_E_TIMEOUT, "nobody connected")
            return self._connections.popleft() if self._connections else None

    async def anext_connection(self) -> Optional[ConnectionRequest]:
        """next_connection for coroutines."""
        self._check_choosy()
        while not self._closed:
            await _asyncio.wait(self._pump, self._connection_ready)
            if self._connections:  # unless another coroutine was quicker
                return self._connections.popleft()
        return None

    def close(self) -> None:
        """Stops listening: serve() returns. Connections stay until they are closed, or the context is. Once is enough; more does no
        harm."""
        pump = self._pump
        if pump._pointer is not None and not self._closed:
            with pump._use as pointer:
                if not self._closed:
                    self._closed = True
                    pump._listeners.pop(self._key, None)
                    self._connections.clear()
                    lib.crpc_listener_close(pointer, self._handle[0])
                    pump._wake_ready()
        if self._owns_context:
            self._context.close()

    def __repr__(self) -> str:
        return f"<copyrpc.Listener {self.address}{' closed' if self._closed else ''}>"
