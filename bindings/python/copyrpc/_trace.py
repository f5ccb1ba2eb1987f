"""_trace.py: the trace that a call belongs to, which travels along with the request."""
from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ._guards import Pins
from ._native import ffi, lib
from ._region import Named, RegionSlice, payload_of
from .errors import check

if TYPE_CHECKING:
    from typing_extensions import Buffer

TRACED: int = lib.CRPC_OP_TRACED
_TRACE = struct.Struct("<16s8sB7x")  # crpc_trace
_CARRIED = struct.Struct("=Q16s8sB7x")  # struct copyrpc_native_carried
assert (_TRACE.size, _CARRIED.size) == (ffi.sizeof("crpc_trace"), ffi.sizeof("struct copyrpc_native_carried"))


class Trace(NamedTuple):
    """Which trace a call belongs to, in the terms of W3C Trace Context: see OutgoingCall.trace and Request.trace."""

    #: 16 bytes: the same for all that is done for one cause, wherever it is done.
    trace_id: bytes
    #: 8 bytes: the caller's span, which is the parent of what the server does.
    span_id: bytes
    #: 0 to 255. Bit 0: the trace is recorded (sampled); bit 1: its id is random.
    flags: int


class Carried(Named):
    """A request, and the trace that travels along. Calls take it as a request, so that those without a trace need not look for one."""

    __slots__ = ("_request", "_trace", "_pinned")

    def __init__(self, request: Union[Buffer, RegionSlice], trace: Trace) -> None:
        _check(trace)
        self._request = request
        self._trace = trace
        self._pinned: Any = None

    def _named(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        self._pinned, size, flags, offset, region = payload_of(self._request, context, name)
        return ffi.from_buffer(self._carried(self._pinned)), size, flags | TRACED, offset, region

    def _held(self, context: Any, name: str) -> tuple[Any, int, int, int, int]:
        pinned, size, flags, offset, region = payload_of(self._request, context, name)
        payload = () if isinstance(self._request, RegionSlice) else (self._request,)
        return Pins((self._carried(pinned), *payload)), size, flags | TRACED, offset, region

    def _carried(self, pinned: Any) -> bytes:
        return _CARRIED.pack(int(ffi.cast("uintptr_t", pinned)), *self._trace)


def _check(trace: Trace) -> None:
    if not isinstance(trace, Trace):
        raise TypeError(f"a trace is a copyrpc.Trace, not {type(trace).__name__}")
    for part, name, size in ((trace.trace_id, "trace_id", 16), (trace.span_id, "span_id", 8)):
        if not isinstance(part, bytes):
            raise TypeError(f"the {name} of a trace is bytes, not {type(part).__name__}")
        if len(part) != size:
            raise ValueError(f"the {name} of a trace has {size} bytes, not {len(part)}")
    if not isinstance(trace.flags, int) or not 0 <= trace.flags <= 0xFF:
        raise ValueError(f"the flags of a trace are 0 to 255, not {trace.flags!r}")


def trace_of_request(pointer: Any, endpoint_bits: int, token: int) -> Optional[Trace]:
    """What the caller of an open request has sent. Called with the lock held. None also if the request is not open any more."""
    found = ffi.new("crpc_trace *")
    status = lib.crpc_request_get_trace(pointer, {"bits": endpoint_bits}, token, found)
    if status in (lib.CRPC_E_NOT_FOUND, lib.CRPC_E_STALE):
        return None
    check(status, "trace")
    return Trace._make(_TRACE.unpack(ffi.buffer(found)))
