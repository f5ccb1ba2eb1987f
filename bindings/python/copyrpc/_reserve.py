"""_reserve.py: payloads that are written in place in the send ring, without a copy."""
from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from . import _asyncio
from ._call import Call
from ._guards import Awaited, through
from ._message import Window
from ._native import ffi, lib
from ._options import number
from ._records import MARK, OP
from .errors import Closed, CopyrpcError, check, error_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._endpoint import Endpoint
    from ._request import Request

_STATUS, _USER_DATA, _PAYLOAD_BYTES, _TIMEOUT_NS = 3, 5, 8, 10


class Reservation(Window):
    """Room in a connection's send ring for one payload. Write to `memory`, and then commit(). A
    `with` block that ends without commit gives the room up. Until then the connection sends nothing
    and accepts nothing else: calls and replies raise InvalidArgument."""

    __slots__ = ("_endpoint", "_op", "_address", "_open", "__weakref__")

    def __init__(self, endpoint: Endpoint, op: tuple[int, ...]) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._op = op
        self._address = 0
        self._open = False

    def __len__(self) -> int:
        return self._op[_PAYLOAD_BYTES]

    @property
    def memory(self) -> memoryview:
        """The room, to be written."""
        pump = self._endpoint._pump
        if pump._pointer is None:
            raise pump._gone()
        if not self._open:
            raise Closed("the reservation was committed or given up", lib.CRPC_E_CLOSED)
        return self._view if self._view is not None else self._open_view(self._address, len(self), False)

    # ---- With the lock ----

    def _try(self) -> bool:
        """Returns False if there is no room now."""
        endpoint = self._endpoint
        pump = endpoint._pump
        endpoint._check()
        op, address = ffi.new("crpc_op[1]"), ffi.new("void **")
        OP.pack_into(ffi.buffer(op), 0, *self._op)
        status = lib.crpc_reserve(pump._pointer, op, address)
        if status == lib.CRPC_E_AGAIN:
            return False
        check(status, "reserve")
        self._address = int(ffi.cast("uintptr_t", address[0]))
        self._open = True
        pump._reservations[endpoint._bits] = self
        return True

    def _end(self) -> None:
        """Gives the room up. Raises BufferError, and changes nothing, if something derived from its
        memory is alive."""
        endpoint = self._endpoint
        pump = endpoint._pump
        self._end_memory()
        self._open = False
        del pump._reservations[endpoint._bits]
        lib.crpc_abort(pump._pointer, endpoint._handle[0])
        if endpoint._error is not None:  # it waited for this
            lib.crpc_endpoint_close(pump._pointer, endpoint._handle[0])
        pump._rearm()

    def _end_memory(self) -> None:
        self._must_end("a reservation's memory is still alive; delete it before the reservation ends")

    def _size(self, payload_bytes: Optional[int]) -> int:
        """What a commit of so many bytes has, if it may come now."""
        endpoint = self._endpoint
        size = len(self) if payload_bytes is None else number(payload_bytes, "payload_bytes", 0, 0xFFFFFFFF)
        if not self._open:
            raise error_of(lib.CRPC_E_STATE, "commit: it was committed or given up before")
        if endpoint._error is not None:
            self._end()
            raise endpoint._error_again()
        if size > len(self):
            raise error_of(lib.CRPC_E_TOO_BIG, f"commit: {size} bytes, and {len(self)} were reserved")
        return size

    def _commit(self, size: int) -> None:
        endpoint = self._endpoint
        pump = endpoint._pump
        self._end_memory()
        self._open = False
        del pump._reservations[endpoint._bits]
        check(lib.crpc_commit(pump._pointer, endpoint._handle[0], size), "commit")
        pump._rearm()

    # ---- For the application ----

    def abort(self) -> None:
        """Gives the room up, as if it had never been reserved. Aborting twice does no harm."""
        pump = self._endpoint._pump
        if self._open and pump._pointer is not None:
            with pump._use:
                if self._open:
                    self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.abort()


class CallReservation(Reservation):
    """A reservation for a request: see Endpoint.reserve."""

    __slots__ = ("_id",)

    def __init__(self, endpoint: Endpoint, op: tuple[int, ...]) -> None:
        with endpoint._pump._use:
            self._id = endpoint._pump._next_id()
        super().__init__(endpoint, (*op[:_USER_DATA], MARK | self._id, *op[_USER_DATA + 1 :]))

    def _commit_for(self, pending: Any, payload_bytes: Optional[int]) -> None:
        pump = self._endpoint._pump
        size = self._size(payload_bytes)
        pump._pending[self._id] = pending
        try:
            self._commit(size)
        except BaseException:
            through(pump._abandon, self._endpoint._bits, self._id, pending)
            raise

    def commit(self, payload_bytes: Optional[int] = None) -> Call:
        """Calls the peer with the first `payload_bytes` of the room, or with all of it. Returns a
        Call with the result."""
        pump = self._endpoint._pump
        call = Call(self._endpoint)
        call._id = self._id
        try:
            with pump._use:
                self._commit_for(call, payload_bytes)
        except BaseException:
            through(pump._give_up, call)
            raise
        return call

    async def acommit(self, payload_bytes: Optional[int] = None) -> bytes:
        """Does the same as commit, for coroutines. Returns the answer, as Endpoint.acall does."""
        pump = self._endpoint._pump
        attachment = await _asyncio.ready(pump)
        future: asyncio.Future[bytes] = attachment.loop.create_future()
        pending = Awaited(attachment, future)
        try:
            with pump._use:
                self._commit_for(pending, payload_bytes)
            return await future
        except BaseException:
            if pump._pending.get(self._id) is pending:
                through(attachment.cancel, self._endpoint._bits, self._id)
            raise


class ReplyReservation(Reservation):
    """A reservation for a reply: see Request.reserve."""

    __slots__ = ("_request",)

    def __init__(self, request: Request, op: tuple[int, ...]) -> None:
        super().__init__(request.endpoint, op)
        self._request = request

    def commit(self, payload_bytes: Optional[int] = None) -> None:
        """Answers with the first `payload_bytes` of the room, or with all of it."""
        with self._endpoint._pump._use:
            size = self._size(payload_bytes)
            try:
                self._commit(size)
            except CopyrpcError as error:
                raise self._request._lost_by(error, "commit") from None
            self._request._note_answered(self._op[_STATUS])


R = TypeVar("R", bound=Reservation)


def reserve(reservation: R) -> R:
    """Waits until there is room. Takes the lock."""
    pump = reservation._endpoint._pump
    limit = reservation._op[_TIMEOUT_NS]
    deadline = time.monotonic_ns() + limit if limit else None
    with pump._use:
        while True:
            seen = pump._room
            if reservation._try():
                return reservation
            pump._wait_for_room(reservation._endpoint, seen, deadline, "reserve")


async def areserve(reservation: R) -> R:
    """Does the same, for coroutines."""
    pump, endpoint = reservation._endpoint._pump, reservation._endpoint
    while True:
        await _asyncio.ready(pump)
        with pump._use:
            seen = pump._room
            if reservation._try():
                return reservation
        await _asyncio.wait(pump, lambda: pump._room != seen or endpoint._error is not None)  # noqa: B023, awaited here
