"""_channel.py: a channel: messages that are striped over one rail or two, directly into the memory
of the receiver."""
from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterable, Iterator, Optional, Sequence, Union, cast, overload

from . import _asyncio
from ._channel_options import ChannelInfo, ChannelStats, RailEvent, channel_info, channel_stats
from ._connection import Connection
from ._guards import Attempt
from ._native import ffi, lib
from ._options import number, pin, pin_writable, sized, timeout_ns
from ._records import CHANNEL_OP, MARK
from ._transfer import CANCEL, CHUNK, RECEIVE, SEND, Buffer, Outbox, Transfer, post
from .errors import CopyrpcError, check

if TYPE_CHECKING:
    from typing_extensions import Buffer as AnyBuffer

    from ._context import Context

_EVENTS_MAX = 1024
_UINT32_MAX = 0xFFFFFFFF


class Channel(Connection):
    """A channel, made by Context.connect_channel or a ChannelListener. The receiver posts buffers,
    and the sender's messages go into them in order. If buffers have tags, this holds for each
    tag."""

    _kind = "crpc_channel"

    def __init__(self, context: Context, bits: int) -> None:
        self._pump = context
        self._begin(context, bits)
        self._sends = Outbox(self, post, CHUNK)
        self._receives = Outbox(self, post, CHUNK)
        self._scheduled = False
        self._events: deque[RailEvent] = deque(maxlen=_EVENTS_MAX)
        context._channels[bits] = self

    # ---- Events, with the lock ----

    def _lost(self, error: CopyrpcError) -> None:
        super()._lost(error)
        for box in (self._sends, self._receives):
            box.fail(error.status if error.status < 0 else lib.CRPC_E_DISCONNECTED)
        self._pump._channels.pop(self._bits, None)  # last: if this was cut, it is done again

    def _forget(self) -> None:
        self._pump._channels.pop(self._bits, None)

    def _rail(self, index: int, status: int) -> None:
        self._pump._put(self._events, RailEvent(index, status == 0))

    def _room(self) -> None:
        for box in (self._sends, self._receives):
            box.full = False
            box.pour()

    # ---- Making transfers, with the lock ----

    def _buffer(self, buffer: AnyBuffer, tag: int, opcode: int) -> Buffer:
        if tag.__class__ is not int or not 0 <= tag <= _UINT32_MAX:
            number(tag, "tag", 0, _UINT32_MAX)
        pinned = pin(buffer, "what is sent") if opcode == SEND else pin_writable(buffer, "what receives")
        address = int(ffi.cast("uintptr_t", pinned))
        return Buffer(tag, pinned, address, self._pump._region_of(address, len(pinned), opcode == RECEIVE))

    def _sending(self, buffer: AnyBuffer, tag: int, timeout: Optional[float]) -> Transfer[int]:
        limit = timeout_ns(timeout)
        self._check()
        return Transfer(self, SEND, [self._buffer(buffer, tag, SEND)], False, limit)

    def _receiving(self, buffers: Union[AnyBuffer, Sequence[AnyBuffer]], tags: Union[int, Sequence[int]]) -> Transfer[Any]:
        self._check()
        if not isinstance(buffers, (list, tuple)):
            return Transfer(self, RECEIVE, [self._buffer(cast("AnyBuffer", buffers), cast(int, tags), RECEIVE)], False, 0)
        if not buffers:
            raise ValueError("a group has a buffer at least")
        own = list(tags) if isinstance(tags, (list, tuple)) else [cast(int, tags)] * len(buffers)
        if len(own) != len(buffers):
            raise ValueError(f"{len(buffers)} buffers have {len(own)} tags")
        return Transfer(self, RECEIVE, [self._buffer(buffer, tag, RECEIVE) for buffer, tag in zip(buffers, own)], True, 0)

    def _box(self, transfer: Transfer[Any]) -> Outbox:
        return self._sends if transfer._opcode == SEND else self._receives

    def _give(self, transfers: list[Transfer[Any]]) -> None:
        """Passes transfers to the library as soon as it has room."""
        box = self._box(transfers[0])
        box.waiting.extend(transfers)
        box.pour()
        self._pump._rearm()

    def _cancel(self, transfer: Transfer[Any]) -> None:
        if self._box(transfer).take_back(transfer, lib.CRPC_E_CANCELED):
            self._pump._wake_ready()
        elif transfer._left and transfer._opcode == SEND and self._error is None:
            op = ffi.new("crpc_channel_op[1]")
            user_data = MARK | self._pump._next_id()
            CHANNEL_OP.pack_into(ffi.buffer(op), 0, CANCEL, 0, 0, 0, self._bits, user_data, 0, 0, 0, 0, MARK | transfer._first)
            lib.crpc_channel_submit(self._pump._pointer, op, 1, self._pump._reason)
            self._pump._rearm()

    def _cancel_all(self, transfers: list[Transfer[Any]]) -> None:
        """Those that are open still."""
        if self._pump._pointer is not None:
            for transfer in transfers:
                self._cancel(transfer)

    def _post(self, transfer: Transfer[Any]) -> Transfer[Any]:
        self._box(transfer).post_one(transfer)
        return transfer

    # ---- Posting, and looking later ----

    def post_send(self, buffer: AnyBuffer, tag: int = 0, *, timeout: Optional[float] = None) -> Transfer[int]:
        """Starts to send a buffer. test() and wait() of the Transfer tell when it has ended.
        `timeout` limits how long it may wait for the peer to post a buffer. Raises NoRoom if
        ChannelOptions.sends_max sends are open. The buffer must not change until the transfer has
        ended."""
        with self._pump._use:
            return self._post(self._sending(buffer, tag, timeout))

    @overload
    def post_receive(self, buffers: AnyBuffer, tags: int = 0) -> Transfer[int]: ...

    @overload
    def post_receive(self, buffers: Sequence[AnyBuffer], tags: Union[int, Sequence[int]] = 0) -> Transfer[list[int]]: ...

    def post_receive(self, buffers: Union[AnyBuffer, Sequence[AnyBuffer]], tags: Union[int, Sequence[int]] = 0) -> Any:
        """Posts a buffer for the next message, or a list of up to eight buffers with tags. Raises
        NoRoom if ChannelOptions.slots receives are open. Only closing the channel can take a posted
        buffer back."""
        with self._pump._use:
            return self._post(self._receiving(buffers, tags))

    # ---- Simple ----

    def _finish(self, transfer: Transfer[Any]) -> Any:
        """Posts a transfer as soon as there is room, and waits for its end. Called with the lock
        held."""
        pump = self._pump
        with Attempt(None, self._cancel_all, [transfer]):  # Ctrl-C perhaps
            self._give([transfer])
            if transfer._deadline and not transfer._posted:
                pump._wait(lambda: transfer._posted or transfer.done(), transfer._deadline)
                self._sends.take_back(transfer, lib.CRPC_E_TIMEOUT)
            pump._wait(transfer.done)
        return transfer._result()

    def send(self, buffer: AnyBuffer, tag: int = 0, *, timeout: Optional[float] = None) -> int:
        """Sends a message and waits until the peer has it. `timeout` limits the wait for the peer's
        buffer. Returns the size of the message."""
        with self._pump._use:
            size: int = self._finish(self._sending(buffer, tag, timeout))
            return size

    @overload
    def receive(self, buffers: AnyBuffer, tags: int = 0) -> int: ...

    @overload
    def receive(self, buffers: Sequence[AnyBuffer], tags: Union[int, Sequence[int]] = 0) -> list[int]: ...

    def receive(self, buffers: Union[AnyBuffer, Sequence[AnyBuffer]], tags: Union[int, Sequence[int]] = 0) -> Any:
        """Receives the next message into a buffer, or into a list of up to eight buffers with tags,
        and waits for it. Returns the exact size of what arrived, or a list of sizes. If an
        exception such as KeyboardInterrupt ends the wait, the buffers stay posted."""
        with self._pump._use:
            return self._finish(self._receiving(buffers, tags))

    # ---- Many ----

    def _finish_all(self, transfers: list[Transfer[Any]], return_exceptions: bool) -> list[Any]:
        left = iter(transfers)
        first = next(left, None)

        def over() -> bool:
            nonlocal first
            while first is not None and first.done():
                first = next(left, None)
            return first is None

        if transfers:
            with Attempt(None, self._cancel_all, transfers):
                self._give(transfers)
                self._pump._wait(over)
        results: list[Any] = []
        for transfer in transfers:
            try:
                results.append(transfer._result())
            except CopyrpcError as error:
                results.append(error)
                if not return_exceptions:
                    raise
        return results

    def send_many(
        self,
        buffers: Iterable[AnyBuffer],
        tags: Union[int, Sequence[int]] = 0,
        *,
        timeout: Optional[float] = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Sends many messages with few calls of the library, and waits until all have ended.
        Returns their sizes. Raises the first exception, or with return_exceptions puts exceptions
        in the list. `timeout` counts from now."""
        chosen = list(buffers)
        own = [tags] * len(chosen) if isinstance(tags, int) else list(tags)
        if len(own) != len(chosen):
            raise ValueError(f"{len(chosen)} buffers have {len(own)} tags")
        with self._pump._use:
            return self._finish_all([self._sending(buffer, tag, timeout) for buffer, tag in zip(chosen, own)], return_exceptions)

    def receive_many(
        self,
        buffers: Iterable[Union[AnyBuffer, Sequence[AnyBuffer]]],
        tags: Union[int, Sequence[Union[int, Sequence[int]]]] = 0,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Receives one message for each item, which is a buffer or a group of buffers. Returns a
        list of what receive() returns."""
        chosen = list(buffers)
        own: list[Any] = [tags] * len(chosen) if isinstance(tags, int) else list(tags)
        if len(own) != len(chosen):
            raise ValueError(f"{len(chosen)} messages have {len(own)} tags")
        with self._pump._use:
            return self._finish_all([self._receiving(buffer, tag) for buffer, tag in zip(chosen, own)], return_exceptions)

    # ---- For coroutines ----

    def _schedule(self, transfer: Transfer[Any], attachment: _asyncio.Attachment) -> None:
        """Posts a transfer at the end of the loop's turn, together with all others of that turn.
        Called with the lock held."""
        transfer._future = attachment, attachment.loop.create_future()
        self._box(transfer).waiting.append(transfer)
        if not self._scheduled:
            self._scheduled = True
            attachment.channels.append(self)
        attachment.schedule()

    def _flush(self) -> None:
        self._scheduled = False
        if self._error is None:
            self._sends.pour()
            self._receives.pour()

    def _expire(self, transfer: Transfer[Any]) -> None:
        if transfer._left and self._pump._pointer is not None:
            assert transfer._future is not None
            attachment = transfer._future[0]
            if attachment.away:
                attachment.late.append(lambda: self._expire(transfer))
                return
            with self._pump._use:
                self._box(transfer).take_back(transfer, lib.CRPC_E_TIMEOUT)

    async def _afinish(self, transfer: Transfer[Any], timeout: Optional[float] = None) -> Any:
        assert transfer._future is not None
        attachment, future = transfer._future
        timer = attachment.loop.call_later(timeout, self._expire, transfer) if timeout is not None else None
        try:
            await future
        except asyncio.CancelledError:
            while attachment.away:
                await attachment.home.wait()
            if not transfer.done() and self._pump._pointer is not None:
                again = attachment.loop.create_future()
                transfer._future = attachment, again
                transfer.cancel()
                if transfer._opcode == SEND:
                    await again  # its buffer may be used again when this ends
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return transfer._result()

    async def asend(self, buffer: AnyBuffer, tag: int = 0, *, timeout: Optional[float] = None) -> int:
        """Does the same as send, for coroutines. Cancelling the task cancels a send that still
        waits for its receive."""
        attachment = await _asyncio.ready(self._pump)
        with self._pump._use:
            transfer = self._sending(buffer, tag, timeout)
            self._schedule(transfer, attachment)
        size: int = await self._afinish(transfer, timeout)
        return size

    @overload
    async def areceive(self, buffers: AnyBuffer, tags: int = 0) -> int: ...

    @overload
    async def areceive(self, buffers: Sequence[AnyBuffer], tags: Union[int, Sequence[int]] = 0) -> list[int]: ...

    async def areceive(self, buffers: Union[AnyBuffer, Sequence[AnyBuffer]], tags: Union[int, Sequence[int]] = 0) -> Any:
        """Does the same as receive, for coroutines. If the task is cancelled, the buffers stay
        posted, and the next message still goes there."""
        attachment = await _asyncio.ready(self._pump)
        with self._pump._use:
            transfer = self._receiving(buffers, tags)
            self._schedule(transfer, attachment)
        return await self._afinish(transfer)

    # ---- Rails ----

    @property
    def rails(self) -> tuple[str, ...]:
        """The state of each rail: see ChannelInfo.rails."""
        return self.info().rails

    def set_share(self, rail0_share: int) -> None:
        """Makes rail 0 carry rail0_share / 1024 of all messages that are posted from now on."""
        share = number(rail0_share, "rail0_share", 0, _UINT32_MAX)
        with self._pump._use as pointer:
            self._check()
            check(lib.crpc_channel_set_share(pointer, self._handle[0], share), "set_share")

    def events(self, timeout: Optional[float] = None) -> Iterator[RailEvent]:
        """Yields changes of the rails as they happen. Ends with the channel, or after `timeout`
        seconds without a change; 0 yields the changes that there are already."""
        limit = timeout_ns(timeout)
        while True:
            with self._pump._use:
                self._pump._look()
                deadline = time.monotonic_ns() + limit if limit else None
                self._pump._wait(self._eventful, deadline)
                if not self._events:
                    return
                event = self._events.popleft()
            yield event

    async def aevents(self) -> AsyncIterator[RailEvent]:
        """Does the same as events, for coroutines. Ends with the channel."""
        while True:
            await _asyncio.wait(self._pump, self._eventful)
            if self._events:
                yield self._events.popleft()
            elif self._error is not None:
                return

    def _eventful(self) -> bool:
        return bool(self._events) or self._error is not None

    # ---- Looking ----

    def info(self) -> ChannelInfo:
        """Describes the channel: rails, addresses, and open transfers."""
        return channel_info(self._info())

    def stats(self) -> ChannelStats:
        """Returns the counters. After the connection has ended, returns their last values."""
        stats: ChannelStats = self._stats()
        return stats

    def _read_stats(self) -> ChannelStats:
        struct = sized("crpc_channel_stats")
        check(lib.crpc_channel_get_stats(self._pump._pointer, self._handle[0], struct))
        return channel_stats(struct)
