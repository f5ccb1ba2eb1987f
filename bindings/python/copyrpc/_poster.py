"""_poster.py: what queues and lanes have in common: ops that somebody waits for, one by one or in arrays."""
from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from . import _asyncio
from ._connection import Connection
from ._guards import through
from ._native import lib
from ._options import timeout_ns
from ._region import Region
from ._transfer import AGAIN, Outbox
from ._work import Work
from ._work_array import WorkArray, ops_of, pieces_of, region_bits
from .errors import CopyrpcError, error_of

if TYPE_CHECKING:
    from ._context import Context

R = TypeVar("R")


class Poster(Connection):
    """A connection that the application posts works to."""

    #: What its arrays consist of.
    _form: str
    #: The member of struct copyrpc_native_works that names it.
    _native_name: str
    _sparse = False

    def _begin(self, context: Context, bits: int) -> None:
        super()._begin(context, bits)
        self._scheduled = False
        self._rooms = 0  # how often CRPC_COMPLETION_ROOM came

    # ---- Events, with the lock ----

    def _boxes(self) -> tuple[Outbox, ...]:
        raise NotImplementedError

    def _box(self, work: Work[Any]) -> Outbox:
        raise NotImplementedError

    def _fail_boxes(self, error: CopyrpcError) -> None:
        for box in self._boxes():
            box.fail(error.status if error.status < 0 else lib.CRPC_E_DISCONNECTED)

    def _room(self) -> None:
        self._rooms += 1
        for box in self._boxes():
            box.full = False
            box.pour()

    def _refusal(self, status: int, what: str) -> CopyrpcError:
        """Returns the exception for an op that failed."""
        return error_of(status, what)

    # ---- One op, with the lock ----

    def _post(self, work: Work[R]) -> Work[R]:
        self._box(work).post_one(work)
        return work

    def _finish(self, work: Work[R], timeout: Optional[float]) -> R:
        """Posts an op as soon as there is room, and waits for its end. Called with the lock
        held."""
        pump = self._pump
        limit = timeout_ns(timeout)
        box = self._box(work)
        try:
            box.waiting.append(work)
            box.pour()
            pump._rearm()
            if not pump._wait(work.done, time.monotonic_ns() + limit if limit else None):
                if not box.take_back(work, lib.CRPC_E_TIMEOUT):
                    raise error_of(lib.CRPC_E_TIMEOUT, "the op is under way, and goes on")
        except BaseException:  # Ctrl-C perhaps
            if pump._pointer is not None:
                through(self._give_up, work)
            raise
        return work._result()

    def _give_up(self, work: Work[Any]) -> None:
        """Nobody waits for it any more. May be called again if it was cut."""
        if not self._box(work).take_back(work, lib.CRPC_E_CANCELED):
            work._abandon()

    def _flush(self) -> None:
        """At the end of the loop's turn."""
        self._scheduled = False
        if self._error is None:
            for box in self._boxes():
                box.pour()

    def _schedule(self, work: Work[Any], attachment: _asyncio.Attachment) -> None:
        """Posts an op at the end of the loop's turn, together with all others of that turn."""
        work._future = attachment, attachment.loop.create_future()
        self._box(work).waiting.append(work)
        if not self._scheduled:
            self._scheduled = True
            attachment.channels.append(self)
        attachment.schedule()

    # ---- One op, without the lock ----

    async def _arun(self, make: Callable[[], Work[R]]) -> R:
        """Makes an op with the lock held, posts it as _schedule does, and waits for its end."""
        attachment = await _asyncio.ready(self._pump)
        with self._pump._use:
            work = make()
            self._schedule(work, attachment)
        return await self._afinish(work)

    async def _afinish(self, work: Work[R]) -> R:
        assert work._future is not None
        attachment, future = work._future
        try:
            await future
        except asyncio.CancelledError:
            through(attachment.when_home, functools.partial(self._take_back, work))
            raise
        return work._result()

    def _take_back(self, work: Work[Any]) -> None:
        with self._pump._lock:
            if self._pump._pointer is not None:
                through(self._give_up, work)

    # ---- Arrays ----

    def _native_submit(self, context: Any, ops: Any, count: int, region: int, pieces: Any, piece_count: int) -> int:
        """Calls the library. Pump._reason has why it stopped."""
        raise NotImplementedError

    def _has_unseen(self) -> bool:
        """Tells whether a TAG_SYNC is refused: see TaggedReceiveQueue."""
        return False

    def _submit_array(self, ops: Any, count: Optional[int], first: int, region: Optional[Region], pieces: Any = None) -> int:
        held, pointer, length = ops_of(ops, self._form)
        held_pieces, pieces_pointer, piece_count = pieces_of(pieces)
        if count is None:
            count = length - first
        if not 0 <= first <= length or not 0 <= count <= length - first:
            raise ValueError(f"{count} ops from {first} on are not in an array of {length}")
        pump = self._pump
        with pump._use as context:
            self._check()
            taken = self._native_submit(context, pointer + first, count, region_bits(self, region), pieces_pointer, piece_count)
            if taken <= 0 < count and pump._reason[0] != AGAIN:
                raise self._refusal(pump._reason[0], "submit")
            if pump._sleeping or pump._attachment is not None:
                pump._rearm()
        del held, held_pieces
        return int(taken)

    def _wait_for_array(
        self, ops: Any, completions: Any, region: Optional[Region], pieces: Any, timeout: Optional[float]
    ) -> Any:
        limit = timeout_ns(timeout)
        return WorkArray(self, ops, completions, region, pieces).run(limit)

    # ---- The end ----

    def _open_works(self) -> bool:
        return any(isinstance(pending, Work) and pending._queue is self for pending in self._pump._pending.values())

    def close(self) -> None:
        """Ends the connection at once. Everything under way raises Closed. Closing twice does no
        harm."""
        super().close()
        if self._pump._pointer is not None:
            with self._pump._use:
                while self._open_works() and self._pump._poll():
                    pass
