"""_options.py: everything but payloads that goes in and out: checks of arguments, options, and
descriptions of contexts and endpoints."""
from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, TypeVar, Union

from ._native import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

FOREVER: int = lib.CRPC_FOREVER
#: Rights to registered memory, and those of the peer of a queue.
ACCESSES: dict[str, int] = {
    "local_write": lib.CRPC_ACCESS_LOCAL_WRITE,
    "remote_write": lib.CRPC_ACCESS_REMOTE_WRITE,
    "remote_read": lib.CRPC_ACCESS_REMOTE_READ,
    "remote_atomic": lib.CRPC_ACCESS_REMOTE_ATOMIC,
}
#: What a region can be besides: whose memory it is.
REGION_ACCESSES: dict[str, int] = {**ACCESSES, "device": lib.CRPC_ACCESS_DEVICE, "host": lib.CRPC_ACCESS_HOST}
#: About 290 years. Longer timeouts count as no limit.
_NS_MAX = (1 << 63) - 1

T = TypeVar("T")


def timeout_ns(timeout: Optional[float], none: int = 0) -> int:
    """Converts seconds to nanoseconds. Returns `none` if there is no limit."""
    if timeout is None:
        return none
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"a timeout is a number of seconds, or None for no limit, not {type(timeout).__name__}")
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(f"a timeout is 0 seconds or more, or None for no limit, not {timeout!r}")
    if timeout > _NS_MAX / 1e9:
        return none
    return max(1, int(timeout * 1e9))  # 0 nanoseconds would mean none


def number(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    index = int(value.__index__())
    if not least <= index <= most:
        raise ValueError(f"{name} is {least} to {most}, not {index}")
    return index


def choice(value: str, name: str, choices: dict[str, int]) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{name} is one of {', '.join(choices)}, not {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return choices[value]


def pin(buffer: Buffer, name: str = "the payload") -> Any:
    """Returns a contiguous buffer as C sees it, without a copy. The buffer cannot be resized while
    the result lives."""
    try:
        return ffi.from_buffer(buffer)
    except TypeError:
        raise TypeError(f"{name} must be bytes or another buffer, not {type(buffer).__name__}") from None
    except (BufferError, ValueError) as error:
        raise BufferError(f"{name} must be contiguous in memory (bytes(x) makes a copy that is): {error}") from None


def pin_writable(buffer: Buffer, name: str) -> Any:
    """Does the same for a buffer that will be written."""
    try:
        return ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
    except (TypeError, BufferError, ValueError):
        pin(buffer, name)  # says what else is wrong
        raise BufferError(f"{name} must be writable: a bytearray, for example") from None


def address_bytes(address: str) -> bytes:
    if not isinstance(address, str):
        raise TypeError(f"an address is a str such as '192.0.2.1:7471', not {type(address).__name__}")
    if "\0" in address:
        raise ValueError("an address has no zero bytes")
    return address.encode()


def addresses_bytes(addresses: Union[str, Sequence[str]]) -> bytes:
    """Takes one address, several with commas between them, or a list of addresses."""
    if isinstance(addresses, (list, tuple)):
        if not addresses:
            raise ValueError("a list of addresses has at least one")
        found = [address_bytes(address) for address in addresses]
        if any(b"," in address for address in found):
            raise ValueError("an address in a list has no comma")
        return b",".join(found)
    return address_bytes(addresses)  # type: ignore[arg-type]


def sized(name: str) -> Any:
    return ffi.new(name + " *", {"struct_size": ffi.sizeof(name)})


def connection_options(given: Any, struct: str, user_data: int, *numbers: str) -> Any:
    """Fills the struct with the options that all connections have, and with the named options of
    `given` that are plain numbers."""
    if not isinstance(given.token, (bytes, bytearray)):
        raise TypeError(f"a token is bytes, not {type(given.token).__name__}")
    if len(given.token) > lib.CRPC_TOKEN_BYTES_MAX:
        raise ValueError(f"a token has at most {lib.CRPC_TOKEN_BYTES_MAX} bytes, not {len(given.token)}")
    if not isinstance(given.key, (bytes, bytearray)):
        raise TypeError(f"a key is bytes, not {type(given.key).__name__}")
    if given.key and not lib.CRPC_KEY_BYTES_MIN <= len(given.key) <= lib.CRPC_KEY_BYTES_MAX:
        raise ValueError(f"a key has {lib.CRPC_KEY_BYTES_MIN} to {lib.CRPC_KEY_BYTES_MAX} bytes, not {len(given.key)}")
    options = sized(struct)
    options.user_data = user_data
    for name in (*numbers, "retry_timeout", "retry_count"):
        setattr(options, name, number(getattr(given, name), name, 0, 0xFFFFFFFF))
    options.connect_timeout_ns = timeout_ns(given.connect_timeout, FOREVER)
    options.keepalive_ns = timeout_ns(given.keepalive, FOREVER)
    options.token_bytes = len(given.token)
    ffi.memmove(options.token, given.token, len(given.token))
    options.key_bytes = len(given.key)
    ffi.memmove(options.key, given.key, len(given.key))
    return options


@dataclass(frozen=True)
class EndpointOptions:
    """Options of an endpoint, which copyrpc.h explains. A number of 0 means the library's default.
    A time of None means no limit, and for keepalive, never."""

    call_only: bool = False
    serve_only: bool = False
    ring_bytes: int = 0
    request_bytes: int = 0
    calls_max: int = 0
    batch_window: int = 0
    connect_timeout: Optional[float] = 5.0
    keepalive: Optional[float] = 1.0
    retry_timeout: int = 0
    retry_count: int = 0
    token: bytes = b""
    #: 16 to 64 bytes that both sides know. The connection fails with WrongKey unless the peer knows
    #: them, too; repr() does not show them.
    key: bytes = field(default=b"", repr=False)
    #: The reply_bytes_max of calls that do not set one.
    reply_bytes_max: int = 4096
    peer_ring_bytes_max: int = 0
    #: Both sides can use memory that the other grants, if the peer has this option, too.
    lane: bool = False
    #: How many ops of the lane may be open, up to 4096.
    lane_depth: int = 0
    #: Ring and batch window have their full size from the start, and do not grow as they are used.
    full_size: bool = False
    #: The endpoint connects again when its connection is lost, until it is disconnected or closed: docs/services.md. For connect, which
    #: then takes several addresses.
    reconnect: bool = False
    #: With reconnect: how many seconds it pauses before it tries all addresses again, first and at most. Each pause is twice the one
    #: before, less up to a half at random.
    reconnect_pause: float = 0.01
    reconnect_pause_max: float = 5.0
    #: Generator functions that go around each call: see copyrpc.OutgoingCall. The first is outermost.
    interceptors: Sequence[Callable[[Any], Any]] = ()

    def to_c(self, user_data: int) -> Any:
        for interceptor in self.interceptors:
            if not callable(interceptor):
                raise TypeError(f"an interceptor is a generator function, not {type(interceptor).__name__}")
        options = connection_options(
            self,
            "crpc_endpoint_options",
            user_data,
            "ring_bytes",
            "request_bytes",
            "calls_max",
            "batch_window",
            "peer_ring_bytes_max",
            "lane_depth",
        )
        number(self.reply_bytes_max, "reply_bytes_max", 0, 0xFFFFFFFF)
        options.flags = (
            (lib.CRPC_ENDPOINT_CALL_ONLY if self.call_only else 0)
            | (lib.CRPC_ENDPOINT_SERVE_ONLY if self.serve_only else 0)
            | (lib.CRPC_ENDPOINT_LANE if self.lane else 0)
            | (lib.CRPC_ENDPOINT_FULL_SIZE if self.full_size else 0)
            | (lib.CRPC_ENDPOINT_RECONNECT if self.reconnect else 0)
        )
        pauses = (_pause_ns(self.reconnect_pause, "reconnect_pause"), _pause_ns(self.reconnect_pause_max, "reconnect_pause_max"))
        if self.reconnect or pauses != _PAUSES_NS:
            options.reconnect_pause_ns, options.reconnect_pause_max_ns = pauses
        return options


def _pause_ns(pause: float, name: str) -> int:
    if isinstance(pause, bool) or not isinstance(pause, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {type(pause).__name__}")
    if not 0 < pause <= 3600:
        raise ValueError(f"{name} is more than 0 seconds, and an hour at most, not {pause!r}")
    return max(1, round(pause * 1e9))


_PAUSES_NS = (_pause_ns(EndpointOptions.reconnect_pause, ""), _pause_ns(EndpointOptions.reconnect_pause_max, ""))


def endpoint_options(options: Optional[EndpointOptions]) -> EndpointOptions:
    if options is None:
        return EndpointOptions()
    if not isinstance(options, EndpointOptions):
        raise TypeError(f"options is an EndpointOptions, not {type(options).__name__}")
    return options


def _text(array: Any) -> str:
    return str(ffi.string(array).decode("utf-8", "replace"))


def read(kind: type[T], struct: Any, /, **others: Any) -> T:
    """Fills a dataclass from the members of a C struct that have the same names."""
    for item in fields(kind):  # type: ignore[arg-type]
        if item.name not in others:
            value = getattr(struct, item.name)
            others[item.name] = _text(value) if item.type == "str" else bytes(value) if item.type == "bytes" else value
    return kind(**others)


@dataclass(frozen=True)
class ContextInfo:
    device: str
    driver: int
    driver_name: str
    port: int
    gid_index: int
    gid: bytes
    link: int
    mtu_bytes: int
    endpoints_max: int
    endpoints: int
    receive_depth: int
    send_depth: int
    signal_interval: int
    inline_bytes_max: int
    batch_window_left: int
    features: int
    """The features in use: FEATURE_BLUEFLAME, FEATURE_CQE_COMPRESSION."""
    queues_max: int
    """In use; 0 without Context(queues=True)."""
    queues: int
    """Queues, shared ones too, until they are closed and their ops have ended."""
    initiators: int
    """As requested; 0 = endpoints do not connect by DC."""
    completion_vector: int
    """Of the device, from 0: which wakes who waits."""
    traffic_class: int
    """This and the rest: in use, whether of the options or of the environment."""
    service_level: int
    """0 = that of the route where rdma_cm connects."""
    partition_key: int
    """The P_Key of what does not connect by rdma_cm, as in the port's table; 0 = not known."""
    retry_timeout: int
    """Of connections whose options say 0; 0 = as each kind has it."""
    retry_count: int
    grh_required: bool
    """Of an InfiniBand port: packets to it and from it have a GRH."""


@dataclass(frozen=True)
class EndpointInfo:
    state: str
    request_bytes_max: int
    reply_bytes_max: int
    calls_max: int
    calls_open: int
    requests_open: int
    queue_pair_number: int
    version: int
    features: int
    token: bytes
    peer_address: str
    local_address: str
    calls_waiting: int
    """Of calls_open, those that wait for a connection. This and the rest: with EndpointOptions.reconnect."""
    address_index: int
    """Which address it is, or was, connected to, or tries; 0 = the first."""
    attempts_failed: int
    """To connect, one after the other, up to now."""
    connections: int
    """That were made: more than 1 = it has come back."""

    @property
    def lane(self) -> bool:
        """True if both sides have asked for a lane."""
        return bool(self.features & 1)


@dataclass(frozen=True)
class RegionInfo:
    access: tuple[str, ...]
    address: int
    bytes: int
    local_key: int
    remote_key: int


@dataclass(frozen=True)
class Stats:
    """Counters since the context or the endpoint was created. copyrpc.h explains each."""

    calls: int
    responses: int
    calls_failed: int
    requests: int
    replies: int
    late_responses: int
    batches_sent: int
    batches_received: int
    bytes_sent: int
    bytes_received: int
    send_wqes: int
    doorbells: int
    signaled_wqes: int
    inline_wqes: int
    receive_wqes: int
    mailbox_reads: int
    completions: int
    refused: int
    polls: int
    polls_empty: int
    unknown_completions: int
    protocol_errors: int
    last_wqes_missed: int


@dataclass(frozen=True)
class DeviceInfo:
    """One port of one RDMA device of this machine."""

    name: str
    port: int
    port_count: int
    active: bool
    ethernet: bool
    drivers: int
    mtu_bytes: int
    gid_index: int
    gid: bytes
    endpoints_max: int
    receive_depth_max: int
    inline_bytes_max: int
    vendor_id: int
    vendor_part_id: int
    system_image_guid: int
    link_mbps: int
    partition_key: int
    """The P_Key that a context uses by default; 0 = none, or not known."""
    grh_required: bool
    """As in ContextInfo."""
    completion_vectors: int


@dataclass(frozen=True)
class LogEntry:
    time_ns: int
    level: int
    lost: int
    message: str


_states: dict[int, str] = {
    lib.CRPC_STATE_NEW: "new",
    lib.CRPC_STATE_REQUESTED: "requested",
    lib.CRPC_STATE_CONNECTING: "connecting",
    lib.CRPC_STATE_CONNECTED: "connected",
    lib.CRPC_STATE_CLOSING: "closing",
    lib.CRPC_STATE_DISCONNECTED: "disconnected",
}


def connection_state(state: int) -> str:
    return _states.get(state, "unknown")


def context_info(struct: Any) -> ContextInfo:
    return read(ContextInfo, struct, grh_required=bool(struct.flags & lib.CRPC_GRH_REQUIRED))


def endpoint_info(struct: Any) -> EndpointInfo:
    return read(
        EndpointInfo,
        struct,
        state=connection_state(struct.state),
        token=bytes(ffi.buffer(struct.token, struct.token_bytes)),
    )


def region_info(struct: Any, access: tuple[str, ...]) -> RegionInfo:
    return read(RegionInfo, struct, access=access)


def stats(struct: Any) -> Stats:
    return read(Stats, struct)


def device_info(struct: Any) -> DeviceInfo:
    return read(
        DeviceInfo,
        struct,
        active=struct.port_state == lib.CRPC_PORT_ACTIVE,
        ethernet=struct.link == lib.CRPC_LINK_ETHERNET,
        grh_required=bool(struct.flags & lib.CRPC_GRH_REQUIRED),
    )


def log_entry(struct: Any) -> LogEntry:
    return read(LogEntry, struct)
