"""errors.py: exceptions. Each status of the library is raised as the class of its family. If Python
has an exception for a family, the class derives from it: a Timeout is a TimeoutError, and a
Disconnected is a ConnectionError.

Every exception has .status, .errno and .message. .status is CRPC_E_*, or the application's status
for RemoteError. .errno is from the failed system call, or the closest value, or 0."""
from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Optional, Union

from ._native import ffi, lib
from ._status import standard, standard_name

if TYPE_CHECKING:
    from typing_extensions import Buffer


class CopyrpcError(Exception):
    """The base class of all exceptions."""

    status: int
    errno: Optional[int]
    message: str
    vendor_syndrome: int

    def __init__(self, message: str, status: int = 0, os_error: int = 0, vendor_syndrome: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.errno = os_error or _nearest_errno.get(status, 0)
        self.message = message
        self.vendor_syndrome = vendor_syndrome

    @property
    def status_name(self) -> str:
        """The name of the status, e.g. "CRPC_E_TIMEOUT"."""
        return str(ffi.string(lib.crpc_status_name(self.status)).decode())

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:  # for pickle: the constructor's arguments, not Exception's
        return (type(self), (self.message, self.status, self.errno or 0, self.vendor_syndrome))


class InvalidArgument(CopyrpcError, ValueError):
    """An argument is wrong, or not possible in the present state."""


class TooBig(InvalidArgument):
    """It can never fit. Endpoint.info() has the limits."""


class Unsupported(CopyrpcError, NotImplementedError):
    """This version, driver or device does not support it."""


class NoRoom(CopyrpcError, BlockingIOError):
    """There is no room now. There may be later."""


class NoResource(CopyrpcError):
    """A limit of the device or the system is reached: memory, locked memory, or queues."""


class NoDevice(CopyrpcError):
    """There is no RDMA device, or it is not the one that is needed."""


class SystemCallFailed(CopyrpcError, OSError):
    """A system call failed: see .errno."""


class Timeout(CopyrpcError, TimeoutError):
    """The time limit has passed."""


class Canceled(CopyrpcError):
    """The call was canceled."""


class Disconnected(CopyrpcError, ConnectionError):
    """The connection is gone, or is being closed. The peer may or may not have acted."""


class Closed(CopyrpcError, ValueError):
    """This side closed the context, endpoint, listener, region or call. Using a closed object also
    raises this."""


class Forked(Closed):
    """The object was made before fork(), and belongs to the parent. The child must open a context
    of its own."""


class Flushed(Disconnected):
    """The queue failed before this op had ended. Whether the op was done is not known."""


class NotReady(Disconnected):
    """The peer of a queue had no receive for the message, and the queue has failed by that."""


class Refused(CopyrpcError, ConnectionRefusedError):
    """The peer's application or host refused the connection."""

    #: Of a queue: what the peer sent with its refusal.
    private_data: bytes = b""


class WrongKey(Refused):
    """The peer has another key, or one side has none."""


class AccessRefused(CopyrpcError, PermissionError):
    """The peer's device refused the address, length, key or right of an op."""


class DeviceFailed(CopyrpcError):
    """This side's device refused an op. .vendor_syndrome says why, in the vendor's numbers."""


class Unreachable(CopyrpcError, ConnectionError):
    """There is no route to the address, or no such name."""


class ProtocolError(CopyrpcError, ConnectionError):
    """The peers have no version of the protocol in common, or the peer violated the protocol."""


class TruncatedError(CopyrpcError):
    """A message was longer than the receive buffer. No part of it was sent.

    .size is its length. For a group, .sizes has all lengths."""

    def __init__(self, message: str, status: int = lib.CRPC_E_TRUNCATED, os_error: int = 0, vendor_syndrome: int = 0) -> None:
        super().__init__(message, status, os_error, vendor_syndrome)
        self.size = 0
        self.sizes: list[int] = []

    def __reduce__(self) -> Any:
        return (*super().__reduce__(), {"size": self.size, "sizes": self.sizes})


class Dropped(CopyrpcError):
    """The peer dropped the request without an answer."""


class NotStarted(CopyrpcError):
    """The peer did nothing of the request, as it is about to stop: it can be sent again, here or elsewhere."""


class NotFound(CopyrpcError, LookupError):
    """Nothing matches."""


class Interrupted(CopyrpcError, InterruptedError):
    """A signal arrived while waiting."""


class RemoteError(CopyrpcError):
    """The peer's application answered with a status above 0. A handler raises it to give such an
    answer.

    .status is one of Status, or an application's own number. .payload is the payload of the answer: of
    Status.UNKNOWN, which an exception in a handler becomes, it is the exception's text. A str is sent as UTF-8."""

    payload: bytes

    def __init__(self, status: int, payload: Union[Buffer, str] = b"") -> None:
        if not isinstance(status, int) or isinstance(status, bool) or not 0 < status <= 0x7FFFFFFF:
            raise ValueError(f"the status of an application's error is 1 to {0x7FFFFFFF}, not {status!r}")
        status = standard(status)
        self.payload = payload.encode("utf-8", "replace") if isinstance(payload, str) else bytes(payload)
        message = f"the peer answered with status {status:d}"
        name = standard_name(status)
        if name is not None:
            message += f" ({name})"
        try:
            message += ": " + self.payload.decode() if self.payload else ""
        except UnicodeDecodeError:  # it is no text
            pass
        super().__init__(message, status)

    @property
    def status_name(self) -> str:
        """The name of the status, e.g. "NOT_FOUND"; of an application's own, its number."""
        return standard_name(self.status) or str(int(self.status))

    def __reduce__(self) -> Any:
        return (RemoteError, (self.status, self.payload))


_families: dict[int, type[CopyrpcError]] = {
    lib.CRPC_E_INVALID: InvalidArgument,
    lib.CRPC_E_UNSUPPORTED: Unsupported,
    lib.CRPC_E_STALE: Closed,
    lib.CRPC_E_AGAIN: NoRoom,
    lib.CRPC_E_TOO_BIG: TooBig,
    lib.CRPC_E_NO_MEMORY: NoResource,
    lib.CRPC_E_NO_DEVICE: NoDevice,
    lib.CRPC_E_NO_RESOURCE: NoResource,
    lib.CRPC_E_MEMLOCK: NoResource,
    lib.CRPC_E_SYSTEM: SystemCallFailed,
    lib.CRPC_E_TIMEOUT: Timeout,
    lib.CRPC_E_CANCELED: Canceled,
    lib.CRPC_E_CLOSING: Disconnected,
    lib.CRPC_E_DISCONNECTED: Disconnected,
    lib.CRPC_E_CLOSED: Closed,
    lib.CRPC_E_REFUSED: Refused,
    lib.CRPC_E_UNREACHABLE: Unreachable,
    lib.CRPC_E_VERSION: ProtocolError,
    lib.CRPC_E_PROTOCOL: ProtocolError,
    lib.CRPC_E_DROPPED: Dropped,
    lib.CRPC_E_BUSY: InvalidArgument,
    lib.CRPC_E_NOT_FOUND: NotFound,
    lib.CRPC_E_INTERRUPTED: Interrupted,
    lib.CRPC_E_STATE: InvalidArgument,
    lib.CRPC_E_TRUNCATED: TruncatedError,
    lib.CRPC_E_KEY: WrongKey,
    lib.CRPC_E_ACCESS: AccessRefused,
    lib.CRPC_E_NOT_READY: NotReady,
    lib.CRPC_E_FLUSHED: Flushed,
    lib.CRPC_E_DEVICE: DeviceFailed,
    lib.CRPC_E_NOT_STARTED: NotStarted,
}

_nearest_errno: dict[int, int] = {
    lib.CRPC_E_INVALID: errno.EINVAL,
    lib.CRPC_E_AGAIN: errno.EAGAIN,
    lib.CRPC_E_TOO_BIG: errno.EMSGSIZE,
    lib.CRPC_E_TRUNCATED: errno.EMSGSIZE,
    lib.CRPC_E_NO_MEMORY: errno.ENOMEM,
    lib.CRPC_E_NO_DEVICE: errno.ENODEV,
    lib.CRPC_E_TIMEOUT: errno.ETIMEDOUT,
    lib.CRPC_E_CANCELED: errno.ECANCELED,
    lib.CRPC_E_CLOSING: errno.ESHUTDOWN,
    lib.CRPC_E_DISCONNECTED: errno.ECONNRESET,
    lib.CRPC_E_CLOSED: errno.EBADF,
    lib.CRPC_E_REFUSED: errno.ECONNREFUSED,
    lib.CRPC_E_KEY: errno.ECONNREFUSED,
    lib.CRPC_E_ACCESS: errno.EACCES,
    lib.CRPC_E_DEVICE: errno.EIO,
    lib.CRPC_E_UNREACHABLE: errno.EHOSTUNREACH,
    lib.CRPC_E_PROTOCOL: errno.EPROTO,
    lib.CRPC_E_BUSY: errno.EBUSY,
    lib.CRPC_E_INTERRUPTED: errno.EINTR,
    lib.CRPC_E_NOT_READY: errno.ENOBUFS,
    lib.CRPC_E_FLUSHED: errno.ECONNRESET,
}


def error_of(status: int, what: str = "", payload: bytes = b"") -> CopyrpcError:
    """Returns the exception for a status without a crpc_error."""
    if status > 0:
        return RemoteError(status, payload)
    text = ffi.string(lib.crpc_status_text(status)).decode().replace("crpc_endpoint_get_info", "Endpoint.info()")
    # A status of a later version is an error too.
    return _families.get(status, CopyrpcError)(f"{what}: {text}" if what else text, status)


def error_from(error: Any, what: str = "") -> CopyrpcError:
    """Returns the exception for a filled crpc_error."""
    message = ffi.string(error.message).decode("utf-8", "replace") or ffi.string(lib.crpc_status_text(error.status)).decode()
    family = _families.get(error.status, CopyrpcError)
    return family(f"{what}: {message}" if what else message, error.status, error.os_error, error.vendor_syndrome)


def new_error() -> Any:
    return ffi.new("crpc_error *", {"struct_size": ffi.sizeof("crpc_error")})


def check(status: int, what: str = "", error: Any = None) -> int:
    """Raises an exception if the status is below 0; otherwise returns it."""
    if status < 0:
        raise error_of(status, what) if error is None or error.status == 0 else error_from(error, what)
    return status
