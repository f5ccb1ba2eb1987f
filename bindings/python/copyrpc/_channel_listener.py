"""_channel_listener.py: accepting channels."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from ._channel import Channel
from ._channel_options import ChannelOptions, channel_info, channel_options
from ._door import AskingWithToken, Door
from ._native import lib
from .errors import Closed

if TYPE_CHECKING:
    from ._context import Context


class ChannelRequest(AskingWithToken[Channel, ChannelOptions]):
    """A peer that wants to connect a channel. Use accept() or reject()."""


class ChannelListener(Door[Channel, ChannelOptions]):
    """A listener for channels, made by Context.listen_channels."""

    _kind = "crpc_channel"
    _asking = ChannelRequest

    def __init__(self, context: Context, address: bytes, backlog: int, options: ChannelOptions) -> None:
        self._open(context, address, backlog, options, lib.CRPC_LISTENER_CHANNELS)

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
