"""_channel_options.py: options and descriptions of rails and channels."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ._native import ffi, lib
from ._options import FOREVER, choice, connection_state, number, read, timeout_ns

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
    """How a channel is to be; copyrpc.h explains each. Zero or None is the library's default."""

    slots: int = 0
    sends_max: int = 0
    queue_pairs: int = 0
    #: "measured", "fixed" (by rail0_share) or "hint" (by the shared memory that `hint` names).
    split: str = "measured"
    rail0_share: int = 0
    stripe_bytes_min: int = 0
    #: Bit 1 << n for each rail to be used.
    rails: int = 0
    token: bytes = b""
    hint: str = ""
    connect_timeout: Optional[float] = 5.0
    keepalive: Optional[float] = 1.0
    #: Seconds between attempts to use a lost rail again; None is never.
    rail_retry: Optional[float] = 0.2
    retry_timeout: int = 0
    retry_count: int = 0

    def to_c(self, user_data: int) -> Any:
        if not isinstance(self.token, (bytes, bytearray)):
            raise TypeError(f"a token is bytes, not {type(self.token).__name__}")
        if len(self.token) > lib.CRPC_TOKEN_BYTES_MAX:
            raise ValueError(f"a token has at most {lib.CRPC_TOKEN_BYTES_MAX} bytes, not {len(self.token)}")
        options = ffi.new("crpc_channel_options *", {"struct_size": ffi.sizeof("crpc_channel_options")})
        hint = self.hint.encode()
        if len(hint) >= len(options.hint):
            raise ValueError(f"hint has at most {len(options.hint) - 1} bytes, not {len(hint)}")
        options.user_data = user_data
        options.split = choice(self.split, "split", SPLITS)
        for name in (
            "slots", "sends_max", "queue_pairs", "rail0_share", "stripe_bytes_min", "rails", "retry_timeout", "retry_count"
        ):  # fmt: skip
            setattr(options, name, number(getattr(self, name), name, 0, 0xFFFFFFFF))
        options.hint = hint
        options.connect_timeout_ns = timeout_ns(self.connect_timeout, FOREVER)
        options.keepalive_ns = timeout_ns(self.keepalive, FOREVER)
        options.rail_retry_ns = timeout_ns(self.rail_retry, FOREVER)
        options.token_bytes = len(self.token)
        ffi.memmove(options.token, self.token, len(self.token))
        return options


def channel_options(options: Optional[ChannelOptions]) -> ChannelOptions:
    if options is None:
        return ChannelOptions()
    if not isinstance(options, ChannelOptions):
        raise TypeError(f"options is a ChannelOptions, not {type(options).__name__}")
    return options


@dataclass(frozen=True)
class RailInfo:
    """A port that a context's channels stripe over."""

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


@dataclass(frozen=True)
class CacheInfo:
    """Registrations that were made for buffers without a Region."""

    registrations: int
    registrations_max: int
    bytes: int
    bytes_max: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True)
class RailEvent:
    """A rail of a channel was lost, or is used again. No message is lost by it."""

    rail: int
    up: bool


@dataclass(frozen=True)
class ChannelInfo:
    state: str
    slots: int
    queue_pairs: int
    #: Of each rail: "up", "down", "lacked" (by the peer) or "none".
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
    """Counters since the channel was made; copyrpc.h explains each. Those of rails have a number for each."""

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
