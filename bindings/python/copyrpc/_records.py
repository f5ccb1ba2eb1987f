"""_records.py: ops, pieces and completions for reading whole arrays: by the struct
module, or by numpy. Both forms are made from what cffi read in copyrpc.h."""
from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ._native import ffi, lib

if TYPE_CHECKING:
    import numpy

_codes = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "int32_t": "i", "uint64_t": "Q"}
_codes.update(dict.fromkeys(("struct crpc_endpoint", "struct crpc_channel", "struct crpc_queue", "struct crpc_region",
                             "struct crpc_target", "struct crpc_grant"), "Q"))


def _fields(name: str) -> list[tuple[str, str, int]]:
    return [(field, _codes[description.type.cname], description.offset) for field, description in ffi.typeof(name).fields]


def _struct(name: str) -> struct.Struct:
    made = struct.Struct("<" + "".join(code for _, code, _ in _fields(name)))
    assert made.size == ffi.sizeof(name), f"{name} has gaps"
    return made


COMPLETION = _struct("crpc_completion")
OP = _struct("crpc_op")
CHANNEL_OP = _struct("crpc_channel_op")
QUEUE_OP = _struct("crpc_queue_op")
LANE_OP = _struct("crpc_lane_op")
PIECE = _struct("crpc_piece")
#: In the user_data of ops that are the package's own, and of endpoints whose requests go to arrays.
MARK: int = lib.COPYRPC_NATIVE_MARK


def column_form(field: str) -> tuple[str, int]:
    """Returns memoryview.cast's name for the type of a completion's field, and the field's
    place."""
    for name, code, offset in _fields("crpc_completion"):
        if name == field:
            return code, offset
    raise ValueError(f"a completion has no {field!r}, but {', '.join(Completion._fields)}")


@functools.lru_cache(64)
def records_form(wanted: tuple[str, ...]) -> struct.Struct:
    """Returns the struct format for these fields of a completion. It skips the others."""
    for field in wanted:
        column_form(field)  # says which one is wrong
    text = [code if field in wanted else f"{struct.calcsize(code)}x" for field, code, _ in _fields("crpc_completion")]
    if [field for field in Completion._fields if field in wanted] != list(wanted):
        raise ValueError(f"the fields must be in the header's order, each once: {', '.join(Completion._fields)}")
    return struct.Struct("<" + "".join(text))


def structured(memory: Any, name: str) -> numpy.ndarray[Any, Any]:
    """Returns an array of a struct of copyrpc.h for numpy, with the header's names."""
    form = dtype(name)
    import numpy

    return numpy.frombuffer(memory, form)


@functools.lru_cache(8)
def dtype(name: str) -> numpy.dtype[Any]:
    """Returns a struct of copyrpc.h as numpy's type, with the header's names."""
    try:
        import numpy
    except ImportError:
        raise ImportError("this form needs numpy: pip install numpy. The arrays of the package do not") from None
    fields = _fields(name)
    return numpy.dtype(
        {
            "names": [field for field, _, _ in fields],
            "formats": ["<" + code for _, code, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": ffi.sizeof(name),
        }
    )


class Completion(NamedTuple):
    """One completion of a CompletionArray. copyrpc.h explains the fields."""

    kind: int
    flags: int
    method: int
    status: int
    endpoint: int
    user_data: int
    token: int
    payload: int
    payload_bytes: int
    reply_bytes_max: int
    view: int
    endpoint_user_data: int
