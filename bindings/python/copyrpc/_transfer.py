"""_transfer.py: messages of channels under way, and the memory that they lie in."""
from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, cast

from ._guards import Attempt, through
from ._native import ffi, lib
from ._options import timeout_ns
from ._records import CHANNEL_OP, MARK
from .errors import CopyrpcError, Disconnected, TruncatedError, error_of

if TYPE_CHECKING:
    import asyncio

    from ._asyncio import Attachment
    from ._channel import Channel

SEND: int = lib.CRPC_CHANNEL_SEND
RECEIVE: int = lib.CRPC_CHANNEL_RECEIVE
CANCEL: int = lib.CRPC_CHANNEL_CANCEL
MORE: int = lib.CRPC_CHANNEL_MORE
AGAIN: int = lib.CRPC_E_AGAIN

R = TypeVar("R")  # int, or list[int] of a group

#: Ops that one crossing takes at the most.
CHUNK = 1024


class Buffer:
    """A buffer, as an op names it. The pin keeps it in place and alive."""

    __slots__ = ("tag", "pinned", "address", "region")

    def __init__(self, tag: int, pinned: Any, address: int, region: int) -> None:
        self.tag = tag
        self.pinned = pinned
        self.address = address
        self.region = region


class Part:
    """One buffer of a group, in Pump._pending."""

    __slots__ = ("transfer", "index")

    def __init__(self, transfer: Transfer[Any], index: int) -> None:
        self.transfer = transfer
        self.index = index

    def _finish(self, status: int, address: int, size: int) -> None:
        self.transfer._finish(status, address, size, self.index)


class Transfer(Generic[R]):
    """A message under way: see Channel.post_send and Channel.post_receive. Its buffers belong to
    the device until it has ended."""

    __slots__ = (
        "_channel", "_opcode", "_buffers", "_grouped", "_deadline", "_first", "_posted", "_left", "_sizes", "_statuses", "_ended", "_future",
        "__weakref__",
    )  # fmt: skip

    def __init__(self, channel: Channel, opcode: int, buffers: list[Buffer], grouped: bool, limit_ns: int) -> None:
        """With the lock."""
        pump = channel._pump
        self._channel = channel
        self._opcode = opcode
        self._buffers = buffers
        self._grouped = grouped
        self._deadline = time.monotonic_ns() + limit_ns if limit_ns else 0
        self._first = pump._ids.value + 1
        self._left = len(buffers)
        pump._ids.value += self._left
        self._posted = False
        self._sizes = [0] * self._left
        self._statuses = [0] * self._left
        self._ended = bytearray(self._left)
        self._future: Optional[tuple[Attachment, asyncio.Future[None]]] = None

    # ---- With the lock ----

    def _op_count(self) -> int:
        return len(self._buffers)

    def _pack(self, view: Any, index: int) -> int:
        """Writes its ops from place `index` on; gives the place after them."""
        left = max(1, self._deadline - time.monotonic_ns()) if self._deadline else 0
        more = MORE
        for count, buffer in enumerate(self._buffers, 1):
            if count == len(self._buffers):
                more = 0
            CHANNEL_OP.pack_into(
                view, index * 64, self._opcode, more, 0, buffer.tag, self._channel._bits, MARK | self._first + count - 1,
                buffer.region, buffer.address, len(buffer.pinned), left, 0,
            )  # fmt: skip
            index += 1
        return index

    def _expect(self) -> None:
        pending = self._channel._pump._pending
        if len(self._buffers) == 1:
            pending[self._first] = self
        else:
            for index in range(len(self._buffers)):
                pending[self._first + index] = Part(self, index)

    def _expect_no_more(self) -> None:
        for index in range(len(self._buffers)):
            self._channel._pump._pending.pop(self._first + index, None)

    def _forget(self) -> None:
        """It was cut before the library had it."""
        self._expect_no_more()
        self._fail(lib.CRPC_E_CANCELED)

    def _finish(self, status: int, address: int, size: int, index: int = 0) -> None:
        if not self._ended[index]:  # else it was cut behind this
            self._sizes[index] = size
            self._statuses[index] = status
            self._ended[index] = 1
            self._left -= 1
        if self._left == 0:
            self._let_go()

    def _fail(self, status: int) -> None:
        """It was never posted. May be called again if it was cut."""
        self._statuses = [status] * len(self._buffers)
        self._left = 0
        self._let_go()

    def _let_go(self) -> None:
        self._channel._pump._unpin(self._buffers)
        self._buffers = []
        if self._future is not None:
            attachment, future = self._future
            attachment.resolve(future, None)

    def _result(self) -> R:
        if any(self._statuses):
            raise self._error()
        return cast(R, self._sizes if self._grouped else self._sizes[0])

    def _error(self) -> CopyrpcError:
        status = next(status for status in self._statuses if status)
        # Where some of a group are too long, that is what happened, whatever became of the others.
        if lib.CRPC_E_TRUNCATED in self._statuses:
            status = lib.CRPC_E_TRUNCATED
        what = "send" if self._opcode == SEND else "receive"
        error = error_of(status, what)
        if isinstance(error, TruncatedError):
            error.sizes = list(self._sizes)
            error.size = self._sizes[self._statuses.index(status)]
        elif status == lib.CRPC_E_DISCONNECTED and self._channel._error is not None:
            error = Disconnected(f"{what}: {self._channel._error.message}", status)
        return error

    # ---- For the application ----

    def done(self) -> bool:
        """Returns True if its end is known already. test() looks for new completions."""
        return self._left == 0

    def test(self) -> bool:
        """Looks for new completions without waiting. Returns True if this transfer has ended;
        wait() then returns its sizes, or raises."""
        if self._left:
            pump = self._channel._pump
            with pump._use:
                pump._look()
        return self._left == 0

    def wait(self, timeout: Optional[float] = None) -> R:
        """Waits until the transfer has ended. Returns the exact size, or a list of sizes for a
        group. `timeout` only limits the wait; the transfer goes on."""
        limit = timeout_ns(timeout)
        if self._left:
            pump = self._channel._pump
            with pump._use:
                pump._wait_in_time(self.done, limit, "waiting for a transfer, which goes on")
        return self._result()

    def cancel(self) -> None:
        """Ends a send that waits for its receive, or a transfer that waits for room: wait() raises
        Canceled. A send under way cannot be cancelled, and neither can a receive that the peer
        knows."""
        if self._left:
            with self._channel._pump._use:
                self._channel._cancel(self)

    def __repr__(self) -> str:
        state = "under way" if self._left else "done" if not any(self._statuses) else "failed"
        return f"<copyrpc.Transfer {'send' if self._opcode == SEND else 'receive'} {state}>"


class Outbox:
    """The transfers of one direction of a channel that the library has not accepted yet, in
    order; or the works of a queue."""

    def __init__(self, owner: Any, post: Callable[[Any, list[Any], Any], tuple[int, int]], chunk: int) -> None:
        self.owner = owner
        self.post = post
        self.chunk = chunk  # ops that one crossing takes at the most
        self.waiting: deque[Any] = deque()
        self.full = False  # until CRPC_COMPLETION_ROOM
        self.taken = ffi.new("int32_t *")  # how many ops the library took, whose transfers are in `waiting` still

    # ---- With the lock ----

    def pour(self) -> None:
        """Posts as many transfers as there is room for, many with one call of the library."""
        through(self._pour)

    def post_one(self, work: Any) -> None:
        """Posts a transfer or a work at once, and raises what keeps it: NoRoom, if others wait."""
        reason = AGAIN
        if not self.waiting:
            noted = ffi.new("int32_t *")
            with Attempt(None, self._forget, work, noted):  # Ctrl-C perhaps: was it before the library had it?
                taken, reason = self.post(self.owner, [work], noted)
            if taken:
                self.owner._pump._rearm()
                return
        work._fail(reason)
        raise work._error()

    def _forget(self, work: Any, noted: Any) -> None:
        if noted[0] < work._op_count():
            work._forget()

    def settle(self) -> None:
        """What the library took waits no more."""
        left = self.taken[0]
        if left > 0:
            while self.waiting and left >= self.waiting[0]._op_count():
                left -= self.waiting[0]._op_count()
                self.waiting[0]._posted = True
                self.taken[0] = left
                del self.waiting[0]
            self.taken[0] = 0

    def _pour(self) -> None:
        pump = self.owner._pump
        self.settle()  # it was cut, perhaps
        while self.waiting and not self.full:
            batch: list[Any] = []
            count = 0
            for transfer in self.waiting:
                count += transfer._op_count()
                if batch and count > self.chunk:
                    break
                batch.append(transfer)
            taken, reason = self.post(self.owner, batch, self.taken)
            self.settle()
            if taken == len(batch):
                continue
            if reason == AGAIN:
                self.full = True
            else:  # the next may be better
                self.waiting[0]._fail(reason)
                del self.waiting[0]
        if not self.waiting:
            pump._wake_ready()

    def take_back(self, transfer: Any, status: int) -> bool:
        """Ends a transfer that the library has not seen. Returns False if the library has it."""
        self.settle()
        if transfer not in self.waiting:
            return False
        transfer._fail(status)
        self.waiting.remove(transfer)
        return True

    def fail(self, status: int) -> None:
        self.settle()
        while self.waiting:
            self.waiting[0]._fail(status)
            del self.waiting[0]


def post(channel: Channel, transfers: list[Transfer[Any]], taken: Any) -> tuple[int, int]:
    """Submits transfers. Returns how many were accepted, and why not the next. *taken is the number
    of accepted ops. Called with the lock held."""
    pump = channel._pump
    ops = ffi.new("crpc_channel_op[]", sum(len(transfer._buffers) for transfer in transfers))
    view = ffi.buffer(ops)
    count = 0
    for transfer in transfers:
        count = transfer._pack(view, count)
        transfer._expect()  # before the library has it: an exception, of a signal handler's perhaps, may come at any time
    left = lib.copyrpc_native_channel_submit_noted(pump._pointer, ops, count, pump._reason, taken)
    for index, transfer in enumerate(transfers):
        if left < len(transfer._buffers):
            for late in transfers[index:]:
                late._expect_no_more()
            return index, int(pump._reason[0])
        left -= len(transfer._buffers)
        transfer._posted = True
    return len(transfers), 0
