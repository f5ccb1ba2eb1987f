"""_logging.py: the library's log in Python's logging.

Whoever has the context's lock takes entries as they are. A thread of the feed, which never has that lock while it tells the logger, makes
records of them. So handlers may be slow, raise, or use the context: they hold up nobody but each other."""
from __future__ import annotations

import logging
import struct
import sys
import threading
import traceback
import weakref
from collections import deque
from typing import TYPE_CHECKING, Optional, Union

from ._guards import Tally
from ._native import ffi, lib
from .errors import CopyrpcError

if TYPE_CHECKING:
    from ._pump import Pump

#: What Context takes as `logger`.
LoggerChoice = Optional[Union[bool, logging.Logger]]

#: How long close() waits for handlers.
CLOSE_SECONDS = 1.0
#: More than these are left to the library, which keeps the last 256 and counts those that it loses.
ENTRIES_MAX = 1024
_LEVELS: dict[int, int] = {
    lib.CRPC_LOG_ERROR: logging.ERROR,
    lib.CRPC_LOG_WARNING: logging.WARNING,
    lib.CRPC_LOG_INFO: logging.INFO,
    lib.CRPC_LOG_DEBUG: logging.DEBUG,
}
_ENTRY = struct.Struct("=QII240s")
assert _ENTRY.size == ffi.sizeof("crpc_log_entry")
_TAKEN_AT_ONCE = 16
_NOTHING = bytes(_TAKEN_AT_ONCE * _ENTRY.size)


def chosen_logger(logger: LoggerChoice) -> Optional[logging.Logger]:
    if logger is None or logger is False:
        return None
    if logger is True:
        return logging.getLogger("copyrpc")
    if not isinstance(logger, logging.Logger):
        raise TypeError(f'logger is True, which means logging.getLogger("copyrpc"), or a logging.Logger, not {type(logger).__name__}')
    return logger


class LogFeed:
    """Brings the log of one context to one logger."""

    def __init__(self, pump: Pump, logger: logging.Logger, device: str) -> None:
        self._pump = weakref.ref(pump)  # a context that is lost is noticed all the same
        self._logger = logger
        self._device = device
        self._taken_entries = ffi.new("crpc_log_entry[]", _TAKEN_AT_ONCE)
        self._taken_bytes = ffi.buffer(self._taken_entries)
        self._handed_on = Tally()
        self._entries: deque[bytes] = deque()
        self._left_some = False  # in the library: there were too many
        self._due = threading.Lock()  # released when the thread has something to do
        self._due.acquire()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"copyrpc log {device}", daemon=True)
        self._thread.start()

    # ---- With the context's lock ----

    def take(self, pointer: object, all_of_it: bool = False) -> None:
        """Takes what there is out of the library's log, if anybody wants it. Goes on where it was cut."""
        while self._is_wanted():
            if len(self._entries) >= ENTRIES_MAX and not all_of_it:
                self._left_some = True
                self._wake()  # if the thread was quicker than this
                return
            # If there are some already, this was cut before all of them were handed on.
            if not self._taken_entries[0].level and lib.crpc_context_log(pointer, self._taken_entries, _TAKEN_AT_ONCE) <= 0:
                return
            for index in range(self._handed_on.value, _TAKEN_AT_ONCE):
                if not self._taken_entries[index].level:
                    break
                self._handed_on.put(self._entries, self._taken_bytes[index * _ENTRY.size : (index + 1) * _ENTRY.size])
            self._wake()
            self._handed_on.value = 0
            self._taken_bytes[:] = _NOTHING

    def _is_wanted(self) -> bool:
        """Tells whether the logger takes entries of any level. Not by isEnabledFor, which may wait for logging's own lock: somebody who
        has that may wait for the context's."""
        logger = self._logger
        try:
            return not logger.disabled and logger.manager.disable < logging.ERROR and logger.getEffectiveLevel() <= logging.ERROR
        except (AttributeError, TypeError):  # somebody has assigned it a level that is no number: _log reports that
            return True

    def _wake(self) -> None:
        try:
            self._due.release()
        except RuntimeError:  # it was woken already
            pass

    def end(self) -> None:
        """No more are taken. The thread ends when it has told all. May be called again if it was cut."""
        self._ending = True
        self._wake()

    # ---- Without it ----

    def finish(self) -> None:
        """After end(): waits until all is told, for a while at most. A handler that closes the context does not wait for itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        ending = False
        while not ending:
            self._due.acquire()
            ending = self._ending
            while self._entries:
                self._tell(*_ENTRY.unpack(self._entries.popleft()))
            if self._left_some:
                self._left_some = False
                self._take_more()

    def _take_more(self) -> None:
        pump = self._pump()
        if pump is not None:
            try:
                with pump._use as pointer:
                    self.take(pointer)
            except CopyrpcError:
                pass  # it is closed, and has told all

    def _tell(self, time_ns: int, level: int, lost: int, message: bytes) -> None:
        if lost:
            self._log(logging.WARNING, time_ns, lost, f"{lost} log entries were lost: there were more than the logger's handlers took")
        self._log(_LEVELS[level], time_ns, 0, message)

    def _log(self, level: int, time_ns: int, lost: int, text: Union[str, bytes]) -> None:
        try:
            if not self._logger.isEnabledFor(level):
                return
            if isinstance(text, bytes):
                text = text.split(b"\0", 1)[0].decode(errors="replace")
            self._logger.log(level, text, extra={"copyrpc_device": self._device, "copyrpc_time_ns": time_ns, "copyrpc_lost": lost})
        except BaseException:  # whatever it was, the next entries are told
            if logging.raiseExceptions:
                _report(self._logger)


def _report(logger: logging.Logger) -> None:
    """An exception that a handler or a filter did not keep to itself, as logging tells of those that it did."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"--- Logging error ---\nA handler or filter of {logger!r} raised an exception at an entry of copyrpc's log:\n")
        traceback.print_exc()
    except (OSError, ValueError):  # stderr is closed
        pass
