"""Channels in an event loop."""
import asyncio
import threading

import pytest
from conftest import until

import copyrpc


def run(address, body, options=None):
    """Runs body(left, right), whose ends are in contexts of their own, in one loop."""

    async def main():
        with copyrpc.Context(rails=True) as one, copyrpc.Context(rails=True) as two, one.listen_channels(address) as listener:
            left, right = await asyncio.gather(two.aconnect_channel(address, options), listener.aaccept(options))
            async with left, right:
                await asyncio.wait_for(body(left, right), 60)
                left.close()

    asyncio.run(main())


def test_send_and_receive(address):
    async def body(left, right):
        rooms = [bytearray(100_000), bytearray(10)]
        got, sent, other = await asyncio.gather(
            right.areceive(rooms, [1, 2]), left.asend(b"x" * 90_000, 1), left.asend(b"small", 2))
        assert (got, sent, other) == ([90_000, 5], 90_000, 5) and rooms[1] == b"small\0\0\0\0\0"
        back, _ = await asyncio.gather(left.areceive(rooms[1]), right.asend(b""))
        assert back == 0

    run(address, body)


def test_many_keep_their_order_without_room(address):
    async def body(left, right):
        count = 300
        rooms = [bytearray(4) for _ in range(count)]
        receives = [asyncio.create_task(right.areceive(room)) for room in rooms]
        sizes = await asyncio.gather(*(left.asend(b"%d" % index) for index in range(count)))
        assert await asyncio.gather(*receives) == sizes == [len(str(index)) for index in range(count)]
        assert [bytes(room).rstrip(b"\0") for room in rooms] == [b"%d" % index for index in range(count)]
        assert left.stats().messages_sent == count and not left.context._pending

    run(address, body, copyrpc.ChannelOptions(slots=4, sends_max=16))


def test_cancel(address):
    async def body(left, right):
        waiting = asyncio.create_task(left.asend(b"nobody"))
        await until(lambda: left.info().sends_open == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert left.info().sends_open == 0 and not left.context._pending
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(left.asend(b"nobody"), 0.05)
        # One that has not even been posted.
        early = asyncio.create_task(left.asend(b"early"))
        await asyncio.sleep(0)
        early.cancel()
        # A receive that is no longer waited for stays posted.
        room = bytearray(10)
        receive = asyncio.create_task(right.areceive(room))
        await until(lambda: right.info().receives_open == 1)
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        with pytest.raises(BufferError):
            room.extend(b"it is the device's")
        assert await left.asend(b"taken") == 5
        await until(lambda: not right.info().receives_open)
        assert room[:5] == b"taken"
        room.extend(b"ours")

    run(address, body)


def test_timeout(address):
    async def body(left, right):
        for _ in range(2):
            # Some find no room.
            tasks = [asyncio.create_task(left.asend(b"x", timeout=0.1)) for _ in range(12)]
            for task in tasks:
                with pytest.raises(copyrpc.Timeout):
                    await task
        got, _ = await asyncio.gather(right.areceive(bytearray(3)), left.asend(b"abc", timeout=60))
        assert got == 3

    run(address, body, copyrpc.ChannelOptions(sends_max=8))


def test_errors(address):
    async def body(left, right):
        receive = asyncio.create_task(right.areceive(bytearray(1)))
        with pytest.raises(copyrpc.TruncatedError) as caught:
            await left.asend(b"long")
        assert caught.value.size == 4
        with pytest.raises(copyrpc.TruncatedError):
            await receive
        with pytest.raises(BufferError):
            await right.areceive(b"read-only")
        waiting = [asyncio.create_task(call) for call in (left.asend(b"x"), left.areceive(bytearray(1)))]
        await asyncio.sleep(0.02)
        left.close()
        for task in waiting:
            with pytest.raises(copyrpc.Closed):
                await task
        with pytest.raises(copyrpc.Disconnected):
            await right.areceive(bytearray(1))
        with pytest.raises(copyrpc.Closed):
            await left.asend(b"x")

    run(address, body)


def test_leave(address):
    async def body(left, right):
        receive = asyncio.create_task(right.areceive(bytearray(10)))
        await left.asend(b"x")
        assert await receive == 1
        events = [event async for event in left.aevents()] if not left.connected else None
        await left.adisconnect(60)
        assert events is None and [event async for event in left.aevents() if not event.up] == []

    run(address, body)


def test_context_is_closed(address):
    async def main():
        with copyrpc.Context(rails=True) as context, context.listen_channels(address) as listener:
            left, right = await asyncio.gather(context.aconnect_channel(address), listener.aaccept())
            tasks = [asyncio.create_task(left.asend(b"x")), asyncio.create_task(right.areceive([bytearray(1), bytearray(1)], [5, 6]))]
            await asyncio.sleep(0.02)
            late = asyncio.create_task(left.asend(b"not yet posted"))
            await asyncio.sleep(0)
            context.close()
            for task in [*tasks, late]:
                with pytest.raises(copyrpc.Closed):
                    await task

    asyncio.run(main())


def test_one_loop_after_another_and_threads(address):
    with copyrpc.Context(rails=True) as context, context.listen_channels(address) as listener:
        left, right = asyncio.run(both(context, listener))
        room = bytearray(10)
        transfer = right.post_receive(room)
        asyncio.run(sending(left))
        assert transfer.wait() == 5
        thread = threading.Thread(target=lambda: right.receive(room))
        thread.start()
        asyncio.run(sending(left))
        thread.join(60)
        assert not thread.is_alive()


def test_a_region_stays_under_a_coroutine_that_receives(address):
    """Its transfer is posted at the end of the loop's turn: the memory must be registered until it is done."""

    async def body(left, right):
        region = right.context.register(bytearray(100), "local_write", "remote_write")
        receive = asyncio.create_task(right.areceive(region.memory[:50]))
        await asyncio.sleep(0)  # it has begun, and the library has not seen it
        assert right._receives.waiting
        with pytest.raises(copyrpc.InvalidArgument, match="uses this memory"):
            region.close()
        await asyncio.sleep(0.02)
        with pytest.raises(copyrpc.InvalidArgument):
            region.close()
        assert await left.asend(b"whole") == 5 == await receive and bytes(region.memory[:5]) == b"whole"
        region.close()

    run(address, body)


async def both(context, listener):
    return await asyncio.gather(context.aconnect_channel(listener.address), listener.aaccept())


async def sending(channel):
    assert await channel.asend(b"hello") == 5
