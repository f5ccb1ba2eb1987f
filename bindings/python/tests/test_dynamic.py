"""Queues of the dynamically connected transport: one op at a time, for coroutines, and in arrays; and streams."""
import asyncio
import os
import subprocess
import sys

import pytest
from conftest import ALL_RIGHTS, data

import copyrpc

KEY = 0xFEDCBA9876543210
WORD = 4096  # where in a region atomics are
FAILED = (copyrpc.AccessRefused, copyrpc.Disconnected)  # how devices tell that a DCT is gone, or of a wrong key


def has_dc():
    with copyrpc.Context(queues=True) as context:
        try:
            context.dci_queue()
        except copyrpc.Unsupported:
            return False
        return True


HAS_DC = has_dc()
needs_dc = pytest.mark.skipif(not HAS_DC, reason="the device has no DC")


class Both:
    """A DCI, and a DCT with receives in another context."""

    def __init__(self, here, there):
        self.here, self.there = here, there
        self.ours = here.register(bytearray(1 << 16), "local_write")
        self.theirs = there.register(bytearray(1 << 16), *ALL_RIGHTS)
        info = self.theirs.info()
        self.remote = copyrpc.Remote(info.address, info.remote_key)
        self.wrong = copyrpc.Remote(info.address, info.remote_key ^ 0x5500)
        self.shared = there.queue_open(copyrpc.QueueOptions(receives=64, receive_pieces=2))
        self.dct = self.open_dct(KEY)
        self.dci = self.open_dci()
        self.target = here.target(self.dct.address(), access_key=KEY)

    def open_dct(self, key):
        return self.there.dct_queue(copyrpc.QueueOptions(receive_queue=self.shared, access_key=key))

    def open_dci(self, **options):
        return self.here.dci_queue(copyrpc.QueueOptions(sends=64, send_pieces=2, inline_bytes=32, **options))


@pytest.fixture
def both(queue_context):
    with copyrpc.Context(queues=True) as there:
        yield Both(queue_context, there)


WITHOUT_DC = """
import copyrpc

with copyrpc.Context(queues=True, driver="verbs") as context:
    shared = context.queue_open(copyrpc.QueueOptions(receives=1))
    address = copyrpc.QueueAddress(17, 0, 2, 1024, 0, bytes(16))
    for attempt in (lambda: context.dci_queue(), lambda: context.dct_queue(copyrpc.QueueOptions(receive_queue=shared)),
                    lambda: context.target(address, access_key=0)):
        try:
            attempt()
        except copyrpc.Unsupported as error:
            print(error)
"""


def test_a_device_without_dc_says_so(tmp_path):
    """The devices of other vendors have none: here, libmlx5 is made to say that this is one of those."""
    (tmp_path / "other.c").write_text("_Bool mlx5dv_is_supported(void *device) { return device == 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "other.so"), str(tmp_path / "other.c")], check=True)
    # LD_PRELOAD cannot hold a path with a space, and a temporary folder may be one: the library is given by name.
    environment = dict(
        os.environ,
        LD_PRELOAD=" ".join(filter(None, [os.environ.get("LD_PRELOAD"), "other.so"])),
        LD_LIBRARY_PATH=":".join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH")])),
    )
    done = subprocess.run([sys.executable, "-c", WITHOUT_DC], env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 3 and all("DC" in line and "mlx5" in line for line in lines), lines


@needs_dc
def test_more_streams_than_there_are(queue_context):
    try:
        queue_context.dci_queue(copyrpc.QueueOptions(streams=65535)).close()
    except copyrpc.Unsupported as error:
        assert "streams" in str(error)


@needs_dc
@pytest.mark.parametrize("streams", [0, 4])
def test_each_op(both, streams):
    dci = both.open_dci(streams=streams)
    number = dci.info().queue_pair_number
    for stream in range(max(streams, 1)):
        where = {"stream": stream} if streams else {}
        both.ours.memory[0:500] = data(500, stream)
        place = both.theirs[8192:8692]
        work = both.shared.post_receive(place)
        dci.send(both.ours[0:500], both.target, immediate=7, **where)
        received = work.wait(30)
        assert received[:4] == (500, 7, None, both.dct) and received.written == 0 and both.theirs.memory[8192:8692] == data(500, stream)
        assert received.source is None or received.source.queue_pair_number == number
        work = both.shared.post_receive(place)
        dci.send(b"", both.target, **where)
        received = work.wait(30)
        assert received[:4] == (0, None, None, both.dct) and received.written == 0
        dci.write(b"hello", both.remote, both.target, **where)
        assert both.theirs.memory[0:5] == b"hello"
        dci.write([both.ours[0:10], both.ours[20:30]], both.remote.at(100), both.target, **where)
        assert both.theirs.memory[100:120] == data(500, stream)[0:10] + data(500, stream)[20:30]
        work = both.shared.post_receive(place)
        dci.write(both.ours[0:300], both.remote.at(64), both.target, immediate=1, **where)
        received = work.wait(30)
        assert received[:4] == (0, 1, None, both.dct) and received.written == 300
        assert dci.read(both.ours[1000:1300], both.remote.at(64), both.target, fence=True, **where) == 300
        assert both.ours.memory[1000:1300] == data(500, stream)[:300]
        both.theirs.memory[WORD : WORD + 8] = (40).to_bytes(8, "little")
        assert dci.fetch_add(both.remote.at(WORD), 2, both.target, **where) == 40
        assert dci.compare_swap(both.remote.at(WORD), 42, 9, both.target, **where) == 42
        assert dci.compare_swap(both.remote.at(WORD), 42, 8, both.target, **where) == 9
        works = [
            dci.post_write(b"posted", both.remote.at(200), both.target, **where),
            dci.post_read(both.ours[0:8], both.remote.at(WORD), both.target, **where),
            dci.post_compare_swap(both.remote.at(WORD), 9, 10, both.target, **where),
            dci.post_fetch_add(both.remote.at(WORD), 1, both.target, fence=True, **where),
        ]
        assert [one.wait(30) for one in works] == [None, 8, 9, 10]
        work = both.shared.post_receive(place)
        assert dci.post_send(b"posted", both.target, solicited=True, **where).wait(30) is None
        assert work.wait(30).size == 6
    assert dci.stats().sends == 14 * max(streams, 1)


@needs_dc
def test_one_sends_to_many_and_many_to_one(both):
    dcts = [both.open_dct(key) for key in range(8)]  # 0 is a key as any other
    targets = [both.here.target(dct.address(), access_key=key) for key, dct in enumerate(dcts)]
    dcis = [both.dci, both.open_dci(streams=4)]
    works = [both.shared.post_receive(both.theirs[index * 64 : index * 64 + 64]) for index in range(16)]
    for index in range(16):
        dcis[index % 2].send(b"%d" % index, targets[index // 2], immediate=index)
    came = [work.wait(30) for work in works]
    assert sorted(one.immediate for one in came) == list(range(16))
    assert all(one.queue is dcts[one.immediate // 2] for one in came)


@needs_dc
def test_a_stream_fails_alone_and_is_reset(both):
    dci = both.open_dci(streams=4)
    for _ in range(3):
        failing = dci.post_write(b"x", both.wrong, both.target, stream=2)
        behind = dci.post_write(b"x", both.remote, both.target, stream=2)
        with pytest.raises(copyrpc.AccessRefused):
            failing.wait(30)
        with pytest.raises(copyrpc.Flushed):
            behind.wait(30)
        dci.write(b"y", both.remote, both.target, stream=1)
        with pytest.raises(copyrpc.Flushed):
            dci.write(b"x", both.remote, both.target, stream=2)
        assert dci.info().streams_failed == 1 and dci.info().streams == 4 and dci.connected
        dci.reset_stream(2)
        assert dci.info().streams_failed == 0
        dci.write(b"z", both.remote, both.target, stream=2)
    dci.reset_stream(0)  # it has not failed
    for stream in (4, 1 << 16, 0xFFFFFFFF):
        with pytest.raises(copyrpc.InvalidArgument, match=f"stream {stream}"):
            dci.reset_stream(stream)
    with pytest.raises(copyrpc.Unsupported, match="has no streams"):
        both.dci.reset_stream(0)


@needs_dc
def test_a_stream_with_open_ops_is_not_reset(both):
    dci = both.open_dci(streams=2)
    waiting = dci.post_send(b"x", both.target, stream=1)  # nobody receives
    with pytest.raises(copyrpc.InvalidArgument, match="ops of the stream are open"):
        dci.reset_stream(1)
    work = both.shared.post_receive(both.theirs[0:64])
    assert waiting.wait(30) is None and work.wait(30).size == 1
    dci.reset_stream(1)


@needs_dc
def test_what_is_wrong_there_is_one_streams_trouble(both):
    dci = both.open_dci(streams=8, not_ready_retry_count=2)
    gone = both.open_dct(5)
    nobody = both.here.target(gone.address(), access_key=5)
    gone.close()
    with pytest.raises(FAILED):
        dci.write(b"x", both.remote, nobody, stream=1)
    with pytest.raises(FAILED):
        dci.write(b"x", both.remote, both.here.target(both.dct.address(), access_key=KEY + 1), stream=2)
    with pytest.raises(copyrpc.NotReady):
        dci.send(b"x", both.target, stream=3)
    assert dci.info().streams_failed == 3
    dci.write(b"x", both.remote, both.target, stream=0)


@needs_dc
def test_too_many_failed_streams_end_the_queue(both):
    dci = both.open_dci(streams=8, stream_failures_max=1)
    for stream in (1, 2):
        with pytest.raises(copyrpc.AccessRefused):
            dci.write(b"x", both.wrong, both.target, stream=stream)
    with pytest.raises(copyrpc.Disconnected):
        while True:  # until the end is told
            dci.write(b"x", both.remote, both.target, stream=3)
            dci.info()
    with pytest.raises(copyrpc.CopyrpcError):
        dci.reset_stream(1)
    with pytest.raises(copyrpc.AccessRefused):  # without streams, one is enough
        both.dci.write(b"x", both.wrong, both.target)
    with pytest.raises(copyrpc.Disconnected):
        both.dci.write(b"x", both.remote, both.target)


@needs_dc
def test_both_end_as_others_do(both):
    assert (both.dci.info().kind, both.dct.info().kind, both.dci.info().state) == ("dci", "dct", "connected")
    both.dci.drain()
    with pytest.raises(copyrpc.Disconnected):
        both.dci.write(b"x", both.remote, both.target)
    work = both.shared.post_receive(both.theirs[0:64])
    with both.open_dct(1) as other:
        target = both.here.target(other.address(), access_key=1)
        with both.open_dci() as dci:
            dci.send(b"to the end", target)
    assert work.wait(30).size == 10 and other.error is not None
    with pytest.raises(copyrpc.InvalidArgument, match="while queues use it"):
        both.shared.close()
    both.dct.close()
    both.dct.close()
    both.shared.close()
    dci = both.open_dci(streams=4)
    open_works = [dci.post_write(both.ours[0:64], both.remote, both.target, stream=index % 4) for index in range(32)]
    dci.close()
    for work in open_works:
        assert work.done()
        with pytest.raises((copyrpc.Closed, *FAILED)):  # the DCT was gone, too
            work.wait(30)


@needs_dc
def test_bad_input(both, address):
    dci = both.open_dci(streams=4)
    datagrams = both.here.datagram_queue()
    letter = both.here.target(datagrams.address())
    closed = both.here.target(both.dct.address(), access_key=KEY)
    closed.close()
    foreign = both.there.target(both.dct.address(), access_key=KEY)
    for target, family in ((letter, copyrpc.InvalidArgument), (closed, copyrpc.Closed), (foreign, copyrpc.InvalidArgument),
                           (both.dct.address(), TypeError), (None, TypeError)):
        for attempt in (
            lambda target=target: dci.send(b"x", target),
            lambda target=target: dci.write(b"x", both.remote, target),
            lambda target=target: dci.read(both.ours[0:1], both.remote, target),
            lambda target=target: dci.fetch_add(both.remote, 1, target),
            lambda target=target: dci.compare_swap(both.remote, 1, 2, target),
        ):
            with pytest.raises(family):
                attempt()
    with pytest.raises(copyrpc.InvalidArgument, match="without an access_key"):
        datagrams.send(b"x", both.target)
    for queue, stream, family in ((dci, 4, copyrpc.InvalidArgument), (both.dci, 1, copyrpc.InvalidArgument),
                                  (dci, 1 << 16, ValueError), (dci, -1, ValueError), (dci, "1", TypeError)):
        with pytest.raises(family):
            queue.write(b"x", both.remote, both.target, stream=stream)
    with pytest.raises(copyrpc.TooBig):
        dci.write(bytes(1000), both.remote, both.target)
    with pytest.raises(copyrpc.InvalidArgument):
        dci.fetch_add(both.remote.at(4), 1, both.target)  # not a multiple of 8
    with pytest.raises(TypeError):
        dci.write(b"x", both.target, both.remote)
    ops = copyrpc.QueueOpArray(1)
    for queue, fields, family in (
        (dci, {"opcode": copyrpc.QUEUE_RECEIVE}, copyrpc.Unsupported), (dci, {"opcode": copyrpc.QUEUE_NOP}, copyrpc.InvalidArgument),
        (dci, {"opcode": copyrpc.QUEUE_SEND_INVALIDATE, "target": both.target.bits}, copyrpc.Unsupported),
        (dci, {"opcode": copyrpc.QUEUE_NOP, "target": letter.bits}, copyrpc.InvalidArgument),
        (dci, {"opcode": copyrpc.QUEUE_NOP, "target": closed.bits}, copyrpc.Closed),
        (dci, {"opcode": copyrpc.QUEUE_NOP, "target": both.target.bits, "stream": 4}, copyrpc.InvalidArgument),
        (both.dct, {"opcode": copyrpc.QUEUE_NOP}, copyrpc.Unsupported), (both.dct, {"opcode": copyrpc.QUEUE_RECEIVE}, copyrpc.Unsupported),
    ):  # fmt: skip
        ops.set(0, **fields)
        with pytest.raises(family):
            queue.submit(ops)
    for options in ({"streams": 4, "stream_failures_max": 5}, {"stream_failures_max": 1}, {"receives": 1}, {"access_key": 1}, {"queue_key": 1},
                    {"private_data": b"x"}, {"receive_queue": both.shared}, {"streams": 1 << 16}, {"streams": -1}):
        with pytest.raises(ValueError):
            both.there.dci_queue(copyrpc.QueueOptions(**options))
    for options in ({}, {"receive_queue": both.shared, "streams": 1}, {"receive_queue": both.shared, "sends": 1},
                    {"receive_queue": both.shared, "access_key": 1 << 64}):
        with pytest.raises(ValueError):
            both.there.dct_queue(copyrpc.QueueOptions(**options))
    with pytest.raises(copyrpc.InvalidArgument):
        both.here.queue_connect(address, copyrpc.QueueOptions(streams=1))
    with pytest.raises(copyrpc.InvalidArgument):
        both.here.target(both.dct.address(), access_key=KEY, queue_key=1)
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError):
            both.here.target(both.dct.address(), access_key=wrong)
    assert dci.connected and both.dci.connected and dci.stats().sends == 0


@needs_dc
def test_full(both):
    dci = both.open_dci(streams=2)
    works = []
    with pytest.raises(copyrpc.NoRoom):
        while len(works) < 1000:
            works.append(dci.post_send(b"x", both.target, stream=len(works) % 2))  # nobody receives
    assert len(works) >= 64
    receives = [both.shared.post_receive(both.theirs[index * 64 : index * 64 + 64]) for index in range(60)]
    for work in receives:  # one stream may take more of them than the other
        work.wait(30)
    receives = [both.shared.post_receive(both.theirs[index * 64 : index * 64 + 64]) for index in range(len(works) - 60)]
    for work in works + receives:
        work.wait(30)


@needs_dc
def test_coroutines(both):
    async def main():
        dci = both.open_dci(streams=4)
        receiving = [asyncio.ensure_future(both.shared.areceive(both.theirs[8192 + i * 64 : 8192 + i * 64 + 64])) for i in range(16)]
        await asyncio.sleep(0)
        await asyncio.gather(*(dci.asend(b"number %2d" % i, both.target, immediate=i, stream=i % 4) for i in range(16)))
        assert {(await one).immediate for one in receiving} == set(range(16))
        await asyncio.gather(*(dci.awrite(b"%4d" % i, both.remote.at(4 * i), both.target, stream=i % 4) for i in range(200)))
        assert both.theirs.memory[:800] == b"".join(b"%4d" % i for i in range(200))
        assert await dci.aread(both.ours[0:800], both.remote, both.target, stream=3) == 800
        assert both.ours.memory[:800] == both.theirs.memory[:800]
        both.theirs.memory[WORD : WORD + 8] = bytes(8)
        before = await asyncio.gather(*(dci.afetch_add(both.remote.at(WORD), 1, both.target, stream=i % 4) for i in range(50)))
        assert sorted(before) == list(range(50))
        assert await dci.acompare_swap(both.remote.at(WORD), 50, 1, both.target) == 50
        with pytest.raises(copyrpc.AccessRefused):
            await dci.awrite(b"x", both.wrong, both.target, stream=1)
        with pytest.raises(copyrpc.Flushed):
            await dci.aread(both.ours[0:1], both.remote, both.target, stream=1)
        await dci.areset_stream(1)
        await dci.awrite(b"x", both.remote, both.target, stream=1)
        with pytest.raises(copyrpc.InvalidArgument):
            await dci.areset_stream(9)
        await dci.adrain()

    asyncio.run(main())


@needs_dc
def test_arrays(both):
    numpy = pytest.importorskip("numpy")
    dcts = [both.open_dct(key) for key in range(4)]
    targets = [both.here.target(dct.address(), access_key=key) for key, dct in enumerate(dcts)]
    dci = both.open_dci(streams=4)
    both.ours.memory[:] = data(1 << 16)
    ops = copyrpc.queue_ops(1000)
    index = numpy.arange(1000)
    ops["opcode"] = copyrpc.QUEUE_WRITE
    ops["stream"] = index % 4
    ops["target"] = numpy.array([target.bits for target in targets], "u8")[index % 4]
    ops["address"] = both.ours.address + 16 * index
    ops["bytes"] = 16
    ops["remote_key"] = both.remote.key
    ops["remote_address"] = both.remote.address + 16 * index
    ops["user_data"] = index
    done = dci.submit_and_wait(ops, region=both.ours)
    assert not done["status"].any() and sorted(done["user_data"]) == list(range(1000))
    assert both.theirs.memory[:16000] == both.ours.memory[:16000]
    ops["remote_key"][501] ^= 0x5500  # in stream 1
    done = dci.submit_and_wait(ops, region=both.ours)
    status = numpy.empty(1000, "i4")
    status[done["user_data"]] = done["status"]
    other = index % 4 != 1
    assert not status[other].any() and status[501] < 0 and not status[(index < 501)].any()
    names = {copyrpc.CopyrpcError("", int(one)).status_name for one in status[(index > 501) & ~other]}
    assert names == {"CRPC_E_FLUSHED"}
    dci.reset_stream(1)
    ops["remote_key"][501] ^= 0x5500
    assert not dci.submit_and_wait(ops, region=both.ours)["status"].any()

    receives = copyrpc.queue_ops(32)
    receives["opcode"] = copyrpc.QUEUE_RECEIVE
    receives["address"] = both.theirs.address + 32768 + 64 * index[:32]
    receives["bytes"] = 64
    receives["user_data"] = index[:32]
    assert both.shared.submit(receives, region=both.theirs) == 32
    ops = ops[:32].copy()
    ops["opcode"] = copyrpc.QUEUE_WRITE_IMMEDIATE
    ops["immediate"] = index[:32]
    assert not dci.submit_and_wait(ops, region=both.ours)["status"].any()
    came, taken = [], copyrpc.CompletionArray(64)
    while len(came) < 32:
        if both.there.poll(taken) == 0:
            both.there.wait(30)
        came += list(taken)
    assert all(one.flags & copyrpc.COMPLETION_OF_DCT and one.token >> 32 == 16 for one in came)
    assert {one.reply_bytes_max: one.endpoint for one in came} == {i: dcts[i % 4].bits for i in range(32)}
