"""channels.py: the verbs of channels."""
import asyncio
import contextlib
import mmap
import os

from words import event, payload, picked, status_of, told

import copyrpc

CHANNEL = "messages_sent messages_received bytes_sent bytes_received sends_failed receives_failed truncated protocol_errors"


def hint_name(name):
    """Of this runner alone, so that scenarios can run side by side."""
    return f"/conformance-{os.getpid()}-{name}"


def options_of(token="", key="", share=None, hint=None, **options):
    if share is not None:
        options.update(split="fixed", rail0_share=share)
    if hint is not None:
        options.update(split="hint", hint=hint_name(hint))
    return copyrpc.ChannelOptions(token=token.encode(), key=key.encode(), **options)


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
            event("connected", endpoint=name, status=status_of(error))
            return
        self.things[name] = channel
        channel.user_data = name
        event("connected", endpoint=name, status="CRPC_OK")
        with contextlib.suppress(copyrpc.Closed):  # the context
            async for rail in channel.aevents():
                status = "CRPC_OK" if rail.up else "CRPC_E_DISCONNECTED"
                event("rail", endpoint=name, rail=rail.rail, status=status)
            if not isinstance(channel.error, copyrpc.Closed):
                event("disconnected", endpoint=name, status="CRPC_OK" if channel.error.status == 0 else status_of(channel.error))

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

    def do_receive(self, channel, id, rooms, tags=(0,), count=1, region=None, offset=0):
        sizes, own = rooms, [*tags, *[0] * (len(rooms) - len(tags))]
        for index in range(count):
            memory = [region.memory[offset : offset + sizes[0]]] if region is not None else [self.room(size) for size in sizes]
            receiving = channel.areceive(memory, own) if len(memory) > 1 else channel.areceive(memory[0], own[0])
            self.begin(self.moving("received", id + index, receiving, memory))

    async def moving(self, kind, number, transfer, memory=None):
        fields = {}
        try:
            sizes = await transfer
            sizes = sizes if isinstance(sizes, list) else [sizes]
            fields = {"status": "CRPC_OK", **({"length": sizes[0]} if memory is None else {"lengths": sizes})}
            if memory is not None:
                fields["checksums"] = [told(room[:size])["checksum"] for room, size in zip(memory, sizes)]
        except (Exception, asyncio.CancelledError) as error:
            fields = {"status": status_of(error)}
            if isinstance(error, copyrpc.TruncatedError):
                fields.update({"length": error.sizes[0]} if memory is None else {"lengths": list(error.sizes)})
        event(kind, id=number, **fields)

    def do_cancel_send(self, channel, id):
        self.calls[id].cancel()

    def do_set_share(self, channel, share):
        channel.set_share(share)

    # ---- Hints ----

    def do_hint_open(self, hint):
        self.hint = copyrpc.ShareHint(hint_name(hint))

    def do_hint_publish(self, share, lifetime):
        self.hint.publish(share, lifetime)

    def do_hint_close(self):
        self.hint.close()
        os.unlink("/dev/shm" + self.hint.name)

    # ---- Looking ----

    def do_rails(self):
        rails = self.context.rails()
        return {"count": len(rails), "devices": [rail.device for rail in rails]}

    def do_channel_info(self, channel):
        info = channel.info()
        return {"slots": info.slots, "queue_pairs": info.queue_pairs, "rail0": info.rails[0], "rail1": info.rails[1],
                "split": info.split, "share": info.rail0_share, "receives_open": info.receives_open, "sends_open": info.sends_open}

    def do_channel_stats(self, channel):
        stats = channel.stats()
        return {**picked(stats, CHANNEL), "rail0_bytes": stats.rail_bytes_sent[0], "rail1_bytes": stats.rail_bytes_sent[1],
                "rail1_failures": stats.rail_failures[1], "rail1_recoveries": stats.rail_recoveries[1]}
