"""_channel_listener.py: accepting channels."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._channel import Channel
from ._channel_options import ChannelOptions, channel_info, channel_options
from ._door import AskingWithToken, Door
from ._native import lib
from ._options import sized
from .errors import Closed, error_of

if TYPE_CHECKING:
    from ._context import Context


class ChannelRequest(AskingWithToken[Channel, ChannelOptions]):
    """A peer that wants to connect a channel. Use accept(), reject() or hand_over()."""


class ChannelListener(Door[Channel, ChannelOptions]):
    """A listener for channels, made by Context.listen_channels."""

    _kind = "crpc_channel"
    _asking = ChannelRequest

    def __init__(
        self, context: Context, address: Optional[bytes], backlog: int, options: ChannelOptions, spread: Sequence[ChannelListener]
    ) -> None:
        if address is None and lib.crpc_rail_get_info(context._pointer, 0, sized("crpc_rail_info")) != 0:
            raise error_of(lib.CRPC_E_STATE, "this context has no rails, which channels need")
        self._open(context, address, backlog, options, spread, lib.CRPC_LISTENER_CHANNELS)

    # ---- With the lock ----

    def _checked(self, options: Optional[ChannelOptions]) -> ChannelOptions:
        return channel_options(options)

    def _describe(self, struct: Any) -> Any:
        return channel_info(struct)

    def _c_options(self, options: ChannelOptions) -> Any:
        c_options = options.to_c(0)
        c_options.token_bytes = 0  # it is for connecting
        return c_options

    def _made(self, bits: int, options: ChannelOptions) -> Channel:
        return Channel(self._context, bits)

    def _known(self, bits: int) -> Optional[Channel]:
        return self._context._channels.get(bits)

    # ---- For the application ----

    def next_connection(self, timeout: Optional[float] = None) -> Optional[ChannelRequest]:
        """Waits for a peer that wants to connect. Returns None when the listener is closed."""
        asking: Optional[ChannelRequest] = self._next(timeout)
        return asking

    async def anext_connection(self) -> Optional[ChannelRequest]:
        """Does the same as next_connection, for coroutines."""
        asking: Optional[ChannelRequest] = await self._anext()
        return asking

    def accept(self, options: Optional[ChannelOptions] = None, *, timeout: Optional[float] = None) -> Channel:
        """Waits for a peer that wants to connect, and accepts every peer. `timeout` limits the
        wait."""
        asking = self.next_connection(timeout)
        if asking is None:
            raise Closed("the listener is closed", lib.CRPC_E_CLOSED)
        return asking.accept(options)

    async def aaccept(self, options: Optional[ChannelOptions] = None) -> Channel:
        """Does the same as accept, for coroutines."""
        asking = await self.anext_connection()
        if asking is None:
            raise Closed("the listener is closed", lib.CRPC_E_CLOSED)
        return await asking.aaccept(options)
