"""RPC over RDMA, in batches of millions of calls per second.

    with copyrpc.connect("192.0.2.1:7471") as server:
        print(server.call(b"hello", timeout=1.0))

    with copyrpc.listen("*:7471") as listener:
        listener.serve(lambda request: request.payload)

docs/python.md has the details."""
from typing import TYPE_CHECKING, Any

from ._arrays import ChannelOpArray, CompletionArray, LaneOpArray, OpArray, QueueOpArray
from ._call import Call
from ._channel import Channel
from ._channel_listener import ChannelListener, ChannelRequest
from ._channel_options import CacheInfo, ChannelInfo, ChannelOptions, ChannelStats, RailEvent, RailInfo
from ._context import Context, connect, connect_channel, devices, listen, listen_channels, version
from ._datagram import HEADER_BYTES, DatagramQueue, Target
from ._dynamic import DCIQueue, DCTQueue
from ._endpoint import Endpoint
from ._grant import GRANT_BYTES, Grant, GrantPlace
from ._hint import ShareHint
from ._intercept import InterceptedCall, InterceptedEndpoint, OutgoingCall
from ._lasting import ConnectionEvent
from ._listener import ConnectionRequest, Listener
from ._message import Message, Reply
from ._native import lib as _lib
from ._options import ContextInfo, DeviceInfo, EndpointInfo, EndpointOptions, LogEntry, RegionInfo, Stats
from ._queue import Queue, SharedReceiveQueue
from ._queue_listener import QueueListener, QueueRequest
from ._queue_options import QueueAddress, QueueInfo, QueueOptions, QueueStats, Remote
from ._records import Completion
from ._records import dtype as _dtype
from ._region import Region, RegionSlice
from ._request import PlacedRequest, Request
from ._reserve import CallReservation, ReplyReservation, Reservation
from ._router import Router, chain
from ._status import METHOD_NAMED, Status, method_number
from ._tags import (
    TAG_HEADER_BYTES,
    TAG_MASK_ALL,
    Matched,
    TaggedReceiveQueue,
    TagHeader,
    TagWork,
    read_tag_header,
    tag_header,
    write_tag_header,
)
from ._trace import Trace
from ._transfer import Transfer
from ._work import Received, Source, Work
from .errors import (
    AccessRefused,
    Canceled,
    Closed,
    CopyrpcError,
    DeviceFailed,
    Disconnected,
    Dropped,
    Flushed,
    Forked,
    Interrupted,
    InvalidArgument,
    NoDevice,
    NoResource,
    NoRoom,
    NotFound,
    NotReady,
    NotStarted,
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
OP_AFTER: int = _lib.CRPC_OP_AFTER
OP_REGION: int = _lib.CRPC_OP_REGION
OP_IDEMPOTENT: int = _lib.CRPC_OP_IDEMPOTENT
OP_TRACED: int = _lib.CRPC_OP_TRACED
COMPLETION_RESPONSE: int = _lib.CRPC_COMPLETION_RESPONSE
COMPLETION_PLACED: int = _lib.CRPC_COMPLETION_PLACED
COMPLETION_ABANDONED: int = _lib.CRPC_COMPLETION_ABANDONED
COMPLETION_REPLY: int = _lib.CRPC_COMPLETION_REPLY
COMPLETION_CANCEL: int = _lib.CRPC_COMPLETION_CANCEL
COMPLETION_REQUEST: int = _lib.CRPC_COMPLETION_REQUEST
COMPLETION_SENT: int = _lib.CRPC_COMPLETION_SENT
COMPLETION_RECEIVED: int = _lib.CRPC_COMPLETION_RECEIVED
CHANNEL_RECEIVE: int = _lib.CRPC_CHANNEL_RECEIVE
CHANNEL_SEND: int = _lib.CRPC_CHANNEL_SEND
CHANNEL_CANCEL: int = _lib.CRPC_CHANNEL_CANCEL
CHANNEL_MORE: int = _lib.CRPC_CHANNEL_MORE
QUEUE_SEND: int = _lib.CRPC_QUEUE_SEND
QUEUE_SEND_IMMEDIATE: int = _lib.CRPC_QUEUE_SEND_IMMEDIATE
QUEUE_SEND_INVALIDATE: int = _lib.CRPC_QUEUE_SEND_INVALIDATE
QUEUE_WRITE: int = _lib.CRPC_QUEUE_WRITE
QUEUE_WRITE_IMMEDIATE: int = _lib.CRPC_QUEUE_WRITE_IMMEDIATE
QUEUE_READ: int = _lib.CRPC_QUEUE_READ
QUEUE_COMPARE_SWAP: int = _lib.CRPC_QUEUE_COMPARE_SWAP
QUEUE_FETCH_ADD: int = _lib.CRPC_QUEUE_FETCH_ADD
QUEUE_NOP: int = _lib.CRPC_QUEUE_NOP
QUEUE_RECEIVE: int = _lib.CRPC_QUEUE_RECEIVE
QUEUE_TAG_ADD: int = _lib.CRPC_QUEUE_TAG_ADD
QUEUE_TAG_REMOVE: int = _lib.CRPC_QUEUE_TAG_REMOVE
QUEUE_TAG_SYNC: int = _lib.CRPC_QUEUE_TAG_SYNC
QUEUE_SIGNAL: int = _lib.CRPC_QUEUE_SIGNAL
QUEUE_FENCE: int = _lib.CRPC_QUEUE_FENCE
QUEUE_SOLICITED: int = _lib.CRPC_QUEUE_SOLICITED
QUEUE_INLINE: int = _lib.CRPC_QUEUE_INLINE
QUEUE_PIECES: int = _lib.CRPC_QUEUE_PIECES
LANE_WRITE: int = _lib.CRPC_LANE_WRITE
LANE_READ: int = _lib.CRPC_LANE_READ
LANE_COMPARE_SWAP: int = _lib.CRPC_LANE_COMPARE_SWAP
LANE_FETCH_ADD: int = _lib.CRPC_LANE_FETCH_ADD
LANE_GRANT: int = _lib.CRPC_LANE_GRANT
LANE_REVOKE: int = _lib.CRPC_LANE_REVOKE
LANE_FENCE: int = _lib.CRPC_LANE_FENCE
LANE_INLINE: int = _lib.CRPC_LANE_INLINE
LANE_PIECES: int = _lib.CRPC_LANE_PIECES
ACCESS_REMOTE_WRITE: int = _lib.CRPC_ACCESS_REMOTE_WRITE
ACCESS_REMOTE_READ: int = _lib.CRPC_ACCESS_REMOTE_READ
ACCESS_REMOTE_ATOMIC: int = _lib.CRPC_ACCESS_REMOTE_ATOMIC
COMPLETION_WORK: int = _lib.CRPC_COMPLETION_WORK
COMPLETION_OF_QUEUE: int = _lib.CRPC_COMPLETION_OF_QUEUE
COMPLETION_IMMEDIATE: int = _lib.CRPC_COMPLETION_IMMEDIATE
COMPLETION_INVALIDATED: int = _lib.CRPC_COMPLETION_INVALIDATED
COMPLETION_DETAIL: int = _lib.CRPC_COMPLETION_DETAIL
COMPLETION_GRH: int = _lib.CRPC_COMPLETION_GRH
COMPLETION_MATCHED: int = _lib.CRPC_COMPLETION_MATCHED
COMPLETION_OF_DCT: int = _lib.CRPC_COMPLETION_OF_DCT
COMPLETION_RENDEZVOUS: int = _lib.CRPC_COMPLETION_RENDEZVOUS
COMPLETION_SYNC: int = _lib.CRPC_COMPLETION_SYNC

# Of ContextInfo.features.
FEATURE_BLUEFLAME: int = _lib.CRPC_FEATURE_BLUEFLAME
FEATURE_CQE_COMPRESSION: int = _lib.CRPC_FEATURE_CQE_COMPRESSION

if TYPE_CHECKING:
    import numpy

    #: crpc_queue_op, crpc_lane_op, crpc_piece and crpc_completion as numpy knows them.
    queue_op_dtype: numpy.dtype[Any]
    lane_op_dtype: numpy.dtype[Any]
    piece_dtype: numpy.dtype[Any]
    completion_dtype: numpy.dtype[Any]
else:
    _dtypes = {"queue_op_dtype": "crpc_queue_op", "lane_op_dtype": "crpc_lane_op", "piece_dtype": "crpc_piece",
               "completion_dtype": "crpc_completion"}

    def __getattr__(name):
        """numpy is only needed by who asks for it."""
        if name in _dtypes:
            return _dtype(_dtypes[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def queue_ops(count: int) -> "numpy.ndarray[Any, Any]":
    """Returns a numpy array of `count` ops for Queue.submit and submit_and_wait, all zero. Its fields
    are those of crpc_queue_op. QueueOpArray does the same without numpy."""
    import numpy

    return numpy.zeros(count, _dtype("crpc_queue_op"))


def lane_ops(count: int) -> "numpy.ndarray[Any, Any]":
    """Returns a numpy array of `count` ops for Endpoint.submit and submit_and_wait, all zero. Its fields
    are those of crpc_lane_op. LaneOpArray does the same without numpy."""
    import numpy

    return numpy.zeros(count, _dtype("crpc_lane_op"))


__all__ = [
    "ACCESS_REMOTE_ATOMIC",
    "ACCESS_REMOTE_READ",
    "ACCESS_REMOTE_WRITE",
    "AccessRefused",
    "CHANNEL_CANCEL",
    "CHANNEL_MORE",
    "CHANNEL_RECEIVE",
    "CHANNEL_SEND",
    "COMPLETION_ABANDONED",
    "COMPLETION_CANCEL",
    "COMPLETION_DETAIL",
    "COMPLETION_GRH",
    "COMPLETION_IMMEDIATE",
    "COMPLETION_INVALIDATED",
    "COMPLETION_MATCHED",
    "COMPLETION_OF_DCT",
    "COMPLETION_OF_QUEUE",
    "COMPLETION_PLACED",
    "COMPLETION_RECEIVED",
    "COMPLETION_RENDEZVOUS",
    "COMPLETION_REPLY",
    "COMPLETION_REQUEST",
    "COMPLETION_RESPONSE",
    "COMPLETION_SENT",
    "COMPLETION_SYNC",
    "COMPLETION_WORK",
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
    "ConnectionEvent",
    "ConnectionRequest",
    "Context",
    "ContextInfo",
    "CopyrpcError",
    "DCIQueue",
    "DCTQueue",
    "DatagramQueue",
    "DeviceFailed",
    "DeviceInfo",
    "Disconnected",
    "Dropped",
    "Endpoint",
    "EndpointInfo",
    "EndpointOptions",
    "FEATURE_BLUEFLAME",
    "FEATURE_CQE_COMPRESSION",
    "Flushed",
    "Forked",
    "GRANT_BYTES",
    "Grant",
    "GrantPlace",
    "HEADER_BYTES",
    "InterceptedCall",
    "InterceptedEndpoint",
    "Interrupted",
    "InvalidArgument",
    "LANE_COMPARE_SWAP",
    "LANE_FENCE",
    "LANE_FETCH_ADD",
    "LANE_GRANT",
    "LANE_INLINE",
    "LANE_PIECES",
    "LANE_READ",
    "LANE_REVOKE",
    "LANE_WRITE",
    "LaneOpArray",
    "Listener",
    "LogEntry",
    "METHOD_NAMED",
    "Matched",
    "Message",
    "NoDevice",
    "NoResource",
    "NoRoom",
    "NotFound",
    "NotReady",
    "NotStarted",
    "OP_AFTER",
    "OP_CALL",
    "OP_CANCEL",
    "OP_DROP",
    "OP_IDEMPOTENT",
    "OP_QUIET",
    "OP_REGION",
    "OP_REPLY",
    "OP_TRACED",
    "OpArray",
    "OutgoingCall",
    "PlacedRequest",
    "ProtocolError",
    "QUEUE_COMPARE_SWAP",
    "QUEUE_FENCE",
    "QUEUE_FETCH_ADD",
    "QUEUE_INLINE",
    "QUEUE_NOP",
    "QUEUE_PIECES",
    "QUEUE_READ",
    "QUEUE_RECEIVE",
    "QUEUE_SEND",
    "QUEUE_SEND_IMMEDIATE",
    "QUEUE_SEND_INVALIDATE",
    "QUEUE_SIGNAL",
    "QUEUE_SOLICITED",
    "QUEUE_TAG_ADD",
    "QUEUE_TAG_REMOVE",
    "QUEUE_TAG_SYNC",
    "QUEUE_WRITE",
    "QUEUE_WRITE_IMMEDIATE",
    "Queue",
    "QueueAddress",
    "QueueInfo",
    "QueueListener",
    "QueueOpArray",
    "QueueOptions",
    "QueueRequest",
    "QueueStats",
    "RailEvent",
    "RailInfo",
    "Received",
    "Refused",
    "Region",
    "RegionInfo",
    "RegionSlice",
    "Remote",
    "RemoteError",
    "Reply",
    "ReplyReservation",
    "Request",
    "Reservation",
    "Router",
    "ShareHint",
    "SharedReceiveQueue",
    "Source",
    "Stats",
    "Status",
    "SystemCallFailed",
    "TAG_HEADER_BYTES",
    "TAG_MASK_ALL",
    "TagHeader",
    "TagWork",
    "TaggedReceiveQueue",
    "Target",
    "Timeout",
    "TooBig",
    "Trace",
    "Transfer",
    "TruncatedError",
    "Unreachable",
    "Unsupported",
    "Work",
    "WrongKey",
    "chain",
    "connect",
    "connect_channel",
    "devices",
    "lane_ops",
    "listen",
    "listen_channels",
    "method_number",
    "queue_ops",
    "read_tag_header",
    "tag_header",
    "version",
    "write_tag_header",
]
