"""_work_array.py: whole arrays of ops of queues and lanes, with no object of Python for any of them."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Optional

from . import _asyncio
from ._arrays import CompletionArray, Ops
from ._guards import Last, through
from ._native import ffi, lib
from ._options import pin, pin_writable
from ._pump import CAPACITY
from ._records import dtype
from ._region import Region
from .errors import error_of

if TYPE_CHECKING:
    from ._poster import Poster


_number = ffi.typeof("uintptr_t")
_pointers = {form: ffi.typeof(form + " *") for form in ("crpc_queue_op", "crpc_lane_op", "crpc_piece", "crpc_completion")}


def _check_records(array: Any, kind: Any, form: str, name: str) -> None:
    size = ffi.sizeof(form)
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(f"{name} is an array with records of {size} bytes, not {type(array).__name__}") from None
    if view.itemsize != size or view.ndim != 1 or (kind is not None and kind != dtype(form)):
        what = kind if kind is not None else f"items of {view.itemsize} bytes in {view.ndim} dimension(s)"
        raise TypeError(f"{name} is an array with records of {size} bytes, as copyrpc's dtype says, and this one has {what}")


class Records:
    """An array of an application's, as C sees it. It stays where it is as long as this lives."""

    __slots__ = ("pinned", "pointer", "count")

    def __init__(self, array: Any, form: str, name: str, writable: bool = False) -> None:
        kind = getattr(array, "dtype", None)
        if kind is None or kind is not dtype(form) or array.ndim != 1:  # else it is an array of numpy's, and need not be asked more
            _check_records(array, kind, form, name)
        self.pinned = pin_writable(array, name) if writable else pin(array, name)
        if int(ffi.cast(_number, self.pinned)) % 8:
            raise BufferError(f"{name} must begin at a multiple of 8: a copy of the array does")
        self.pointer = ffi.cast(_pointers[form], self.pinned)
        self.count = len(array)


def ops_of(ops: Any, form: str) -> tuple[Any, Any, int]:
    """Returns what keeps ops in place, where they are, and how many there are."""
    if isinstance(ops, Ops):
        if ops._form != form:
            raise TypeError(f"ops are of {form}, not of {ops._form}")
        return ops, ops._ops, len(ops)
    records = Records(ops, form, "ops")
    return records, records.pointer, records.count


def pieces_of(pieces: Any) -> tuple[Any, Any, int]:
    if pieces is None:
        return None, ffi.NULL, 0
    records = Records(pieces, "crpc_piece", "pieces")
    if records.count > lib.CRPC_QUEUE_SUBMIT_PIECES_MAX:
        raise ValueError(f"pieces has at most {lib.CRPC_QUEUE_SUBMIT_PIECES_MAX} places, not {records.count}")
    return records, records.pointer, records.count


def region_bits(poster: Poster, region: Optional[Region]) -> int:
    if region is None:
        return 0
    if not isinstance(region, Region):
        raise TypeError(f"region is a Region, not {type(region).__name__}")
    if region._context is not poster._context:
        raise error_of(lib.CRPC_E_INVALID, "the region belongs to another context")
    return region.bits


class WorkArray:
    """Ops that somebody waits for, in Pump._works."""

    def __init__(self, poster: Poster, ops: Any, completions: Any, region: Optional[Region], pieces: Any) -> None:
        self.poster = poster
        held, pointer, count = ops_of(ops, poster._form)
        held_pieces, pieces_pointer, piece_count = pieces_of(pieces)
        if completions is None:
            completions, room, capacity = _room(ops, count)
        elif isinstance(completions, CompletionArray):
            room, capacity = completions._completions, completions.capacity
        else:
            there = Records(completions, "crpc_completion", "completions", True)
            held, room, capacity = (held, there), there.pointer, there.count
        if capacity < count:
            raise ValueError(f"{count} ops have as many completions, and there is room for {capacity}")
        self.completions = completions
        self.held = held, held_pieces
        self.region = region
        self.native = ffi.new("struct copyrpc_native_works *")
        getattr(self.native, poster._native_name).bits = poster.bits
        self.native.region.bits = region_bits(poster, region)
        self.native.ops = pointer
        self.native.total = count
        self.native.pieces = pieces_pointer
        self.native.piece_count = piece_count
        self.native.completions = room
        self.native.sparse = poster._sparse
        self.rooms_seen = 0

    # ---- With the lock ----

    def _link(self) -> None:
        pump = self.poster._pump
        self.poster._check()
        self.native.first_id = pump._ids.value + 1
        pump._ids.value += self.native.total
        pump._works.append(self)
        through(pump._chain_works)

    def _unlink(self) -> None:
        """Nobody waits any more: completions that are still to come are for nobody. May be called
        again if it was cut."""
        pump = self.poster._pump
        if self in pump._works:
            pump._works.remove(self)
        pump._chain_works()
        pump._wake_ready()  # coroutines may wait until the library has all of it: see Lane._poured

    def _submit(self) -> bool:
        """Submits what there is room for. Returns False if there is more."""
        pump, poster, native = self.poster._pump, self.poster, self.native
        self.rooms_seen = poster._rooms
        if poster._error is not None and native.refused == 0:
            native.refused = poster._error.status if poster._error.status < 0 else lib.CRPC_E_DISCONNECTED
        native.sync_barred = poster._has_unseen()
        done = bool(lib.copyrpc_native_works_submit(pump._pointer, native, pump._sorted.poll.works, pump._op_room, CAPACITY))
        if native.submitted == 0 and native.refused:
            raise poster._refusal(native.refused, "submit_and_wait, the first op")
        pump._rearm()
        if done:
            pump._wake_ready()
        return done

    def _may_go_on(self) -> bool:
        return self.poster._rooms != self.rooms_seen or self.poster._error is not None

    def _waits(self) -> bool:
        """Returns True if the library does not have all of it yet, and may get it."""
        return bool(self.native.submitted < self.native.total and self.native.refused == 0)

    def _finished(self) -> bool:
        return bool(self.native.completed >= self.native.submitted)

    def _result(self) -> Any:
        """All have completed that were submitted."""
        lib.copyrpc_native_works_refuse(self.native)
        count = self.native.completed
        if isinstance(self.completions, CompletionArray):
            self.completions._filled(self.poster._pump, count)
            return self.completions
        return self.completions[:count]

    # ---- Taking the lock ----

    def run(self, limit_ns: int) -> Any:
        pump = self.poster._pump
        deadline = time.monotonic_ns() + limit_ns if limit_ns else None
        with pump._use:
            with Last(self._unlink):
                self._link()
                while not self._submit():
                    self._wait(self._may_go_on, deadline)
                self._wait(self._finished, deadline)
            return self._result()

    def _wait(self, done: Any, deadline: Optional[int]) -> None:
        if not self.poster._pump._wait(done, deadline):
            submitted = self.native.submitted
            raise error_of(lib.CRPC_E_TIMEOUT, f"submit_and_wait: {submitted} ops were submitted, and those that are open go on")

    async def arun(self) -> Any:
        pump = self.poster._pump
        attachment = await _asyncio.ready(pump)
        try:
            with pump._use:
                self._link()
                done = self._submit()
            while not done:
                await _asyncio.wait(pump, self._may_go_on)
                with pump._use:
                    done = self._submit()
            await _asyncio.wait(pump, self._finished)
        finally:
            through(attachment.when_home, self._leave)
        with pump._use:
            return self._result()

    def _leave(self) -> None:
        """May be called again if it was cut."""
        with self.poster._pump._lock:
            through(self._unlink)


def _room(ops: Any, count: int) -> tuple[Any, Any, int]:
    """Makes room for completions, of the kind that the ops are."""
    if hasattr(ops, "dtype"):
        import numpy

        made = numpy.empty(count, dtype("crpc_completion"))
        return made, ffi.cast(_pointers["crpc_completion"], ffi.from_buffer(made)), count
    array = CompletionArray(max(count, 1))
    return array, array._completions, count
