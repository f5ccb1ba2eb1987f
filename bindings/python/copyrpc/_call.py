"""_call.py: an open call, for threads. For coroutines there is _guards.Awaited."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from ._message import Reply, memory
from ._options import timeout_ns
from .errors import error_of

if TYPE_CHECKING:
    from ._endpoint import Endpoint


class Call:
    """An open call: see Endpoint.start."""

    __slots__ = ("_endpoint", "_id", "_in_place", "_status", "_answer", "__weakref__")

    def __init__(self, endpoint: Endpoint, in_place: bool = False) -> None:
        self._endpoint = endpoint
        self._id = 0  # its user_data, once it is submitted
        self._in_place = in_place
        self._status: Optional[int] = None
        self._answer: Any = b""

    def _finish(self, status: int, address: int, size: int) -> None:
        if self._in_place and status >= 0:
            self._answer = Reply(self._endpoint._pump, status, address, size)
        elif size:
            self._answer = memory[address : address + size]
        self._status = status

    def done(self) -> bool:
        """Returns True if the call has ended."""
        return self._status is not None

    def cancel(self) -> None:
        """Ends the call, unless it has ended. result() then raises Canceled."""
        if self._status is None:
            with self._endpoint._pump._use:
                if self._status is None:
                    self._endpoint._pump._cancel(self._endpoint._bits, self._id)

    def _wait(self, timeout: Optional[float] = None) -> int:
        limit = timeout_ns(timeout)
        if self._status is None:
            pump = self._endpoint._pump
            with pump._use:
                pump._wait_in_time(self.done, limit, "waiting for a call, which goes on")
        assert self._status is not None
        return self._status

    def result(self, timeout: Optional[float] = None) -> bytes:
        """Waits for the answer and returns it. `timeout` only limits the wait; the call goes on."""
        status = self._wait(timeout)
        if status != 0:
            raise error_of(status, "call", self._answer)
        answer: bytes = self._answer
        return answer
