"""_status.py: statuses that applications agree on, and the numbers of methods that have names."""
from __future__ import annotations

import asyncio
import enum
from typing import Optional, Union

from ._native import ffi, lib
from ._options import number


class Status(enum.IntEnum):
    """The statuses of replies that applications agree on, with the numbers of gRPC's codes. Those up to 255 are reserved: an
    application's own begin at 256."""

    OK = lib.CRPC_STATUS_OK  #: a reply; all others are errors
    CANCELED = lib.CRPC_STATUS_CANCELED  #: the caller has canceled it
    UNKNOWN = lib.CRPC_STATUS_UNKNOWN  #: the handler has failed, and did not say how
    INVALID_ARGUMENT = lib.CRPC_STATUS_INVALID_ARGUMENT  #: the request is wrong, whatever the state of the server
    DEADLINE_EXCEEDED = lib.CRPC_STATUS_DEADLINE_EXCEEDED  #: the time limit has passed
    NOT_FOUND = lib.CRPC_STATUS_NOT_FOUND  #: what is asked for is not there
    ALREADY_EXISTS = lib.CRPC_STATUS_ALREADY_EXISTS  #: what is to be made is there already
    PERMISSION_DENIED = lib.CRPC_STATUS_PERMISSION_DENIED  #: this caller may not do that
    RESOURCE_EXHAUSTED = lib.CRPC_STATUS_RESOURCE_EXHAUSTED  #: overloaded, or over a quota; nothing was done
    FAILED_PRECONDITION = lib.CRPC_STATUS_FAILED_PRECONDITION  #: not in the present state of the server
    ABORTED = lib.CRPC_STATUS_ABORTED  #: something else came first: begin the whole again
    OUT_OF_RANGE = lib.CRPC_STATUS_OUT_OF_RANGE  #: past the end of what there is
    UNIMPLEMENTED = lib.CRPC_STATUS_UNIMPLEMENTED  #: the server has no such method
    INTERNAL = lib.CRPC_STATUS_INTERNAL  #: something is broken
    UNAVAILABLE = lib.CRPC_STATUS_UNAVAILABLE  #: not now; later, or elsewhere
    DATA_LOSS = lib.CRPC_STATUS_DATA_LOSS  #: data is lost or damaged
    UNAUTHENTICATED = lib.CRPC_STATUS_UNAUTHENTICATED  #: the server does not know who the caller is

    def __str__(self) -> str:  # which would be a number or not, as Python's version has it
        return self.name

    def __format__(self, form: str) -> str:
        return format(int(self) if form else self.name, form)

    @staticmethod
    def of(error: Optional[BaseException]) -> int:
        """Says any exception in these terms, for programs and metrics that know only these: OK for None, what the peer has
        answered, or what is the same as the library's error, e.g. DEADLINE_EXCEEDED for a Timeout. docs/services.md has
        the table. Other exceptions are UNKNOWN. An application's own status is a plain int."""
        from .errors import CopyrpcError

        if error is None:
            return Status.OK
        if isinstance(error, CopyrpcError):
            return standard(lib.crpc_application_status(error.status))
        if isinstance(error, asyncio.CancelledError):
            return Status.CANCELED
        if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            return Status.DEADLINE_EXCEEDED
        return Status.UNKNOWN


_standard = {status.value: status for status in Status}


def standard(status: int) -> int:
    """The number as one of Status, if it is one."""
    return _standard.get(status, status)


def standard_name(status: int) -> Optional[str]:
    """What the library calls the status, which may know more of them than Status; None if it is an application's own."""
    name = ffi.string(lib.crpc_application_status_name(status)).decode()
    return None if name == "?" else str(name)


#: The least number of a method that has a name.
METHOD_NAMED: int = lib.CRPC_METHOD_NAMED

#: Names of methods whose number this program has asked for; "" if two have the same. For traces: a client has no router.
asked_names: dict[int, str] = {}
_NAME_BYTES_MAX = 255  # of those that are kept: a name may come from anywhere


def method_number(method: Union[int, str]) -> int:
    """Gives the number of the method with that name, in every language: METHOD_NAMED to 0xffff. Two names can have the same
    number; a Router notices. A number is its own."""
    if not isinstance(method, str):
        return number(method, "method", 0, 0xFFFF)
    if not method or "\0" in method:
        raise ValueError(f"{method!r} is no name of a method")
    name = method.encode()
    index = int(lib.crpc_method_number(name))
    if len(name) <= _NAME_BYTES_MAX and asked_names.setdefault(index, method) != method:
        asked_names[index] = ""
    return index
