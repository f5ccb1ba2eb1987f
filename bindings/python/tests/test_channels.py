"""Channels: messages striped over rails, in the forms for threads; groups, tags, exact sizes, rails, ends, errors."""
import array
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import copyrpc

numpy = pytest.importorskip("numpy")
LARGE = 300_000
RAILS = ("mlx5_0", "mlx5_1")


def data(size, seed=1):
    return bytes((seed * 31 + index * 7) & 0xFF for index in range(251)) * (size // 251) + bytes(size % 251)


def connect(context, listener, options=None):
    """Both ends in one context, so one thread serves both."""
    left = context._begin_channel(listener.address, options)
    right = listener.accept(timeout=60)
    with context._use:
        context._wait(left._settled)
        left._check()
    return left, right


@pytest.fixture
def context():
    with copyrpc.Context(rails=True) as context:
        yield context


@pytest.fixture
def pair(context, address):
    with context.listen_channels(address) as listener:
        yield connect(context, listener)
    registrations = context.cache_info().registrations
    assert registrations == 0 or context._channels, "what is done with is registered still"


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
        left, right = connect(context, listener, copyrpc.ChannelOptions(slots=2, sends_max=8))
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
        left, right = connect(context, listener, copyrpc.ChannelOptions(slots=2, sends_max=8))
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


# ---- Memory ----


def test_regions_are_found(pair, context):
    left, right = pair
    memory = bytearray(1 << 20)
    with context.register(memory, "local_write", "remote_write") as region:
        view = memoryview(memory)
        transfer = right.post_receive(view[500_000 : 500_000 + LARGE])
        assert context.cache_info().misses == 0
        left.send(view[:LARGE])
        transfer.wait()
        assert context.cache_info().misses == 0
        held = right.post_receive(view[:10])
        with pytest.raises(copyrpc.InvalidArgument) as caught:
            region.close()
        assert caught.value.status_name == "CRPC_E_BUSY"
        left.send(b"x")
        held.wait()
        assert region.address > 0 and region.bits > 0
        view.release()
    # A region that may not be received into is as good as none.
    with context.register(memory, "local_write"):
        transfer = right.post_receive(memory)
        assert context.cache_info().misses > 0 and left.send(b"y") == transfer.wait()


def test_dmabuf(pair, context):
    left, right = pair
    descriptor = os.memfd_create("dmabuf")  # simnic takes any file that can be mapped
    os.truncate(descriptor, 8192)
    try:
        region = context.register_dmabuf(descriptor, 4096, "local_write", "remote_write", offset=4096, address=1 << 40)
    except copyrpc.Unsupported:
        pytest.skip("no dma-bufs here")
    op, done = copyrpc.ChannelOpArray(1), copyrpc.CompletionArray(4)
    op.set(0, opcode=copyrpc.CHANNEL_RECEIVE, channel=right.bits, region=region.bits, address=(1 << 40) + 10, bytes=100)
    assert context.submit(op) == 1
    left.send(b"to another device")
    while not context.poll(done):
        context.wait(1)
    assert os.pread(descriptor, 17, 4096 + 10) == b"to another device"
    region.close()
    os.close(descriptor)


def test_memory_that_is_mapped_anew(pair, context):
    """What was registered for a buffer ends with it: the next buffer at its address is other pages."""
    left, right = pair
    size = 1 << 20
    addresses = set()
    for turn in range(20):
        source, target = mmap.mmap(-1, size), mmap.mmap(-1, size)
        source[:] = data(size, turn)
        addresses.add(numpy.frombuffer(target, "u1").ctypes.data)
        transfer = right.post_receive(target)
        left.send(source)
        transfer.wait()
        del transfer
        assert target[:] == data(size, turn), f"turn {turn}"
        assert context.cache_info().registrations == 0
        source.close()
        target.close()
    assert len(addresses) < 20, "no address came twice, so this has tested nothing"


def test_memory_that_overlaps(pair, context):
    """Buffers that share pages, done in any order, leave nothing registered."""
    left, right = pair
    dice = random.Random(7)
    memory = memoryview(bytearray(40 * 4096))
    source = memoryview(bytearray(b"s" * 40 * 4096))
    for _ in range(60):
        transfers = []
        for tag in range(dice.randrange(1, 20)):
            begin = dice.randrange(0, 39 * 4096)
            size = dice.randrange(1, 40 * 4096 - begin)
            transfers.append(right.post_receive(memory[begin : begin + size], tag))
            transfers.append(left.post_send(source[begin : begin + size // 2], tag))
        dice.shuffle(transfers)
        for transfer in transfers:
            transfer.wait()
        assert context.cache_info().registrations == 0


def test_keep_registered(address):
    memory = bytearray(100_000)
    with copyrpc.Context(rails=True, keep_registered=True) as context, context.listen_channels(address) as listener:
        left, right = connect(context, listener)
        for _ in range(5):
            transfer = right.post_receive(memory)
            left.send(b"x" * 70_000)
            transfer.wait()
        info = context.cache_info()
        assert info.registrations == 1 and info.hits >= 4 or info.registrations == 2
        transfer = right.post_receive(memory)
        with pytest.raises(copyrpc.InvalidArgument) as caught:
            context.forget(memory)
        assert caught.value.status_name == "CRPC_E_BUSY"
        left.send(b"")
        transfer.wait()
        assert context.forget(b"") == 0 and context.forget(memory) == 1
        context.forget()
        assert context.cache_info().registrations == 0


# ---- Connecting ----


def test_refused_and_asked(context, address):
    with context.listen_channels(address) as listener:
        left = context._begin_channel(listener.address, copyrpc.ChannelOptions(token=b"who am I"))
        asking = listener.next_connection(60)
        assert asking.token == b"who am I" and asking.peer_address
        asking.reject(42)
        with pytest.raises(copyrpc.InvalidArgument):
            asking.accept()
        with context._use:
            context._wait(left._settled)
        assert isinstance(left.error, copyrpc.Refused) and "42" in left.error.message
        with pytest.raises(copyrpc.Refused):
            left.send(b"x")
        assert listener.counts()[0] >= 1  # a client that is not heard for half a second asks again
        with pytest.raises(copyrpc.Timeout):
            while True:
                assert listener.next_connection(0.02).token == b"who am I"
    with pytest.raises(copyrpc.Closed):
        listener.accept()


def test_nobody_listens(context, address):
    with pytest.raises((copyrpc.Refused, copyrpc.Unreachable)):
        context.connect_channel(address, timeout=60)


def test_blob(context):
    # 4 s before a retry: what one end sends before the other has joined is not lost, however late that is.
    left, one = context.channel_blob(copyrpc.ChannelOptions(slots=4, retry_timeout=20))
    right, other = context.channel_blob(copyrpc.ChannelOptions(retry_timeout=20))
    with pytest.raises(copyrpc.ProtocolError):
        left.join(one[:-1])
    left._join(other)
    right.join(one)
    with context._use:
        context._wait(left._settled)
    assert left.info().slots == 4 and left.info().peer_address == ""
    transfer = right.post_receive(bytearray(3))
    assert left.send(b"abc") == transfer.wait() == 3


def test_contexts_of_their_own(address):
    def serve():
        with copyrpc.listen_channels(address) as listener:
            ready.set()
            with listener.accept() as channel:
                room = bytearray(10)
                size = channel.receive(room)
                channel.send(room[:size] * 2)

    ready = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(60)
    with copyrpc.connect_channel(address, copyrpc.ChannelOptions(queue_pairs=2)) as channel:
        room = bytearray(30)
        channel.send(b"echo")
        assert channel.receive(room) == 8 and room[:8] == b"echoecho"
        context = channel.context
    thread.join(60)
    assert context.closed


@pytest.mark.parametrize("wrong", [{"slots": 257}, {"queue_pairs": 9}, {"sends_max": 65537}, {"sends_max": 7}, {"rails": 2}, {"rails": 4},
                                   {"split": "hint"}, {"split": "hint", "hint": "a/b"}, {"hint": "/x"}, {"rail0_share": 3},
                                   {"split": "fixed", "rail0_share": 1025}, {"split": "other"}, {"token": b"x" * 17},
                                   {"hint": "/" + "x" * 64, "split": "hint"}, {"retry_count": 8}])
def test_options_that_cannot_be(context, address, wrong):
    with pytest.raises(ValueError):
        context._begin_channel(address, copyrpc.ChannelOptions(**wrong))
    with pytest.raises(TypeError):
        context.listen_channels(address, copyrpc.EndpointOptions())


# ---- Ends ----


def test_disconnect(pair):
    left, right = pair
    receive = right.post_receive(bytearray(10))
    sent = left.post_send(b"last")
    left.disconnect(60)
    assert sent.wait() == 4 and receive.wait() == 4
    with pytest.raises(copyrpc.Disconnected):
        left.send(b"x")
    with pytest.raises(copyrpc.Disconnected):
        right.receive(bytearray(1))
    with pytest.raises(copyrpc.Disconnected):
        left.info()
    assert not left.connected and list(left.events()) == list(left.events(0))
    left.disconnect()
    left.close()


def test_stats_are_there_after_the_peer_has_left(pair):
    left, right = pair
    receive = right.post_receive(bytearray(10))
    left.send(b"last")
    assert receive.wait() == 4
    right.disconnect(60)
    with pytest.raises(copyrpc.Disconnected):  # it has heard of the end
        left.receive(bytearray(1))
    assert left.stats().messages_sent == 1 and right.stats().messages_received == 1


def test_what_waits_when_the_peer_leaves(pair):
    left, right = pair
    receive = right.post_receive(bytearray(10))
    left.disconnect(60)
    with pytest.raises(copyrpc.Disconnected):
        receive.wait(60)


def test_close(pair, context):
    left, right = pair
    room = bytearray(10)
    transfers = [left.post_send(b"nobody"), left.post_receive(room)]
    left.close()
    room.extend(b"free again")
    for transfer in transfers:
        with pytest.raises(copyrpc.Closed):
            transfer.wait(1)
    for use in (lambda: left.send(b"x"), lambda: left.receive(room), lambda: left.post_send(b"x"), left.info, left.stats,
                lambda: left.set_share(1), lambda: left.join(b"x")):
        with pytest.raises(copyrpc.Closed):
            use()
    left.close()
    left.disconnect()
    with pytest.raises(copyrpc.Disconnected):
        right.receive(bytearray(1))
    assert not context._pending and not context._dropped and "ended" in repr(left)


def test_context_closed_under_a_transfer(address):
    with copyrpc.Context(rails=True) as context, context.listen_channels(address) as listener:
        left, right = connect(context, listener)
        room = bytearray(10)
        transfer = right.post_receive(room)
        queued = threading.Thread(target=lambda: pytest.raises(copyrpc.Closed, left.send, b"x" * 10).match("closed"))
        # With the context closed under it a thread that waits ends, too.
        other = threading.Thread(target=lambda: pytest.raises(copyrpc.Closed, left.receive, bytearray(1)))
        other.start()
        time.sleep(0.05)
        context.close()
        other.join(60)
        assert not other.is_alive() and not queued.is_alive()
    with pytest.raises(copyrpc.Closed):
        transfer.wait()
    with pytest.raises(copyrpc.Closed):
        left.send(b"x")
    room.extend(b"x")


def test_fork(pair):
    left, right = pair
    # Before Linux 5.12, and on simnic, a child has not the pages of registered memory: no others must lie on them.
    transfer = right.post_receive(mmap.mmap(-1, 4096))
    child = os.fork()
    if child == 0:
        seen = 0
        for use in (lambda: left.send(b"x"), lambda: right.receive(bytearray(1)), left.info, transfer.wait, transfer.test):
            try:
                use()
            except copyrpc.Forked:
                seen += 1
        left.close()
        os._exit(seen)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert left.send(b"there") == transfer.wait() == 5


PEER = """
import copyrpc, sys
channel = copyrpc.connect_channel(sys.argv[1], copyrpc.ChannelOptions(connect_timeout=60))
channel.send(b"up")
channel.receive(bytearray(1))
"""


def test_peer_dies(context, address):
    with context.listen_channels(address) as listener:
        process = subprocess.Popen([sys.executable, "-c", PEER, address])
        channel = listener.accept(timeout=60)
        assert channel.receive(bytearray(10)) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(copyrpc.Disconnected):
            channel.receive(bytearray(10))
        assert isinstance(channel.error, copyrpc.CopyrpcError)


def test_ctrl_c(pair):
    left, right = pair

    def interrupt():
        deadline = time.monotonic() + 60
        while left.info().sends_open == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            left.send(b"nobody")
        thread.join(60)
    finally:
        signal.signal(signal.SIGALRM, previous)
    transfer = right.post_receive(bytearray(10))
    assert left.send(b"yes") == transfer.wait() == 3  # the other was canceled


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
        left, right = connect(context, listener, options)
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
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
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
