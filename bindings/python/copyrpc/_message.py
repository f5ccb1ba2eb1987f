"""_message.py: payloads that were received.

A payload is looked at where the device wrote it, in the receive ring, until the context polls again. What is still held then is
copied out first, and memoryviews that were handed out before are released: reading one raises ValueError, and .payload gives a
new one. A view must never outlive its memory, so what was derived from it (a slice, a numpy array) and is still alive when the
memory goes makes the poll fail with BufferError, as closing a mapped file does.

Where several threads or an event loop use the context, a poll may come at any moment; there payloads are copied at once."""
from __future__ import annotations

import gc
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from ._guards import Exporter
from ._native import ffi, lib
from .errors import Closed

if TYPE_CHECKING:
    from ._pump import Pump

#: All memory: memory[address:address + bytes] copies any of it out, in one step.
memory: Any = ffi.buffer(ffi.cast("char *", 0), sys.maxsize)

CLOSED: int = lib.CRPC_E_CLOSED


class Window:
    """A memoryview of the library's memory, which can be ended if nothing derived from it is
    alive."""

    __slots__ = ("_exporter", "_view")

    def __init__(self) -> None:
        self._exporter: Optional[Exporter] = None
        self._view: Optional[memoryview] = None

    def _open_view(self, address: int, size: int, readonly: bool) -> memoryview:
        self._exporter = Exporter(address, size, readonly)
        self._view = memoryview(self._exporter)
        return self._view

    def _end_view(self) -> bool:
        """Kills what was handed out; False if something derived from it lives on."""
        if self._view is not None:
            try:
                self._view.release()
            except BufferError:  # an array looks at it
                return False
            if self._exporter is not None and not self._exporter.end():  # a slice does
                self._view = memoryview(self._exporter)  # so that we ask again
                return False
            self._view = None
            self._exporter = None
        return True

    def _must_end(self, words: str) -> None:
        if not self._end_view():
            gc.collect()  # an exception's traceback may hold a handler's variables
            if not self._end_view():
                raise BufferError(f"a slice or an array made from {words}")


class Message(Window):
    """A received payload. Use it in a `with` block, or call release()."""

    __slots__ = ("_pump", "_address", "_bytes", "_kept", "_released", "__weakref__")

    def __init__(self, pump: Pump, address: int, payload_bytes: int, *, stays: bool = False) -> None:
        super().__init__()
        self._pump = pump
        self._address = address
        self._bytes = payload_bytes
        self._kept: Optional[bytes] = None
        self._released = False
        if stays:  # until it is released
            return
        if payload_bytes == 0 or pump._shared:
            self._kept = memory[address : address + payload_bytes] if payload_bytes else b""
        else:
            pump._lent.append(self)

    @property
    def payload(self) -> memoryview:
        """The payload, which is read-only. It becomes invalid with release() and with the context's
        next poll, unless it is still held then: see docs/python.md. Until then a hostile peer can still
        change it: copy it with bytes() before you check it, if you do not trust the peer."""
        if self._released:
            raise Closed("the payload was released; bytes(message.payload) makes a copy that stays", CLOSED)
        if self._view is None:
            if self._kept is None:
                self._view = self._open_view(self._address, self._bytes, True)
            else:
                self._view = memoryview(self._kept)
        return self._view

    def __bytes__(self) -> bytes:
        return bytes(self.payload)

    def __len__(self) -> int:
        return self._bytes

    def _before_poll(self) -> bool:
        """The memory is about to go. False if it must not."""
        if self._kept is None and not self._end_view():
            return False
        if not self._released and self._kept is None:
            self._kept = memory[self._address : self._address + self._bytes]
        return True

    def release(self) -> None:
        """Ends the view of the payload. Releasing twice does no harm."""
        self._released = True
        self._must_end("a payload is still alive; delete it, or make a copy, before the payload is released")

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.release()
        except BufferError:  # the next poll says so again, if what looks at the payload lives as long
            if value is None:
                raise


class Reply(Message):
    """The answer to a call, read in place: see Endpoint.call_view."""

    __slots__ = ("status",)

    def __init__(self, pump: Pump, status: int, address: int, payload_bytes: int) -> None:
        super().__init__(pump, address, payload_bytes)
        #: The application's status, 0 or above.
        self.status = status


def end_views(lent: list[Message]) -> None:
    """Before a poll: copies what is still held, kills the views of it. Raises BufferError if one must not die."""
    held = [message for message in lent if not message._before_poll()]
    if held:
        gc.collect()
        held = [message for message in held if not message._before_poll()]
    lent[:] = held
    if held:
        raise BufferError(
            f"{len(held)} received payload(s) are still looked at through a slice or an array; delete those, or make copies, before "
            "the context is used again"
        )
