"""_text.py: texts that the library writes."""
from __future__ import annotations

from typing import Any, Callable

from ._native import ffi
from .errors import check


def read_text(write: Callable[[Any, int], int]) -> str:
    """Reads what a function of the library writes to a buffer with so much room. It returns how long all of it is, which may be a little
    more the second time: the flight recorder tells how long ago things were."""
    length = check(write(ffi.NULL, 0))
    room = length + length // 8 + 64
    text = ffi.new("char[]", room)
    length = check(write(text, room))
    return str(ffi.unpack(text, min(length, room - 1)).decode())
