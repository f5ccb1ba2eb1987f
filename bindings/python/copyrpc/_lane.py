"""_lane.py: the lane of an endpoint: reads, writes and atomics of memory that the other side has granted."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Optional

from . import _asyncio
from ._grant import Grant, Where, access_bits
from ._lane_work import CHUNK, COMPARE_SWAP, FETCH_ADD, GRANT, READ, REVOKE, WRITE, LaneWork, post
from ._native import ffi, lib
from ._options import number, pin, sized, timeout_ns
from ._poster import Poster
from ._region import Region
from ._transfer import AGAIN, Outbox
from ._work import Work
from ._work_array import WorkArray
from .errors import Closed, CopyrpcError, check, error_of, new_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._context import Context
    from ._work import Place, Places


class Lane(Poster):
    """What an Endpoint can do if both sides have EndpointOptions.lane.

    Memory of this side is a slice of a Region, a buffer that lies in one, or for write() and read() a list of
    these. Other buffers of up to ContextInfo.inline_bytes_max are copied where they are written. Memory of the
    peer is a Grant that it has given, or grant.at(offset). Each op has three forms: write() waits for its end; awrite()
    does so for coroutines; post_write() returns a Work. No op can be taken back: if `timeout`, a cancelled
    task or Ctrl-C ends the wait, it goes on. If there is no lane yet, or it is being made again, the first
    two wait for it, and post_write() raises NoRoom."""

    _form = "crpc_lane_op"
    _native_name = "endpoint"

    def _begin(self, context: Context, bits: int) -> None:
        super()._begin(context, bits)
        self._lane = Outbox(self, post, CHUNK)

    # ---- Events, with the lock ----

    def _boxes(self) -> tuple[Outbox, ...]:
        return (self._lane,)

    def _box(self, work: Work[Any]) -> Outbox:
        return self._lane

    def _refusal(self, status: int, what: str) -> CopyrpcError:
        error = error_of(status, what)
        if status == lib.CRPC_E_FLUSHED:
            error.message = f"{what}: the lane failed before the op was known to be done; Context.log() tells why"
        elif status == AGAIN:
            error.message = f"{what}: there is no room in the lane, or no lane yet"
        elif status in (lib.CRPC_E_DISCONNECTED, lib.CRPC_E_CLOSING) and self._error is not None:
            error.message = f"{what}: {self._error.message}"
        return error

    async def _poured(self) -> None:
        """Waits until the library has got what coroutines have asked for before this."""
        if self._lane.waiting:
            last = self._lane.waiting[-1]
            await _asyncio.wait(self._pump, lambda: last._posted or last.done() or self._error is not None)
        pump = self._pump
        arrays = [works for works in pump._works if works.poster is self]
        if arrays:
            await _asyncio.wait(pump, lambda: self._error is not None or not any(works in pump._works and works._waits() for works in arrays))

    async def adisconnect(self, timeout: Optional[float] = None) -> None:
        """Does the same as disconnect, for coroutines. Ops of the lane that coroutines have begun before are
        under way, too."""
        await self._poured()
        await super().adisconnect(timeout)

    # ---- Making ops, with the lock ----

    def _writing(self, places: Places, there: Where, fence: bool) -> Work[None]:
        self._check()
        return LaneWork(self, WRITE, places, there, fence=fence)

    def _reading(self, places: Places, there: Where, fence: bool) -> Work[int]:
        self._check()
        return LaneWork(self, READ, places, there, fence=fence)

    def _swapping(self, there: Where, compare: int, swap: int, fence: bool) -> Work[int]:
        self._check()
        return LaneWork(self, COMPARE_SWAP, None, there, fence=fence, compare=compare, operand=swap)

    def _adding(self, there: Where, add: int, fence: bool) -> Work[int]:
        self._check()
        return LaneWork(self, FETCH_ADD, None, there, fence=fence, operand=add)

    def _granting(self, place: Place, access: str) -> Work[Grant]:
        self._check()
        return LaneWork(self, GRANT, place, access=access_bits(access))

    def _revoking(self, grant: Grant, timeout: Optional[float]) -> Work[None]:
        self._check()
        limit = timeout_ns(timeout)
        if not isinstance(grant, Grant):
            raise TypeError(f"what is revoked is a Grant, not {type(grant).__name__}")
        if grant._endpoint is self and not grant.of_peer and grant._over():
            raise Closed("revoke: the grant has ended", lib.CRPC_E_STALE)
        return LaneWork(self, REVOKE, None, grant, operand=limit)

    # ---- Grants ----

    def grant(self, place: Place, access: str, *, timeout: Optional[float] = None) -> Grant:
        """Lets the peer use memory: "r" to read, "w" to write, "a" for atomics, or several of these. Returns
        the Grant, whose bytes() go to the peer in any payload. The region needs no remote rights. It can
        be closed when the grant has ended: by revoke(), with the lane, or with the endpoint. At the end of a
        `with` block, the grant is revoked."""
        with self._pump._use:
            return self._finish(self._granting(place, access), timeout)

    async def agrant(self, place: Place, access: str) -> Grant:
        """Does the same as grant, for coroutines."""
        return await self._arun(lambda: self._granting(place, access))

    def post_grant(self, place: Place, access: str) -> Work[Grant]:
        """Starts to grant memory."""
        with self._pump._use:
            return self._post(self._granting(place, access))

    def revoke(self, grant: Grant, *, timeout: Optional[float] = None) -> None:
        """Ends a grant of this side. The peer is asked to let go of it, and answers when its program polls,
        and its ops have ended. It has `timeout` seconds for this: then the grant ends all the same, and with
        it the lane if the peer still uses it. When this returns, nobody reaches the memory any more."""
        with self._pump._use:
            self._finish(self._revoking(grant, timeout), None)

    async def arevoke(self, grant: Grant, *, timeout: Optional[float] = None) -> None:
        """Does the same as revoke, for coroutines."""
        await self._arun(lambda: self._revoking(grant, timeout))

    def post_revoke(self, grant: Grant, *, timeout: Optional[float] = None) -> Work[None]:
        """Starts to end a grant of this side."""
        with self._pump._use:
            return self._post(self._revoking(grant, timeout))

    def _try_open(self, pinned: Any) -> Optional[Grant]:
        """Returns None if there is no lane yet. Called with the lock held."""
        self._check()
        handle = ffi.new("crpc_grant *")
        error = new_error()
        status = lib.crpc_grant_open(self._pump._pointer, self._handle[0], pinned, len(pinned), handle, error)
        if status == AGAIN:
            return None
        check(status, "open_grant", error)
        return self._grant_of(handle.bits)

    def _grant_of(self, bits: int) -> Grant:
        """Called with the lock held."""
        info = sized("crpc_grant_info")
        check(lib.crpc_grant_get_info(self._pump._pointer, {"bits": bits}, info), "grant")
        if info.endpoint.bits != self._bits:
            raise ValueError("the grant is of another endpoint")
        return Grant(self, bits, info.bytes, info.access, bool(info.of_peer))

    def open_grant(self, data: Buffer, *, timeout: Optional[float] = None) -> Grant:
        """Returns the grant that the peer has made, of its bytes. They may come from anybody: what they name
        is only reached over this endpoint's lane, if its peer has granted it. Raises ProtocolError if they
        are cut or damaged, and Closed if they are of another connection or revoked. Waits for the lane if
        there is none yet."""
        limit = timeout_ns(timeout)
        pinned = pin(data, "a grant")
        deadline = time.monotonic_ns() + limit if limit else None
        with self._pump._use:
            while True:
                seen = self._rooms
                grant = self._try_open(pinned)
                if grant is not None:
                    return grant
                if not self._pump._wait(lambda: self._rooms != seen or self._error is not None, deadline):  # noqa: B023, awaited here
                    raise error_of(lib.CRPC_E_TIMEOUT, "open_grant: there is no lane yet")

    async def aopen_grant(self, data: Buffer) -> Grant:
        """Does the same as open_grant, for coroutines."""
        pinned = pin(data, "a grant")
        while True:
            await _asyncio.ready(self._pump)
            with self._pump._use:
                seen = self._rooms
                grant = self._try_open(pinned)
            if grant is not None:
                return grant
            await _asyncio.wait(self._pump, lambda: self._rooms != seen or self._error is not None)  # noqa: B023, awaited here

    def grant_of(self, bits: int) -> Grant:
        """Returns the Grant of a handle: the `token` of the completion of a LANE_GRANT in an array."""
        number(bits, "the bits of a grant", 0, (1 << 64) - 1)
        with self._pump._use:
            self._check()
            return self._grant_of(bits)

    # ---- The peer's memory ----

    def write(self, places: Places, there: Where, *, fence: bool = False, timeout: Optional[float] = None) -> None:
        """Writes to memory that the peer has granted. With `fence`, the op begins when all reads and atomics
        before it have ended."""
        with self._pump._use:
            self._finish(self._writing(places, there, fence), timeout)

    async def awrite(self, places: Places, there: Where, *, fence: bool = False) -> None:
        """Does the same as write, for coroutines."""
        await self._arun(lambda: self._writing(places, there, fence))

    def post_write(self, places: Places, there: Where, *, fence: bool = False) -> Work[None]:
        """Starts to write to memory of the peer."""
        with self._pump._use:
            return self._post(self._writing(places, there, fence))

    def read(self, places: Places, there: Where, *, fence: bool = False, timeout: Optional[float] = None) -> int:
        """Reads memory that the peer has granted; what writes before it have written is there. Returns how
        many bytes were read."""
        with self._pump._use:
            return self._finish(self._reading(places, there, fence), timeout)

    async def aread(self, places: Places, there: Where, *, fence: bool = False) -> int:
        """Does the same as read, for coroutines."""
        return await self._arun(lambda: self._reading(places, there, fence))

    def post_read(self, places: Places, there: Where, *, fence: bool = False) -> Work[int]:
        """Starts to read memory of the peer."""
        with self._pump._use:
            return self._post(self._reading(places, there, fence))

    def compare_swap(
        self, there: Where, compare: int, swap: int, *, fence: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Replaces 8 bytes of the peer's memory by `swap`, if they are equal to `compare`. Returns what was
        there before: a number without a sign, in the byte order of the machines."""
        with self._pump._use:
            return self._finish(self._swapping(there, compare, swap, fence), timeout)

    async def acompare_swap(self, there: Where, compare: int, swap: int, *, fence: bool = False) -> int:
        """Does the same as compare_swap, for coroutines."""
        return await self._arun(lambda: self._swapping(there, compare, swap, fence))

    def post_compare_swap(self, there: Where, compare: int, swap: int, *, fence: bool = False) -> Work[int]:
        """Starts a compare_swap."""
        with self._pump._use:
            return self._post(self._swapping(there, compare, swap, fence))

    def fetch_add(self, there: Where, add: int, *, fence: bool = False, timeout: Optional[float] = None) -> int:
        """Adds to 8 bytes of the peer's memory, modulo 2^64. Returns what was there before."""
        with self._pump._use:
            return self._finish(self._adding(there, add, fence), timeout)

    async def afetch_add(self, there: Where, add: int, *, fence: bool = False) -> int:
        """Does the same as fetch_add, for coroutines."""
        return await self._arun(lambda: self._adding(there, add, fence))

    def post_fetch_add(self, there: Where, add: int, *, fence: bool = False) -> Work[int]:
        """Starts a fetch_add."""
        with self._pump._use:
            return self._post(self._adding(there, add, fence))

    # ---- Arrays ----

    def submit(self, ops: Any, count: Optional[int] = None, first: int = 0, *, region: Optional[Region] = None, pieces: Any = None) -> int:
        """Submits `count` ops of an array from index `first`, with one call of the library: see lane_ops.
        Their completions come by Context.poll. Ops with memory that name no region are in `region`. Returns
        how many were accepted. It accepts fewer if there was no room: poll, and then submit the rest. Raises
        an exception if the first op was refused for another reason."""
        return self._submit_array(ops, count, first, region, pieces)

    def _native_submit(self, context: Any, ops: Any, count: int, region: int, pieces: Any, piece_count: int) -> int:
        return int(lib.copyrpc_native_lane_submit_array(
            context, self._handle[0], ops, count, {"bits": region}, pieces, piece_count, self._pump._reason
        ))  # fmt: skip

    def submit_and_wait(
        self,
        ops: Any,
        completions: Any = None,
        *,
        region: Optional[Region] = None,
        pieces: Any = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Submits all ops of an array as there is room, and waits until they have completed. Returns an
        array with a completion for each op, in the order in which they ended, as Queue.submit_and_wait
        does."""
        return self._wait_for_array(ops, completions, region, pieces, timeout)

    async def asubmit_and_wait(
        self, ops: Any, completions: Any = None, *, region: Optional[Region] = None, pieces: Any = None
    ) -> Any:
        """Does the same as submit_and_wait, for coroutines."""
        return await WorkArray(self, ops, completions, region, pieces).arun()
