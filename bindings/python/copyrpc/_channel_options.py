"""_channel_options.py: options and descriptions of rails and channels."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ._native import ffi, lib
from ._options import FOREVER, choice, connection_options, connection_state, read, timeout_ns

SPLITS: dict[str, int] = {"measured": lib.CRPC_SPLIT_MEASURED, "fixed": lib.CRPC_SPLIT_FIXED, "hint": lib.CRPC_SPLIT_HINT}
_split_names = {value: name for name, value in SPLITS.items()}
_rail_states: dict[int, str] = {
    lib.CRPC_RAIL_NONE: "none",
    lib.CRPC_RAIL_LACKED: "lacked",
    lib.CRPC_RAIL_DOWN: "down",
    lib.CRPC_RAIL_UP: "up",
}


@dataclass(frozen=True)
class ChannelOptions:
    """Options of a channel, which copyrpc.h explains. A number of 0 means the library's default. A
    time of None means no limit, and for keepalive and rail_retry, never."""

    slots: int = 0
    sends_max: int = 0
    queue_pairs: int = 0
    #: "measured", "fixed" (by rail0_share) or "hint" (by the shared memory named in `hint`, which a ShareHint writes).
    split: str = "measured"
    rail0_share: int = 0
    stripe_bytes_min: int = 0
    #: Bit 1 << n selects rail n; 0 selects all.
    rails: int = 0
    token: bytes = b""
    #: As in EndpointOptions.
    key: bytes = field(default=b"", repr=False)
    hint: str = ""
    connect_timeout: Optional[float] = 5.0
    keepalive: Optional[float] = 1.0
    #: Seconds before the first attempt to use a lost rail again; None means never.
    rail_retry: Optional[float] = 0.2
    retry_timeout: int = 0
    retry_count: int = 0

    def to_c(self, user_data: int) -> Any:
        options = connection_options(
            self, "crpc_channel_options", user_data,
            "slots", "sends_max", "queue_pairs", "rail0_share", "stripe_bytes_min", "rails",
        )  # fmt: skip
        hint = self.hint.encode()
        if len(hint) >= len(options.hint):
            raise ValueError(f"hint has at most {len(options.hint) - 1} bytes, not {len(hint)}")
        options.hint = hint
        options.split = choice(self.split, "split", SPLITS)
        options.rail_retry_ns = timeout_ns(self.rail_retry, FOREVER)
        return options


def channel_options(options: Optional[ChannelOptions]) -> ChannelOptions:
    if options is None:
        return ChannelOptions()
    if not isinstance(options, ChannelOptions):
        raise TypeError(f"options is a ChannelOptions, not {type(options).__name__}")
    return options


@dataclass(frozen=True)
class RailInfo:
    """Describes a port that the channels of a context stripe over."""

    index: int
    device: str
    port: int
    link: int
    link_mbps: int
    mtu_bytes: int
    gid_index: int
    gid: bytes
    driver: int
    system_image_guid: int
    receive_depth: int
    receives_left: int
    receive_wqes: int
    receives_completed: int
    message_bytes_max: int
    queue_pairs_max: int
    last_wqes_missed: int


@dataclass(frozen=True)
class CacheInfo:
    """Describes the registrations of buffers without a Region."""

    registrations: int
    registrations_max: int
    bytes: int
    bytes_max: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True)
class RailEvent:
    """A rail of a channel was lost, or came into use. No message is lost."""

    rail: int
    up: bool


@dataclass(frozen=True)
class ChannelInfo:
    state: str
    slots: int
    queue_pairs: int
    #: State of each rail: "up", "down", "lacked" (the peer does not have it) or "none".
    rails: tuple[str, ...]
    split: str
    rail0_share: int
    receives_open: int
    sends_open: int
    version: int
    token: bytes
    peer_address: str
    local_address: str


@dataclass(frozen=True)
class ChannelStats:
    """Counters since the channel was created. copyrpc.h explains each. A counter of rails has one
    number for each rail."""

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    sends_failed: int
    receives_failed: int
    truncated: int
    rail_bytes_sent: tuple[int, ...]
    rail_messages_sent: tuple[int, ...]
    rail_bytes_received: tuple[int, ...]
    rail_failures: tuple[int, ...]
    rail_recoveries: tuple[int, ...]
    shares_repeated: int
    data_wqes: int
    clear_to_send_wqes: int
    control_wqes: int
    doorbells: int
    protocol_errors: int


def rail_info(struct: Any) -> RailInfo:
    return read(RailInfo, struct)


def cache_info(struct: Any) -> CacheInfo:
    return read(CacheInfo, struct)


def channel_info(struct: Any) -> ChannelInfo:
    return read(
        ChannelInfo,
        struct,
        state=connection_state(struct.state),
        rails=tuple(_rail_states.get(state, "unknown") for state in struct.rail_state),
        split=_split_names.get(struct.split, "unknown"),
        token=bytes(ffi.buffer(struct.token, struct.token_bytes)),
    )


def channel_stats(struct: Any) -> ChannelStats:
    arrays = {name: tuple(getattr(struct, name)) for name in ChannelStats.__annotations__ if name.startswith("rail_")}
    return read(ChannelStats, struct, **arrays)
