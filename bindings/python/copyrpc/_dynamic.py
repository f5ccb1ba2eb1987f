"""_dynamic.py: the two ends of the dynamically connected transport (DC): queues that send to many, reliably, and those
that they send to."""
from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from . import _asyncio
from ._datagram import Target, bits_of_target
from ._native import lib
from ._options import number
from ._queue import PairedQueue, op_flags
from ._queue_options import QueueOptions, Remote
from ._work import COMPARE_SWAP, FETCH_ADD, READ, SEND, SEND_IMMEDIATE, WRITE, WRITE_IMMEDIATE, Work
from .errors import error_of

if TYPE_CHECKING:
    from ._context import Context
    from ._work import Places

#: What keeps a stream from being reset, where the name of the status alone would not say it.
_not_reset = {
    lib.CRPC_E_BUSY: "ops of the stream are open: wait until each of them has ended",
    lib.CRPC_E_UNSUPPORTED: "the queue has no streams: see QueueOptions.streams",
}


class DCTQueue(PairedQueue):
    """A DCT, made by Context.dct_queue: what the DCIQueues of other programs send to, if they know its address
    and its access_key. They write to, read and change the memory of regions that allow it, and their messages
    go to the SharedReceiveQueue that it names. It sends nothing, and what fails does not end it."""

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        super().__init__(context, bits, options)
        self._up = True


class DCIQueue(PairedQueue):
    """A DCI, made by Context.dci_queue: a queue that sends to many. Each op goes to a target of its own, which is a
    DCT: Context.target with an access_key. The device connects by itself.

    Memory is named, and ops have the same forms, as with Queue. With QueueOptions.streams, an op is of a `stream`: ops of
    one stream begin in order, and an op that fails ends its stream alone, until reset_stream. Without, it ends the queue."""

    def __init__(self, context: Context, bits: int, options: QueueOptions) -> None:
        super().__init__(context, bits, options)
        self._up = True

    # ---- Making ops, with the lock ----

    def _there(self, target: Target, what: str) -> int:
        self._check()
        return bits_of_target(self, target, what, True)

    def _sending(
        self, places: Places, target: Target, immediate: Optional[int], stream: int, solicited: bool, fence: bool
    ) -> Work[None]:
        there = self._there(target, "send")
        opcode = SEND_IMMEDIATE if immediate is not None else SEND
        flags = op_flags(solicited, fence)
        return Work(self, opcode, places, flags=flags, immediate=immediate or 0, target=there, stream=stream)

    def _writing(
        self, places: Places, remote: Remote, target: Target, immediate: Optional[int], stream: int, solicited: bool, fence: bool
    ) -> Work[None]:
        there = self._there(target, "write")
        opcode = WRITE_IMMEDIATE if immediate is not None else WRITE
        flags = op_flags(solicited, fence)
        return Work(self, opcode, places, remote, flags=flags, immediate=immediate or 0, target=there, stream=stream)

    def _reading(self, places: Places, remote: Remote, target: Target, stream: int, fence: bool) -> Work[int]:
        there = self._there(target, "read")
        return Work(self, READ, places, remote, flags=op_flags(False, fence), target=there, stream=stream)

    def _swapping(self, remote: Remote, compare: int, swap: int, target: Target, stream: int, fence: bool) -> Work[int]:
        there = self._there(target, "compare_swap")
        flags = op_flags(False, fence)
        return Work(
            self, COMPARE_SWAP, None, remote, flags=flags, compare=compare, operand=swap, target=there, stream=stream
        )

    def _adding(self, remote: Remote, add: int, target: Target, stream: int, fence: bool) -> Work[int]:
        there = self._there(target, "fetch_add")
        return Work(self, FETCH_ADD, None, remote, flags=op_flags(False, fence), operand=add, target=there, stream=stream)

    # ---- Messages ----

    def send(
        self,
        places: Places,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Sends a message, perhaps with an `immediate` of 32 bits, which takes a receive of the DCT's."""
        with self._pump._use:
            self._finish(self._sending(places, target, immediate, stream, solicited, fence), timeout)

    async def asend(
        self,
        places: Places,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Does the same as send, for coroutines."""
        await self._arun(lambda: self._sending(places, target, immediate, stream, solicited, fence))

    def post_send(
        self,
        places: Places,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
    ) -> Work[None]:
        """Starts to send a message. Raises NoRoom if there is no room for it."""
        with self._pump._use:
            return self._post(self._sending(places, target, immediate, stream, solicited, fence))

    # ---- Memory there ----

    def write(
        self,
        places: Places,
        remote: Remote,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Writes to memory there. With an `immediate`, it then takes a receive of the DCT's."""
        with self._pump._use:
            self._finish(self._writing(places, remote, target, immediate, stream, solicited, fence), timeout)

    async def awrite(
        self,
        places: Places,
        remote: Remote,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Does the same as write, for coroutines."""
        await self._arun(lambda: self._writing(places, remote, target, immediate, stream, solicited, fence))

    def post_write(
        self,
        places: Places,
        remote: Remote,
        target: Target,
        *,
        immediate: Optional[int] = None,
        stream: int = 0,
        solicited: bool = False,
        fence: bool = False,
    ) -> Work[None]:
        """Starts to write to memory there."""
        with self._pump._use:
            return self._post(self._writing(places, remote, target, immediate, stream, solicited, fence))

    def read(
        self,
        places: Places,
        remote: Remote,
        target: Target,
        *,
        stream: int = 0,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> int:
        """Reads memory there. Returns how many bytes were read."""
        with self._pump._use:
            return self._finish(self._reading(places, remote, target, stream, fence), timeout)

    async def aread(self, places: Places, remote: Remote, target: Target, *, stream: int = 0, fence: bool = False) -> int:
        """Does the same as read, for coroutines."""
        return await self._arun(lambda: self._reading(places, remote, target, stream, fence))

    def post_read(self, places: Places, remote: Remote, target: Target, *, stream: int = 0, fence: bool = False) -> Work[int]:
        """Starts to read memory there."""
        with self._pump._use:
            return self._post(self._reading(places, remote, target, stream, fence))

    def compare_swap(
        self,
        remote: Remote,
        compare: int,
        swap: int,
        target: Target,
        *,
        stream: int = 0,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> int:
        """Replaces 8 bytes of memory there by `swap`, if they are equal to `compare`. Returns what was there before:
        a number without a sign, in the byte order of the machines."""
        with self._pump._use:
            return self._finish(self._swapping(remote, compare, swap, target, stream, fence), timeout)

    async def acompare_swap(
        self, remote: Remote, compare: int, swap: int, target: Target, *, stream: int = 0, fence: bool = False
    ) -> int:
        """Does the same as compare_swap, for coroutines."""
        return await self._arun(lambda: self._swapping(remote, compare, swap, target, stream, fence))

    def post_compare_swap(
        self, remote: Remote, compare: int, swap: int, target: Target, *, stream: int = 0, fence: bool = False
    ) -> Work[int]:
        """Starts a compare_swap."""
        with self._pump._use:
            return self._post(self._swapping(remote, compare, swap, target, stream, fence))

    def fetch_add(
        self,
        remote: Remote,
        add: int,
        target: Target,
        *,
        stream: int = 0,
        fence: bool = False,
        timeout: Optional[float] = None,
    ) -> int:
        """Adds to 8 bytes of memory there, modulo 2^64. Returns what was there before."""
        with self._pump._use:
            return self._finish(self._adding(remote, add, target, stream, fence), timeout)

    async def afetch_add(
        self, remote: Remote, add: int, target: Target, *, stream: int = 0, fence: bool = False
    ) -> int:
        """Does the same as fetch_add, for coroutines."""
        return await self._arun(lambda: self._adding(remote, add, target, stream, fence))

    def post_fetch_add(
        self, remote: Remote, add: int, target: Target, *, stream: int = 0, fence: bool = False
    ) -> Work[int]:
        """Starts a fetch_add."""
        with self._pump._use:
            return self._post(self._adding(remote, add, target, stream, fence))

    # ---- Streams ----

    def reset_stream(self, stream: int) -> None:
        """Makes a stream usable again after one of its ops has failed: then all others that were posted to it raise
        Flushed, until this. Raises InvalidArgument while some of them have not ended."""
        number(stream, "stream", 0, 0xFFFFFFFF)
        with self._pump._use as pointer:
            self._check()
            status = lib.crpc_queue_reset_stream(pointer, self._handle[0], stream)
            if status < 0:
                error = error_of(status, f"reset_stream of stream {stream}")
                if status in _not_reset:
                    error.message = f"reset_stream of stream {stream}: {_not_reset[status]}"
                raise error

    async def areset_stream(self, stream: int) -> None:
        """Does the same as reset_stream, for coroutines. The loop goes on while the system asks the device."""
        await _asyncio.in_thread(self._pump, self.reset_stream, stream)
