"""RPC over RDMA, in batches of millions of calls a second.

    with copyrpc.connect("192.0.2.1:7471") as server:
        print(server.call(b"hello", timeout=1.0))

    with copyrpc.listen("*:7471") as listener:
        listener.serve(lambda request: request.payload)

docs/python.md tells the rest."""
from ._arrays import CompletionArray, OpArray
from ._call import Call
from ._context import Context, Region, connect, devices, listen, version
from ._endpoint import Endpoint
from ._listener import ConnectionRequest, Listener
from ._message import Message, Reply
from ._native import lib as _lib
from ._options import ContextInfo, DeviceInfo, EndpointInfo, EndpointOptions, LogEntry, RegionInfo, Stats
from ._records import Completion
from ._request import Request
from ._reserve import CallReservation, ReplyReservation, Reservation
from .errors import (
    HANDLER_FAILED,
    Canceled,
    Closed,
    CopyrpcError,
    Disconnected,
    Dropped,
    Forked,
    Interrupted,
    InvalidArgument,
    NoDevice,
    NoResource,
    NoRoom,
    NotFound,
    ProtocolError,
    Refused,
    RemoteError,
    SystemCallFailed,
    Timeout,
    TooBig,
    Unreachable,
    Unsupported,
)

__version__ = "0.1.0"

# For arrays: copyrpc.OP_CALL is CRPC_OP_CALL, copyrpc.COMPLETION_RESPONSE is CRPC_COMPLETION_RESPONSE.
OP_CALL: int = _lib.CRPC_OP_CALL
OP_REPLY: int = _lib.CRPC_OP_REPLY
OP_DROP: int = _lib.CRPC_OP_DROP
OP_CANCEL: int = _lib.CRPC_OP_CANCEL
OP_QUIET: int = _lib.CRPC_OP_QUIET
COMPLETION_RESPONSE: int = _lib.CRPC_COMPLETION_RESPONSE
COMPLETION_REPLY: int = _lib.CRPC_COMPLETION_REPLY
COMPLETION_CANCEL: int = _lib.CRPC_COMPLETION_CANCEL
COMPLETION_REQUEST: int = _lib.CRPC_COMPLETION_REQUEST

# Of ContextInfo.features.
FEATURE_BLUEFLAME: int = _lib.CRPC_FEATURE_BLUEFLAME
FEATURE_CQE_COMPRESSION: int = _lib.CRPC_FEATURE_CQE_COMPRESSION

__all__ = [
    "COMPLETION_CANCEL",
    "COMPLETION_REPLY",
    "COMPLETION_REQUEST",
    "COMPLETION_RESPONSE",
    "Call",
    "CallReservation",
    "Canceled",
    "Closed",
    "Completion",
    "CompletionArray",
    "ConnectionRequest",
    "Context",
    "ContextInfo",
    "CopyrpcError",
    "DeviceInfo",
    "Disconnected",
    "Dropped",
    "Endpoint",
    "EndpointInfo",
    "EndpointOptions",
    "FEATURE_BLUEFLAME",
    "FEATURE_CQE_COMPRESSION",
    "Forked",
    "HANDLER_FAILED",
    "Interrupted",
    "InvalidArgument",
    "Listener",
    "LogEntry",
    "Message",
    "NoDevice",
    "NoResource",
    "NoRoom",
    "NotFound",
    "OP_CALL",
    "OP_CANCEL",
    "OP_DROP",
    "OP_QUIET",
    "OP_REPLY",
    "OpArray",
    "ProtocolError",
    "Refused",
    "Region",
    "RegionInfo",
    "RemoteError",
    "Reply",
    "ReplyReservation",
    "Request",
    "Reservation",
    "Stats",
    "SystemCallFailed",
    "Timeout",
    "TooBig",
    "Unreachable",
    "Unsupported",
    "connect",
    "devices",
    "listen",
    "version",
]
