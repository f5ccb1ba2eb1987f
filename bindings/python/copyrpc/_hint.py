"""_hint.py: hints, by which one program tells the channels of others what each rail should carry."""
from __future__ import annotations

import threading
from typing import Any, Optional, Type

from ._native import ffi, lib
from ._options import number, timeout_ns
from .errors import check, error_of, new_error


class ShareHint:
    """The hint of a name: what channels with ChannelOptions(split="hint", hint=name) on this machine go by. It needs no Context and no
    RDMA device. There is one writer at a time: another one's hint raises InvalidArgument (its status is CRPC_E_BUSY).

        with copyrpc.ShareHint("/rails") as hint:
            while True:
                hint.publish(share_of_rail_0(), lifetime=1.0)
                time.sleep(0.1)

    close() withdraws it, and so does the end of its lifetime, however the writer ends. Any thread may use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._hint: Any = ffi.NULL
        if not isinstance(name, str):
            raise TypeError(f"the name of a hint is a str, not {type(name).__name__}")
        opened, error = ffi.new("crpc_hint **"), new_error()
        check(lib.crpc_hint_open(name.encode(), opened, error), "open a hint", error)
        self._hint = opened[0]

    def publish(self, rail0_share: int, lifetime: float = 1.0) -> None:
        """Tells channels to have rail 0 carry rail0_share / 1024 of each message, for `lifetime` seconds at the most, which are 60 at
        the most. Publish again before."""
        share = number(rail0_share, "rail0_share", 0, 1024)
        if lifetime is None:
            raise TypeError("a lifetime is a number of seconds")
        lifetime_ns = timeout_ns(lifetime, 1 << 63)
        if not 0 < lifetime <= 60:
            raise ValueError(f"a lifetime is above 0 seconds, and 60 at the most, not {lifetime!r}")
        with self._lock:
            if self._hint == ffi.NULL:
                raise error_of(lib.CRPC_E_CLOSED, "publish a hint")
            check(lib.crpc_hint_publish(self._hint, share, lifetime_ns), "publish a hint")

    @property
    def closed(self) -> bool:
        return bool(self._hint == ffi.NULL)

    def close(self) -> None:
        """Withdraws the hint. The shared memory stays, for the next writer. May be called again."""
        with self._lock:
            hint, self._hint = self._hint, ffi.NULL
            lib.crpc_hint_close(hint)

    def __enter__(self) -> ShareHint:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_hint", None):
            self.close()
