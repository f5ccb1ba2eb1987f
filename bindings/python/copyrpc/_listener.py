"""_listener.py: accepting connections, and receiving the requests that come over them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._door import AskingWithToken, Door
from ._endpoint import Endpoint
from ._intercept import endpoint_class
from ._native import lib
from ._options import EndpointOptions, endpoint_info, endpoint_options
from ._records import MARK
from ._request import Requests
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    from ._context import Context


class ConnectionRequest(AskingWithToken[Endpoint, EndpointOptions]):
    """A peer that wants to connect to a listener without auto_accept. Use accept(), reject() or
    hand_over()."""


class Listener(Door[Endpoint, EndpointOptions], Requests):
    """A listener for calls, made by Context.listen. It receives the requests of all its
    connections."""

    _kind = "crpc_endpoint"
    _asking = ConnectionRequest

    def __init__(
        self,
        context: Context,
        address: Optional[bytes],
        backlog: int,
        options: EndpointOptions,
        spread: Sequence[Listener],
        auto_accept: bool,
        arrays: bool,
    ) -> None:
        Requests.__init__(self, context)
        self._auto_accept = auto_accept
        self._arrays = arrays
        #: The connections that there are.
        self.endpoints: set[Endpoint] = set()
        #: Connections that could not be accepted, and why: the last of them.
        self.accept_error: Optional[CopyrpcError] = None
        self._open(context, address, backlog, options, spread, 0)

    # ---- With the lock ----

    def _checked(self, options: Optional[EndpointOptions]) -> EndpointOptions:
        return endpoint_options(options)

    def _describe(self, struct: Any) -> Any:
        return endpoint_info(struct)

    def _c_options(self, options: EndpointOptions) -> Any:
        c_options = options.to_c(MARK if self._arrays else 0)
        c_options.token_bytes = 0  # it is for connecting
        return c_options

    def _made(self, bits: int, options: EndpointOptions) -> Endpoint:
        return endpoint_class(options)(self._context, bits, options, self)

    def _known(self, bits: int) -> Optional[Endpoint]:
        return self._context._endpoints.get(bits)

    def _ask(self, bits: int) -> None:
        if not self._auto_accept:
            super()._ask(bits)
            return
        try:
            self._accept(bits, self._options)
        except CopyrpcError as error:  # the peer hears of it; the listener goes on
            self.accept_error = error
            self._reject(bits, 0)

    def _check_choosy(self) -> None:
        if self._auto_accept:
            raise error_of(lib.CRPC_E_STATE, "this listener accepts by itself; make it with auto_accept=False")

    def _drained(self) -> list[Endpoint]:
        self._stop_listening()
        return [endpoint for endpoint in self._context._endpoints.values() if endpoint._listener is self]

    # ---- Connections ----

    def next_connection(self, timeout: Optional[float] = None) -> Optional[ConnectionRequest]:
        """Waits for a peer that wants to connect to a listener without auto_accept. Returns None
        when the listener is closed."""
        asking: Optional[ConnectionRequest] = self._next(timeout)
        return asking

    async def anext_connection(self) -> Optional[ConnectionRequest]:
        """Does the same as next_connection, for coroutines."""
        asking: Optional[ConnectionRequest] = await self._anext()
        return asking
