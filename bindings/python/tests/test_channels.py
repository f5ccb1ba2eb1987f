"""Channels: messages striped over rails, in the forms for threads; groups, tags, exact sizes, rails, arrays."""
import array
import mmap
import os
import subprocess
import threading
import time

import pytest
from conftest import LARGE, STRICT_PYTHON, channels_in, data

import copyrpc

numpy = pytest.importorskip("numpy")
RAILS = ("mlx5_0", "mlx5_1")


def both_rails(*channels):
    deadline = time.monotonic() + 60
    while any(channel.rails != ("up", "up") for channel in channels):
        assert time.monotonic() < deadline, [channel.rails for channel in channels]
        for channel in channels:
            list(channel.events(0.01))


# ---- Contexts and rails ----


def test_rails_by_name_or_as_there_are():
    with copyrpc.Context(rails=RAILS) as named, copyrpc.Context(rails=True) as chosen, copyrpc.Context(rails=["mlx5_1:1"]) as one:
        assert [(rail.index, rail.device, rail.port) for rail in named.rails()] == [(0, "mlx5_0", 1), (1, "mlx5_1", 1)]
        assert named.rails()[0].system_image_guid != named.rails()[1].system_image_guid
        assert [rail.device for rail in chosen.rails()] == list(RAILS)
        assert one.rails()[0].device == "mlx5_1" and one.rails()[0].message_bytes_max > 0
        assert named.rails()[0].receives_left > 0
    with copyrpc.Context(rails=["mlx5_1", None]) as alone:
        assert [rail.device for rail in alone.rails()] == ["mlx5_1"]


@pytest.mark.parametrize("rails, kind", [("mlx5_0", TypeError), ([1], TypeError), ([], ValueError), (["a", "b", "c"], ValueError),
                                         (["mlx5_0", "mlx5_0"], copyrpc.InvalidArgument), (["nosuch"], copyrpc.NoDevice),
                                         (["x" * 64], copyrpc.NoDevice), ([""], copyrpc.NoDevice)])
def test_rails_that_cannot_be(rails, kind):
    with pytest.raises(kind):
        copyrpc.Context(rails=rails).close()


def test_without_rails(address):
    with copyrpc.Context() as context:
        for attempt in (lambda: context.listen_channels(address), lambda: context.connect_channel(address), context.channel_blob,
                        context.cache_info):
            with pytest.raises(copyrpc.InvalidArgument) as caught:
                attempt()
            assert caught.value.status_name == "CRPC_E_STATE"
        assert context.rails() == []


def test_both_rails_carry(pair):
    left, right = pair
    both_rails(left, right)
    left.set_share(512)
    room = bytearray(LARGE)
    transfer = right.post_receive(room)
    assert left.send(data(LARGE)) == LARGE and transfer.wait() == LARGE and room == data(LARGE)
    assert min(left.stats().rail_bytes_sent) >= LARGE * 0.4
    for share in (0, 1024):
        left.set_share(share)
        before = left.stats().rail_bytes_sent
        transfer = right.post_receive(room)
        assert left.send(data(LARGE, share)) == transfer.wait() == LARGE and room == data(LARGE, share)
        after = left.stats().rail_bytes_sent
        used = [after[rail] - before[rail] for rail in (0, 1)]
        assert used[1 if share == 0 else 0] >= LARGE and used[0 if share == 0 else 1] == 0
    info = left.info()
    assert (info.state, info.split, info.rail0_share) == ("connected", "fixed", 1024)
    for wrong in (1025, -1, 1.5):
        with pytest.raises((ValueError, TypeError)):
            left.set_share(wrong)


# ---- Sizes, buffers ----


@pytest.mark.parametrize("size", [0, 1, 127, 128, 4095, 65535, 65537, LARGE])
def test_exact_sizes(pair, size):
    left, right = pair
    room = bytearray(b"\xee" * (LARGE + 100))
    transfer = right.post_receive(room)
    assert left.send(data(size, size)) == size
    assert transfer.wait() == size and room[:size] == data(size, size) and room[size:] == b"\xee" * (LARGE + 100 - size)


@pytest.mark.parametrize("make", [bytearray, lambda size: array.array("B", bytes(size)), lambda size: numpy.zeros(size, "u1"),
                                  lambda size: memoryview(bytearray(size + 10))[10:], lambda size: mmap.mmap(-1, size),
                                  lambda size: numpy.zeros((size // 8, 2), "f4")])
def test_any_buffer(pair, make):
    left, right = pair
    size = 80_000
    source, target = make(size), make(size)
    memoryview(source).cast("B")[:] = data(size)
    transfer = right.post_receive(target)
    assert left.send(source) == size == transfer.wait()
    assert memoryview(target).cast("B") == data(size)


def test_buffers_that_cannot_be(pair):
    left, right = pair
    for wrong in (b"bytes", "text", None, 7, memoryview(b"x"), numpy.zeros((10, 10))[:, 0]):
        with pytest.raises((TypeError, BufferError)) as caught:
            right.post_receive(wrong)
        assert "what receives must be" in str(caught.value)
    for wrong in ("text", None, numpy.zeros((10, 10))[:, 0]):
        with pytest.raises((TypeError, BufferError), match="what is sent must be"):
            left.send(wrong)
    for wrong in (-1, 1 << 32):
        with pytest.raises(ValueError, match="tag"):
            left.send(b"", wrong)
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError, match="tag"):
            left.send(b"", wrong)
    with pytest.raises(ValueError):
        right.post_receive([])
    with pytest.raises(ValueError, match="2 buffers have 1 tags"):
        right.post_receive([bytearray(1), bytearray(1)], [1])
    with pytest.raises(copyrpc.TooBig):
        right.post_receive([bytearray(1)] * 9)
    with pytest.raises(ValueError):
        left.send(b"", timeout=-1)
    assert not left.context._pending and left.info().sends_open == right.info().receives_open == 0


def test_buffers_stay_until_the_end(pair):
    left, right = pair
    room = bytearray(100)
    transfer = right.post_receive(room)
    with pytest.raises(BufferError):
        room.extend(b"more")  # resizing would move it
    left.send(b"y" * 100)
    transfer.wait()
    room.extend(b"more")
    # Nobody but the transfer knows these.
    transfer = right.post_receive([bytearray(70_000), bytearray(10)], [1, 2])
    left.post_send(b"a" * 70_000, 1)
    assert left.send(b"b", 2) == 1 and transfer.wait() == [70_000, 1]


# ---- Groups, order ----


def test_groups_by_tag(pair):
    left, right = pair
    rooms = [bytearray(100_000) for _ in range(8)]
    transfer = right.post_receive(rooms, list(range(8)))
    sends = [left.post_send(data(1000 * tag, tag), tag) for tag in (5, 1, 7, 0, 2, 3, 6, 4)]
    assert transfer.wait() == [1000 * tag for tag in range(8)]
    assert [send.wait() for send in sends] == [1000 * tag for tag in (5, 1, 7, 0, 2, 3, 6, 4)]
    assert all(rooms[tag][: 1000 * tag] == data(1000 * tag, tag) for tag in range(8))


def test_one_tag_for_a_group_is_order(pair):
    left, right = pair
    rooms = (bytearray(10), bytearray(10))
    transfer = right.post_receive(rooms, 9)
    left.send_many([b"first", b"second!"], 9)
    assert transfer.wait() == [5, 7] and rooms == (b"first\0\0\0\0\0", b"second!\0\0\0")


def test_both_directions(pair):
    left, right = pair
    rooms = [bytearray(LARGE), bytearray(LARGE)]
    receives = [left.post_receive(rooms[0]), right.post_receive(rooms[1])]
    sends = [left.post_send(data(LARGE, 3)), right.post_send(data(LARGE, 4))]
    for transfer in sends + receives:
        assert transfer.wait() == LARGE
    assert rooms == [data(LARGE, 4), data(LARGE, 3)]


def test_post_and_test(pair):
    left, right = pair
    room = bytearray(10)
    receive, send = right.post_receive(room), left.post_send(b"hello")
    while not (receive.test() and send.test()):
        pass
    assert receive.done() and receive.wait(0) == 5 and "done" in repr(receive)
    waiting = left.post_send(b"nobody takes this")
    with pytest.raises(copyrpc.Timeout):
        waiting.wait(0.02)
    assert not waiting.test() and "under way" in repr(waiting)
    waiting.cancel()
    with pytest.raises(copyrpc.Canceled):
        waiting.wait(1)
    waiting.cancel()
    assert waiting.test() and "failed" in repr(waiting)


def test_many(pair):
    left, right = pair
    count = 500  # more than there are slots and sends
    rooms = [bytearray(200) for _ in range(count)]
    messages = [data(index % 200, index) for index in range(count)]
    done = []
    thread = threading.Thread(target=lambda: done.append(right.receive_many(rooms)))
    thread.start()
    assert left.send_many(messages) == [len(message) for message in messages]
    thread.join(60)
    assert done == [[len(message) for message in messages]]
    assert [bytes(room[: len(message)]) for room, message in zip(rooms, messages)] == messages
    assert left.send_many([]) == []


def test_many_with_failures(pair):
    left, right = pair
    thread = threading.Thread(target=right.receive_many, args=([bytearray(10), bytearray(2), bytearray(10)],),
                              kwargs={"return_exceptions": True})
    thread.start()
    results = left.send_many([b"1", b"too long", b"333"], return_exceptions=True)
    thread.join(60)
    assert results[0] == 1 and results[2] == 3 and isinstance(results[1], copyrpc.TruncatedError)
    assert (results[1].size, results[1].sizes, results[1].status_name) == (8, [8], "CRPC_E_TRUNCATED")
    right.post_receive(bytearray(1))
    with pytest.raises(copyrpc.TruncatedError):
        left.send_many([b"22"])


def test_truncated_in_a_group(pair):
    left, right = pair
    transfer = right.post_receive([bytearray(10), bytearray(4)], [1, 2])
    left.post_send(b"good", 1)
    with pytest.raises(copyrpc.TruncatedError) as caught:
        left.send(b"too long", 2)
    assert caught.value.size == 8
    with pytest.raises(copyrpc.TruncatedError) as caught:
        transfer.wait()
    assert (caught.value.size, caught.value.sizes) == (8, [4, 8])


# ---- Time, room ----


def test_send_times_out(pair):
    left, right = pair
    begun = time.monotonic()
    with pytest.raises(copyrpc.Timeout):
        left.send(b"x", timeout=0.1)
    assert 0.1 <= time.monotonic() - begun < 3
    room = bytearray(1)
    transfer = right.post_receive(room)
    left.send(b"y", timeout=60)
    assert transfer.wait() == 1 and room == b"y"


def test_room(context, address):
    with context.listen_channels(address) as listener:
        left, right = channels_in(context, listener, copyrpc.ChannelOptions(slots=2, sends_max=8))
        waiting = [left.post_send(b"x") for _ in range(8)]
        with pytest.raises(copyrpc.NoRoom):
            left.post_send(b"x")
        begun = time.monotonic()
        with pytest.raises(copyrpc.Timeout):
            left.send(b"late", timeout=0.1)  # for which there is no room
        assert time.monotonic() - begun >= 0.1
        room = bytearray(9)
        for _ in range(8):
            assert right.receive(room) == 1
        assert [transfer.wait() for transfer in waiting] == [1] * 8
        receives = [right.post_receive(bytearray(1)) for _ in range(2)]
        with pytest.raises(copyrpc.NoRoom):
            right.post_receive([bytearray(1), bytearray(1)])
        left.send_many([b"a", b"b"])
        assert [transfer.wait() for transfer in receives] == [1, 1] and not context._pending


def test_order_when_there_is_no_room(context, address):
    with context.listen_channels(address) as listener:
        left, right = channels_in(context, listener, copyrpc.ChannelOptions(slots=2, sends_max=8))
        filling = [left.post_send(b"-") for _ in range(8)]
        threads = []
        for index in range(6):
            threads.append(threading.Thread(target=left.send, args=(b"%d" % index,)))
            threads[-1].start()
            while len(left._sends.waiting) <= index:  # it waits behind the one before
                time.sleep(0.001)
        got = b""
        for _ in range(14):
            room = bytearray(1)
            right.receive(room)
            got += room
        for thread in threads:
            thread.join(60)
        assert got == b"--------012345" and all(transfer.done() for transfer in filling)


# ---- Arrays ----


def test_arrays(pair, context):
    left, right = pair
    count, size = 32, 5000
    memory = bytearray(2 * count * size)
    with context.register(memory, "local_write", "remote_write") as region:
        sends, receives, done = copyrpc.ChannelOpArray(count), copyrpc.ChannelOpArray(count), copyrpc.CompletionArray(256)
        sends.fill(copyrpc.CHANNEL_SEND, left, region, size)
        receives.fill(copyrpc.CHANNEL_RECEIVE, right, region, size)
        receives.array["address"] += count * size
        receives.array["user_data"] += 100
        memory[: count * size] = data(count * size)
        assert context.submit(receives) == count and context.submit(sends) == count
        seen = {}
        while len(seen) < 2 * count:
            context.poll(done) or context.wait(1.0)
            seen.update((record.user_data, record) for record in done)
            assert not len(done) or bytes(done.gather())[:1] == b"\0"
        assert sorted(seen) == [*range(count), *range(100, 100 + count)]
        assert {record.payload_bytes for record in seen.values()} == {size} and not any(r.status for r in seen.values())
        assert {record.kind for record in seen.values()} == {copyrpc.COMPLETION_SENT, copyrpc.COMPLETION_RECEIVED}
        assert memory[count * size :] == data(count * size)


def test_arrays_and_the_rest(pair, context):
    left, right = pair
    op, done = copyrpc.ChannelOpArray(1), copyrpc.CompletionArray(4)
    with context.register(bytearray(10), "local_write", "remote_write") as region:
        op.set(0, opcode=copyrpc.CHANNEL_RECEIVE, channel=right.bits, region=region.bits, address=region.address, bytes=10,
               user_data=5)
        assert context.submit(op) == 1
        left.send(b"hello")  # whose poll may find the other's completion
        while not context.poll(done):
            context.wait(1)
        record = next(iter(done))
        assert (record.kind, record.user_data, record.payload, record.payload_bytes) == (
            copyrpc.COMPLETION_RECEIVED, 5, region.address, 5)
        with pytest.raises(ValueError):
            done.payload(0)
        for wrong in ({"user_data": 1 << 63}, {"region": 12345}, {"opcode": 9}, {"channel": 7}, {"zero": 1}):
            fields = {"opcode": copyrpc.CHANNEL_RECEIVE, "channel": right.bits, "region": region.bits, "address": region.address,
                      "bytes": 10, **wrong}
            op.set(0, **fields)
            with pytest.raises(copyrpc.CopyrpcError):
                context.submit(op)
        with pytest.raises(ValueError):
            op.fill(7, left, region, 1)


# ---- Rail events ----


def simnic(*words):
    build = os.environ["TEST_BUILD"]
    subprocess.run([f"{build}/simnic/simnic", "ctl", *words], check=True, stdout=subprocess.DEVNULL)


def test_rail_lost_and_back(context, address):
    with context.listen_channels(address) as listener:
        # A rail is lost after a second without an answer, and not when a thread of ours stands still for a while.
        options = copyrpc.ChannelOptions(retry_timeout=15, retry_count=7, rail_retry=0.05)
        left, right = channels_in(context, listener, options)
        both_rails(left, right)
        list(left.events(0))
        left.set_share(512)
        simnic("fault", "rail1=down")
        try:
            room = bytearray(LARGE)
            for turn in range(3):
                transfer = right.post_receive(room)
                assert left.send(data(LARGE, turn)) == transfer.wait() == LARGE and room == data(LARGE, turn)
            event = next(left.events(60))
            assert event == copyrpc.RailEvent(1, False) and left.rails == ("up", "down")
        finally:
            simnic("fault", "none")
        assert next(left.events(60)) == copyrpc.RailEvent(1, True) and left.rails == ("up", "up")
        assert left.stats().rail_failures[1] >= 1 and left.stats().rail_recoveries[1] >= 1


def test_documentation():
    """The section's first program, as it is printed."""
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/python.md")) as file:
        section = file.read().split("## Channels")[1]
    code = section.split("```python")[1].split("```")[0]
    done = subprocess.run([*STRICT_PYTHON, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("('up', ") and done.stdout.endswith("\n700000\n"), done.stdout


def test_threads(address):
    """Each end in a context of its own, both directions at once, from two threads each."""
    count = 100
    errors = []

    def side(channel, seed, peer_seed):
        try:
            other = threading.Thread(target=lambda: [channel.send(data(size, seed)) for size in range(0, 100_000, 100_000 // count)])
            other.start()
            room = bytearray(100_000)
            for size in range(0, 100_000, 100_000 // count):
                assert channel.receive(room) == size and room[:size] == data(size, peer_seed)
            other.join()
        except BaseException as error:
            errors.append(error)

    with copyrpc.Context(rails=True) as one, copyrpc.Context(rails=True) as two, one.listen_channels(address) as listener:
        asking = []
        thread = threading.Thread(target=lambda: asking.append(two.connect_channel(address)))
        thread.start()
        right = listener.accept(timeout=60)
        thread.join()
        threads = [threading.Thread(target=side, args=arguments) for arguments in ((asking[0], 1, 2), (right, 2, 1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert not errors, errors


def test_ordering(address):
    """What is longer than adaptive_routing_bytes has its immediate in a WRITE of its own."""
    wqes = {}
    for wanted in (True, False):
        with copyrpc.Context(rails=True, relaxed_ordering=wanted, adaptive_routing=wanted, adaptive_routing_bytes=1000) as context:
            with context.listen_channels(address) as listener:
                options = copyrpc.ChannelOptions(split="fixed", rail0_share=1024)
                left, right = channels_in(context, listener, options)
                memory = bytearray(1001)
                transfer = right.post_receive(memory)
                left.send(bytes(range(1, 8)) * 143)
                assert transfer.wait() == 1001 and memory == bytes(range(1, 8)) * 143
                wqes[wanted] = left.stats().data_wqes
    assert wqes == {True: 2, False: 1}
    for option in ("relaxed_ordering", "adaptive_routing"):
        with pytest.raises(TypeError):
            copyrpc.Context(**{option: 2})
