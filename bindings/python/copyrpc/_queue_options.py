"""_queue_options.py: options and descriptions of queues."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple, Optional

from ._native import ffi, lib
from ._options import ACCESSES, FOREVER, choice, connection_state, number, read, sized, timeout_ns

if TYPE_CHECKING:
    from ._queue import SharedReceiveQueue

#: What rdma_cm carries when a peer is rejected.
REJECT_BYTES_MAX = 148
_kinds: dict[int, str] = {lib.CRPC_QUEUE_KIND_RC: "rc", lib.CRPC_QUEUE_KIND_SRQ: "srq", lib.CRPC_QUEUE_KIND_UD: "ud"}
_kinds.update({lib.CRPC_QUEUE_KIND_DCI: "dci", lib.CRPC_QUEUE_KIND_DCT: "dct", lib.CRPC_QUEUE_KIND_TM_SRQ: "tm_srq"})


@dataclass(frozen=True)
class QueueOptions:
    """Options of a queue, which copyrpc.h explains. A number of 0 means the library's default. A
    time of None means no limit."""

    #: In arrays, only ops with QUEUE_SIGNAL complete, and those that fail. Other forms set it.
    sparse: bool = False
    sends: int = 0
    send_pieces: int = 0
    inline_bytes: int = 0
    #: 0 means none.
    receives: int = 0
    receive_pieces: int = 0
    #: The queue that has its receives, instead of `receives` of its own.
    receive_queue: Optional[SharedReceiveQueue] = None
    connect_timeout: Optional[float] = 5.0
    retry_timeout: int = 0
    retry_count: int = 0
    not_ready_retry_count: int = 0
    reads_max: int = 0
    #: Of a Queue: its first packet has the number 0, for peers that are not told another, as UCX. rdma_cm agrees on one anyway.
    sequence_zero: bool = False
    #: What the peer gets when it is asked (up to 56 bytes) or accepted (up to 196).
    private_data: bytes = b""
    #: Of a DatagramQueue: who sends to it must know it. 0 means the library's default.
    queue_key: int = 0
    #: Of a DCIQueue: how many queues it has in one; 0 means none.
    streams: int = 0
    #: Of a DCIQueue with streams: while so many have failed, the others go on. 0 means all.
    stream_failures_max: int = 0
    #: Of a TaggedReceiveQueue: receives with a tag that may be open. 0 means 127, or as many as the device has.
    tags: int = 0
    #: Of a DCTQueue: who sends to it must know it. Any number of 64 bits.
    access_key: int = 0

    def to_c(self, kind: int = lib.CRPC_QUEUE_KIND_RC) -> Any:
        options = sized("crpc_queue_options")
        options.kind = kind
        options.flags = (lib.CRPC_QUEUE_SPARSE if self.sparse else 0) | (lib.CRPC_QUEUE_SEQUENCE_ZERO if self.sequence_zero else 0)
        for name in (
            "sends", "send_pieces", "inline_bytes", "receives", "receive_pieces", "retry_timeout", "retry_count",
            "not_ready_retry_count", "reads_max", "queue_key", "streams", "stream_failures_max", "tags",
        ):  # fmt: skip
            setattr(options, name, number(getattr(self, name), name, 0, 0xFFFFFFFF))
        options.access_key = number(self.access_key, "access_key", 0, (1 << 64) - 1)
        if self.receive_queue is not None:
            if not hasattr(self.receive_queue, "_shared_handle"):
                raise TypeError(f"receive_queue is a SharedReceiveQueue or a TaggedReceiveQueue, not {type(self.receive_queue).__name__}")
            options.receive_queue = self.receive_queue._shared_handle()
        limit = timeout_ns(self.connect_timeout, FOREVER)
        if kind == lib.CRPC_QUEUE_KIND_RC:
            options.connect_timeout_ns = limit
        data = private_bytes(self.private_data, lib.CRPC_QUEUE_PRIVATE_BYTES_MAX)
        options.private_bytes = len(data)
        ffi.memmove(options.private_data, data, len(data))
        return options


def private_bytes(data: Any, most: int) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"private_data is bytes, not {type(data).__name__}")
    copy = bytes(data)
    if len(copy) > most:
        raise ValueError(f"private_data has at most {most} bytes, not {len(copy)}")
    return copy


def queue_options(options: Optional[QueueOptions]) -> QueueOptions:
    if options is None:
        return QueueOptions()
    if not isinstance(options, QueueOptions):
        raise TypeError(f"options is a QueueOptions, not {type(options).__name__}")
    return options


@dataclass(frozen=True)
class QueueInfo:
    """Describes a queue. copyrpc.h explains each."""

    state: str
    #: "rc", "srq", "ud", "dci", "dct" or "tm_srq".
    kind: str
    queue_pair_number: int
    peer_number: int
    sends: int
    send_pieces: int
    inline_bytes: int
    receives: int
    receive_pieces: int
    sends_open: int
    receives_open: int
    queues: int
    message_bytes_max: int
    peer_address: str
    local_address: str
    #: What the peer has sent by rdma_cm. The network may have added zeros.
    private_data: bytes
    streams: int
    streams_failed: int
    tags: int
    tags_open: int
    #: In use: what modify() changes. Seconds.
    not_ready_wait: float
    #: As Context.register has it.
    access: tuple[str, ...]
    retry_timeout: int
    retry_count: int
    not_ready_retry_count: int
    queue_key: int
    srq_limit: int


@dataclass(frozen=True)
class QueueStats:
    """Counters since the queue was made. copyrpc.h explains each."""

    sends: int
    receives: int
    signaled_wqes: int
    doorbells: int


@dataclass(frozen=True)
class QueueAddress:
    """What a program without rdma_cm has to know of a queue pair to connect its own to it."""

    queue_pair_number: int
    packet_sequence_number: int
    link: int
    mtu_bytes: int
    lid: int
    gid: bytes
    grh_required: bool = False
    """Packets to it have a GRH, also within its InfiniBand subnet."""

    def to_c(self) -> Any:
        address = sized("crpc_queue_address")
        for name in ("queue_pair_number", "packet_sequence_number", "link", "mtu_bytes", "lid"):
            setattr(address, name, number(getattr(self, name), name, 0, 0xFFFFFFFF))
        if not isinstance(self.gid, bytes) or len(self.gid) != 16:
            raise ValueError("a gid is 16 bytes")
        ffi.memmove(address.gid, self.gid, 16)
        address.flags = lib.CRPC_GRH_REQUIRED if self.grh_required else 0
        return address


class Remote(NamedTuple):
    """A place in the memory of a peer: an address, and the remote key of the region there."""

    address: int
    key: int

    def at(self, offset: int) -> Remote:
        """Returns the place that is `offset` bytes further."""
        return Remote(self.address + number(offset, "offset", 0, (1 << 64) - 1), self.key)


def queue_info(struct: Any) -> QueueInfo:
    return read(
        QueueInfo,
        struct,
        state=connection_state(struct.state),
        kind=_kinds.get(struct.kind, "unknown"),
        private_data=bytes(ffi.buffer(struct.private_data, struct.private_bytes)),
        not_ready_wait=struct.not_ready_wait_ns / 1e9,
        access=tuple(word for word, flag in ACCESSES.items() if struct.access & flag),
    )


def queue_change(
    *, not_ready_wait: Optional[float] = None, access: Optional[Iterable[str]] = None, **numbers: Optional[int]
) -> Any:
    """Returns a crpc_queue_change. What is None stays as it is."""
    change = sized("crpc_queue_change")
    if not_ready_wait is not None:
        change.not_ready_wait_ns = timeout_ns(not_ready_wait) if not_ready_wait else 0
        change.changes |= lib.CRPC_QUEUE_CHANGE_NOT_READY_WAIT
    if access is not None:
        if isinstance(access, str):
            raise TypeError("access is a list or tuple of words, not one word")
        for word in access:
            change.access |= choice(word, "access", ACCESSES)
        change.changes |= lib.CRPC_QUEUE_CHANGE_ACCESS
    for name, value in numbers.items():
        if value is not None:
            setattr(change, name, number(value, name, 0, 0xFFFFFFFF))
            change.changes |= getattr(lib, f"CRPC_QUEUE_CHANGE_{name.upper()}")
    return change


def queue_stats(struct: Any) -> QueueStats:
    return read(QueueStats, struct)


def queue_address(struct: Any) -> QueueAddress:
    return read(QueueAddress, struct, grh_required=bool(struct.flags & lib.CRPC_GRH_REQUIRED))
