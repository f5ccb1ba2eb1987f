"""_lasting.py: what an endpoint knows that connects again when its connection is lost (EndpointOptions.reconnect). The library does all of it;
here is what it tells, and what becomes of the requests that came by a connection that has ended."""
from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Optional

from ._native import lib
from .errors import CopyrpcError, error_from, error_of, new_error

if TYPE_CHECKING:
    from ._endpoint import Endpoint
    from ._request import Request

# Who does not ask for events must not pay for them.
_EVENTS_MAX = 256


class ConnectionEvent(NamedTuple):
    """What has become of the connection of an endpoint with EndpointOptions.reconnect: see Endpoint.events."""

    #: True: there is a connection. False: it has ended, or an attempt to make one has failed.
    connected: bool
    #: Why not.
    error: Optional[CopyrpcError]


class Lasting:
    """Of one endpoint."""

    def __init__(self) -> None:
        self.error: Optional[CopyrpcError] = None  # why there is no connection; None: there is one, or the first attempt is under way
        self.events: deque[ConnectionEvent] = deque(maxlen=_EVENTS_MAX)
        self.requests: weakref.WeakSet[Request] = weakref.WeakSet()  # that have come by the connection of now

    def lose(self, endpoint: Endpoint, status: int) -> ConnectionEvent:
        """The connection has ended, or could not be made. Called with the lock held; goes on where it was cut. Returns what is to be
        told."""
        error = new_error()
        lib.crpc_endpoint_get_error(endpoint._pump._pointer, endpoint._handle[0], error)
        if error.status < 0:
            self.error = error_from(error)
        else:
            self.error = error_of(status if status < 0 else lib.CRPC_E_DISCONNECTED, "the peer has taken leave")
        for request in list(self.requests):
            request._lose()
        self.requests.clear()
        while endpoint._queue:  # nobody has begun these
            endpoint._queue.popleft()
        endpoint._left.clear()
        endpoint._arena = None
        return ConnectionEvent(False, self.error)
