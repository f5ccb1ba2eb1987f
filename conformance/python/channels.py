"""channels.py: the verbs of channels."""
import asyncio
import contextlib
import mmap

from words import payload, status_of, tell, told

import copyrpc


def options_of(token="", key="", share=None, **options):
    if share is not None:
        options.update(split="fixed", rail0_share=share)
    return copyrpc.ChannelOptions(token=token.encode(), key=key.encode(), **options)


def joined(values):
    return ",".join(map(str, values))


class Channels:
    """What a Runner has of them. Verbs that take a while are tasks, which begin in the order of their lines."""

    @staticmethod
    def room(length):
        """Memory that costs nothing until it is used: some rooms are too big on purpose."""
        return memoryview(mmap.mmap(-1, max(length, 1)))[:length]

    # ---- Connecting ----

    def do_channel_connect(self, name, address, **options):
        self.begin(self.life(name, None, self.context.aconnect_channel(address, options_of(**options))))

    def do_channel_accept(self, connection, name, **options):
        self.begin(self.life(name, None, connection.aaccept(options_of(**options))))

    def do_channel_reject(self, connection, reason=0):
        connection.reject(reason)

    def do_channel_blob(self, name, **options):
        self.things[name], blob = self.context.channel_blob(options_of(**options))
        self.things[name].user_data = name
        return {"blob": blob.hex()}

    def do_channel_join(self, channel, blob):
        self.begin(self.life(channel.user_data, channel, channel.ajoin(bytes.fromhex(blob))))

    async def life(self, name, channel, connecting):
        try:
            channel = await connecting or channel
        except (Exception, asyncio.CancelledError) as error:
            tell("event kind=connected", endpoint=name, status=status_of(error))
            return
        self.things[name] = channel
        channel.user_data = name
        tell("event kind=connected", endpoint=name, status="CRPC_OK")
        with contextlib.suppress(copyrpc.Closed):  # the context
            async for event in channel.aevents():
                status = "CRPC_OK" if event.up else "CRPC_E_DISCONNECTED"
                tell("event kind=rail", endpoint=name, rail=event.rail, status=status)
            if not isinstance(channel.error, copyrpc.Closed):
                tell("event kind=disconnected", endpoint=name, status="CRPC_OK" if channel.error.status == 0 else status_of(channel.error))

    def do_channel_disconnect(self, channel, timeout=None):
        self.begin(channel.adisconnect(timeout))

    def do_channel_close(self, channel):
        channel.close()

    # ---- Messages ----

    def do_send(self, channel, id, length, seed, count=1, tag=0, timeout=None, region=None, offset=0):
        for index in range(count):
            data = payload(length, seed + index)
            if region is not None:  # the package finds that it is registered
                data = region.memory[offset : offset + length]
                data[:] = payload(length, seed + index)
            sending = self.moving("sent", id + index, channel.asend(data, tag, timeout=timeout))
            self.calls[id + index] = self.begin(sending)

    def do_receive(self, channel, id, rooms, tags="0", count=1, region=None, offset=0):
        sizes, own = [int(size) for size in rooms.split(",")], [int(tag) for tag in tags.split(",")]
        own += [0] * (len(sizes) - len(own))
        for index in range(count):
            memory = [region.memory[offset : offset + sizes[0]]] if region is not None else [self.room(size) for size in sizes]
            receiving = channel.areceive(memory, own) if len(memory) > 1 else channel.areceive(memory[0], own[0])
            self.begin(self.moving("received", id + index, receiving, memory))

    async def moving(self, kind, number, transfer, memory=None):
        fields = {}
        try:
            sizes = await transfer
            sizes = sizes if isinstance(sizes, list) else [sizes]
            fields = {"status": "CRPC_OK", "length": joined(sizes)}
            if memory is not None:
                fields["checksum"] = joined(told(room[:size])["checksum"] for room, size in zip(memory, sizes))
        except (Exception, asyncio.CancelledError) as error:
            fields = {"status": status_of(error)}
            if isinstance(error, copyrpc.TruncatedError):
                fields["length"] = joined(error.sizes)
        tell(f"event kind={kind}", id=number, **fields)

    def do_cancel_send(self, channel, id):
        self.calls[id].cancel()

    def do_set_share(self, channel, share):
        channel.set_share(share)

    # ---- Looking ----

    def do_rails(self):
        rails = self.context.rails()
        return {"count": len(rails), **{f"device{rail.index}": rail.device for rail in rails}}

    def do_channel_info(self, channel):
        info = channel.info()
        return {"slots": info.slots, "queue_pairs": info.queue_pairs, "rail0": info.rails[0], "rail1": info.rails[1],
                "split": info.split, "share": info.rail0_share, "receives_open": info.receives_open, "sends_open": info.sends_open}

    def do_channel_stats(self, channel):
        stats = vars(channel.stats())
        rails = {f"rail{rail}_{short}": stats[name][rail] for rail in (0, 1)
                 for short, name in (("bytes", "rail_bytes_sent"), ("failures", "rail_failures"), ("recoveries", "rail_recoveries"))}
        return {key: value for key, value in stats.items() if not isinstance(value, tuple)} | rails
