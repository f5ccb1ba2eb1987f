"""RPC over RDMA, in batches of millions of calls per second.

    with copyrpc.connect("192.0.2.1:7471") as server:
        print(server.call(b"hello", timeout=1.0))

    with copyrpc.listen("*:7471") as listener:
        listener.serve(lambda request: request.payload)

docs/python.md has the details."""
from ._arrays import ChannelOpArray, CompletionArray, OpArray
from ._call import Call
from ._channel import Channel
from ._channel_listener import ChannelListener, ChannelRequest
from ._channel_options import CacheInfo, ChannelInfo, ChannelOptions, ChannelStats, RailEvent, RailInfo
from ._context import Context, connect, connect_channel, devices, listen, listen_channels, version
from ._endpoint import Endpoint
from ._listener import ConnectionRequest, Listener
from ._message import Message, Reply
from ._native import lib as _lib
from ._options import ContextInfo, DeviceInfo, EndpointInfo, EndpointOptions, LogEntry, RegionInfo, Stats
from ._records import Completion
from ._region import Region
from ._request import Request
from ._reserve import CallReservation, ReplyReservation, Reservation
from ._transfer import Transfer
from .errors import (
    HANDLER_FAILED,
    AccessRefused,
    Canceled,
    Closed,
    CopyrpcError,
    DeviceFailed,
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
    TruncatedError,
    Unreachable,
    Unsupported,
    WrongKey,
)

__version__ = f"{_lib.CRPC_VERSION_MAJOR}.{_lib.CRPC_VERSION_MINOR}.{_lib.CRPC_VERSION_PATCH}"

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
COMPLETION_SENT: int = _lib.CRPC_COMPLETION_SENT
COMPLETION_RECEIVED: int = _lib.CRPC_COMPLETION_RECEIVED
CHANNEL_RECEIVE: int = _lib.CRPC_CHANNEL_RECEIVE
CHANNEL_SEND: int = _lib.CRPC_CHANNEL_SEND
CHANNEL_CANCEL: int = _lib.CRPC_CHANNEL_CANCEL
CHANNEL_MORE: int = _lib.CRPC_CHANNEL_MORE

# Of ContextInfo.features.
FEATURE_BLUEFLAME: int = _lib.CRPC_FEATURE_BLUEFLAME
FEATURE_CQE_COMPRESSION: int = _lib.CRPC_FEATURE_CQE_COMPRESSION

__all__ = [
    "AccessRefused",
    "CHANNEL_CANCEL",
    "CHANNEL_MORE",
    "CHANNEL_RECEIVE",
    "CHANNEL_SEND",
    "COMPLETION_CANCEL",
    "COMPLETION_RECEIVED",
    "COMPLETION_REPLY",
    "COMPLETION_REQUEST",
    "COMPLETION_RESPONSE",
    "COMPLETION_SENT",
    "CacheInfo",
    "Call",
    "CallReservation",
    "Canceled",
    "Channel",
    "ChannelInfo",
    "ChannelListener",
    "ChannelOpArray",
    "ChannelOptions",
    "ChannelRequest",
    "ChannelStats",
    "Closed",
    "Completion",
    "CompletionArray",
    "ConnectionRequest",
    "Context",
    "ContextInfo",
    "CopyrpcError",
    "DeviceFailed",
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
    "RailEvent",
    "RailInfo",
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
    "Transfer",
    "TruncatedError",
    "Unreachable",
    "Unsupported",
    "WrongKey",
    "connect",
    "connect_channel",
    "devices",
    "listen",
    "listen_channels",
    "version",
]
