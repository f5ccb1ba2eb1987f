"""Lanes: arrays of ops and completions, with numpy and without, and exceptions of signal handlers among them."""
import asyncio
import contextlib
import random
import threading
import time

import pytest
from conftest import LANE, endpoints_in
from test_interrupts import Interrupted, Storm

import copyrpc

numpy = pytest.importorskip("numpy")
HALF = 1 << 19


@pytest.fixture
def there(lane_pair, place):
    """The upper half of the place, which the right side grants to the left."""
    left, right = lane_pair
    return left.open_grant(bytes(right.grant(place[HALF:], "rwa")))


def writes(place, there, count, size=8):
    """`count` WRITEs of `size` bytes, from the first half of the place to the second."""
    ops = copyrpc.lane_ops(count)
    ops["opcode"] = copyrpc.LANE_WRITE
    ops["user_data"] = numpy.arange(count)
    ops["address"] = place.address + numpy.arange(count) * size
    ops["bytes"] = size
    ops["grant"] = there.bits
    ops["offset"] = numpy.arange(count) * size
    return ops


def fill(place, seed):
    place.memory[:HALF] = random.Random(seed).randbytes(HALF)
    place.memory[HALF:] = bytes(HALF)


def same(place, size):
    return place.memory[:size] == place.memory[HALF : HALF + size] and not any(place.memory[HALF + size :])


def kind(status):
    """The class of the exception for a status."""
    return type(copyrpc.errors.error_of(int(status))) if status else None


def test_the_types_are_the_headers():
    op = copyrpc.lane_op_dtype
    assert op.itemsize == 64 and [op.fields[name][1] for name in ("access", "bytes", "region", "grant", "offset", "operand")] == [2, 4, 16, 32, 40, 56]
    assert len(copyrpc.lane_ops(3)) == 3 and copyrpc.lane_ops(3).dtype == op and not copyrpc.lane_ops(2).view("u1").any()


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
def test_submit_and_wait(lane_pair, there, place, count):
    left, _ = lane_pair
    fill(place, count)
    ops = writes(place, there, count)
    ops["user_data"] = (1 << 63) | numpy.arange(count, dtype="u8")  # here all bits are the caller's
    done = left.submit_and_wait(ops, region=place)
    assert done.dtype == copyrpc.completion_dtype and not done["status"].any() and not ops["region"].any()
    assert (done["user_data"] == ops["user_data"]).all() and (done["method"] == copyrpc.LANE_WRITE).all()
    assert (done["endpoint"] == left.bits).all() and same(place, count * 8)


def test_all_opcodes(lane_pair, there, place):
    left, right = lane_pair
    fill(place, 1)
    ops = writes(place, there, 6)
    ops["opcode"] = [copyrpc.LANE_WRITE, copyrpc.LANE_READ, copyrpc.LANE_COMPARE_SWAP, copyrpc.LANE_FETCH_ADD, copyrpc.LANE_GRANT, copyrpc.LANE_WRITE]
    ops["address"][2:4] = ops["bytes"][2:4] = 0
    ops["offset"][1] = 0  # what the first has written
    ops["offset"][2:4] = 1024  # 0 there: becomes 77, then 80
    ops["operand"][2:4] = 77, 3
    ops["flags"][2:4] = copyrpc.LANE_FENCE
    ops["grant"][4] = ops["offset"][4] = 0
    ops["access"][4] = copyrpc.ACCESS_REMOTE_READ
    done = left.submit_and_wait(ops, region=place)
    assert not done["status"].any() and list(done["token"][2:4]) == [0, 77] and done["payload_bytes"][1] == 8
    assert place.memory[8:16] == place.memory[0:8] and not done["flags"].any()
    own = left.grant_of(int(done["token"][4]))
    back = right.open_grant(bytes(own))
    assert (len(back), back.access) == (8, "r")
    revoke = copyrpc.lane_ops(1)
    revoke["opcode"], revoke["grant"], revoke["operand"] = copyrpc.LANE_REVOKE, own.bits, 60 * 10**9
    assert not left.submit_and_wait(revoke)["status"].any() and back.over and own.over


def test_submit_and_poll(lane_pair, there, place):
    left, _ = lane_pair
    fill(place, 2)
    ops = writes(place, there, 1000)
    completions, sent, ended = copyrpc.CompletionArray(256), 0, []
    while len(ended) < 1000:
        sent += left.submit(ops, first=sent, region=place) if sent < 1000 else 0
        left.context.poll(completions)
        assert not any(completions.column("status"))
        ended.extend(completions.column("user_data"))
    assert ended == list(range(1000)) and same(place, 8000)
    assert left.submit(ops, 0) == 0 and left.submit(ops[:0]) == 0
    ops["region"] = place.bits
    assert left.submit(ops, 20) == 20
    left.read(place[0:8], there)  # which polls: the completions are kept
    completions, ended = copyrpc.CompletionArray(7), []
    while len(ended) < 20:
        left.context.poll(completions)
        ended.extend(record.user_data for record in completions)
    assert ended == list(range(20))


def test_pieces(lane_pair, there, place):
    left, _ = lane_pair
    fill(place, 7)
    ops = writes(place, there, 300)
    pieces = numpy.zeros(600, copyrpc.piece_dtype)
    pieces["region"] = place.bits
    pieces["address"] = place.address + 4 * numpy.arange(600)
    pieces["bytes"] = 4
    ops["flags"] = copyrpc.LANE_PIECES
    ops["address"], ops["bytes"] = 2 * numpy.arange(300), 2
    done = left.submit_and_wait(ops, pieces=pieces)
    assert not done["status"].any() and same(place, 2400)
    small = numpy.arange(64, dtype="u1")
    ops["flags"], ops["address"], ops["bytes"] = copyrpc.LANE_INLINE, small.ctypes.data, 8
    assert left.submit(ops, 8, region=place, pieces=pieces) == 8
    completions, ended = copyrpc.CompletionArray(8), 0
    while ended < 8:
        ended += left.context.poll(completions)
        assert not any(completions.column("status"))
    assert bytes(place.memory[HALF : HALF + 16]) == bytes(range(8)) * 2
    ops["flags"], ops["address"], ops["bytes"] = copyrpc.LANE_PIECES, 0, 9
    with pytest.raises(copyrpc.InvalidArgument):
        left.submit_and_wait(ops, pieces=pieces)


def test_without_numpy(lane_pair, there, place):
    left, _ = lane_pair
    fill(place, 3)
    ops = copyrpc.LaneOpArray(10)
    for index in range(10):
        ops.set(index, opcode=copyrpc.LANE_WRITE, user_data=index, region=place.bits, address=place.address + index, bytes=1,
                grant=there.bits, offset=index)
    done = left.submit_and_wait(ops)
    assert isinstance(done, copyrpc.CompletionArray) and [record.user_data for record in done] == list(range(10)) and same(place, 10)
    assert left.submit(ops, 3, 5) == 3 and ops.array["grant"][9] == there.bits


def test_arrays_that_cannot_be(lane_pair, there, place):
    left, _ = lane_pair
    ops = writes(place, there, 10)
    for submit in (left.submit, left.submit_and_wait):
        for wrong in (bytes(640), None, 7, copyrpc.queue_ops(10), copyrpc.QueueOpArray(2), ops.reshape(2, 5), "x" * 64):
            with pytest.raises(TypeError):
                submit(wrong)
        with pytest.raises(BufferError):
            submit(ops[::2])
        with pytest.raises(TypeError):
            submit(ops, region=place[:])
    for wrong in ({"count": 11}, {"first": 11}, {"count": -1}, {"first": 5, "count": 6}):
        with pytest.raises(ValueError):
            left.submit(ops, **wrong)
    ops["user_data"] |= numpy.uint64(1 << 63)
    for region in (place, None):
        with pytest.raises(copyrpc.InvalidArgument):
            left.submit(ops, region=region)


def test_an_op_that_is_refused(lane_pair, there, place):
    left, _ = lane_pair
    ops = writes(place, there, 10)
    ops["opcode"][4] = 99
    done = left.submit_and_wait(ops, region=place)
    assert [kind(status) for status in done["status"]] == [None] * 4 + [copyrpc.Unsupported] + [copyrpc.Canceled] * 5
    assert (done["user_data"] == numpy.arange(10)).all() and (done["method"] == ops["opcode"]).all()
    assert (done["endpoint"] == left.bits).all() and not done["flags"].any() and (done["kind"] == copyrpc.COMPLETION_WORK).all()
    for submit in (left.submit_and_wait, left.submit):
        with pytest.raises(copyrpc.Unsupported):
            submit(ops[4:], region=place)
    assert left.submit(ops, region=place) == 4
    with pytest.raises(copyrpc.InvalidArgument):  # no region
        left.submit_and_wait(writes(place, there, 1))


def test_the_lane_fails_meanwhile(lane_pair, there, place):
    """The handles of before are stale then, so what was not submitted is refused."""
    from test_lanes import forged

    left, right = lane_pair
    own = right.grant(place[0:8], "w")
    wrong = left.open_grant(forged(bytes(own), key=0x123456))
    ops = writes(place, there, 300)
    ops["grant"][20], ops["offset"][20] = wrong.bits, 0
    done = left.submit_and_wait(ops, region=place)
    assert len(done) == 300 and sorted(done["user_data"]) == list(range(300))
    status = done["status"][numpy.argsort(done["user_data"], kind="stable")]
    assert not status[:20].any() and (status[21:] < 0).all()
    assert (kind(status[20]), kind(status[21])) == (copyrpc.AccessRefused, copyrpc.Flushed)
    deadline = time.monotonic() + 60
    while not own.over and time.monotonic() < deadline:  # the right side hears of it a moment later
        left.context.poll(copyrpc.CompletionArray(8))
    there = left.open_grant(bytes(right.grant(place[HALF:], "rwa")))
    assert not left.submit_and_wait(writes(place, there, 300), region=place)["status"].any()


def test_threads_and_coroutines(address):
    with copyrpc.Context() as context:
        place = context.register(bytearray(1 << 20), "local_write")
        pairs = [endpoints_in(context, address) for _ in range(3)]
        grants = [left.open_grant(bytes(right.grant(place[HALF:], "rwa"))) for left, right in pairs]
        fill(place, 5)
        parts = [writes(place, grant, 3000)[index::3].copy() for index, grant in enumerate(grants)]
        wrong = []

        def work(endpoint, part):
            for _ in range(5):
                done = endpoint.submit_and_wait(part, region=place)
                if done["status"].any() or (done["user_data"] != part["user_data"]).any():
                    wrong.append(done)

        threads = [threading.Thread(target=work, args=(left, part)) for (left, _), part in zip(pairs, parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong and same(place, 24000)
        fill(place, 6)

        async def main():
            done = await asyncio.gather(*(left.asubmit_and_wait(part, region=place) for (left, _), part in zip(pairs, parts)))
            assert not any(one["status"].any() for one in done) and same(place, 24000)
            with pytest.raises(copyrpc.Unsupported):
                await pairs[0][0].asubmit_and_wait(numpy.zeros(1, copyrpc.lane_op_dtype))

        asyncio.run(main())
        assert not context._works


def test_what_coroutines_have_begun_is_before_a_call(address):
    """Also an array for all of which there is no room at once; and one that ends before the library has it all."""
    count = HALF // 64

    async def main():
        with copyrpc.Context() as context, context.listen(address, LANE, auto_accept=False) as listener:
            memory = context.register(bytearray(1 << 20), "local_write")
            task = asyncio.ensure_future(context.aconnect(listener.address, LANE))
            right = await (await listener.anext_connection()).aaccept()
            left = await task
            there = await left.aopen_grant(bytes(await right.agrant(memory[HALF:], "w")))
            fill(memory, 7)
            works = asyncio.ensure_future(left.asubmit_and_wait(writes(memory, there, count, 64), region=memory))
            await asyncio.sleep(0)
            assert context._works
            call = asyncio.ensure_future(left.acall(b"done", after=True))
            request = await listener.areceive()
            assert same(memory, HALF)
            request.reply(b"seen")
            del request
            assert await call == b"seen" and not (await works)["status"].any()
            works = asyncio.ensure_future(left.asubmit_and_wait(writes(memory, there, count, 64), region=memory))
            await asyncio.sleep(0)
            call = asyncio.ensure_future(left.acall(b"again", after=True))
            await asyncio.sleep(0)
            works.cancel()
            request = await listener.areceive()
            request.reply()
            del request
            assert await call == b""

    asyncio.run(main())


def test_close_completes_what_was_submitted(lane_pair, there, place):
    left, _ = lane_pair
    assert left.submit(writes(place, there, 40), region=place) == 40
    left.close()
    completions, ended = copyrpc.CompletionArray(16), []
    while len(ended) < 40:
        left.context.poll(completions)
        ended.extend(completions)
    assert sorted(record.user_data for record in ended) == list(range(40))
    assert {kind(record.status) for record in ended} <= {None, copyrpc.Closed}
    with pytest.raises(copyrpc.Closed):
        left.submit(writes(place, there, 1), region=place)
    with pytest.raises(copyrpc.Closed):
        left.submit_and_wait(writes(place, there, 1), region=place)


def test_a_storm(lane_pair, there, place):
    """Each op adds one to what is there; none may come twice or be lost."""
    left, right = lane_pair
    context = left.context
    ops = copyrpc.lane_ops(200)
    ops["opcode"], ops["grant"], ops["operand"] = copyrpc.LANE_FETCH_ADD, there.bits, 1
    ops["user_data"] = numpy.arange(200)
    rounds = sure = 0
    with Storm() as storm:
        while not storm.over():
            rounds += 1
            with contextlib.suppress(Interrupted):
                if rounds % 3 == 0:
                    done = left.submit_and_wait(ops)
                    sure += 200
                    assert not done["status"].any() and (done["user_data"] == numpy.arange(200)).all()
                elif rounds % 3 == 1:
                    left.fetch_add(there, 1)
                    sure += 1
                else:
                    with right.grant(place[0:8], "r") as own:
                        bytes(own)
    done = left.submit_and_wait(ops)  # all before it have ended
    assert not done["status"].any() and (numpy.diff(done["token"].astype("i8")) == 1).all()
    assert sure <= int(done["token"][0]) <= rounds * 200 and int.from_bytes(place.memory[HALF : HALF + 8], "little") == int(done["token"][-1]) + 1
    deadline = time.monotonic() + 60
    while context._pending and time.monotonic() < deadline:
        context.poll(copyrpc.CompletionArray(1))
    assert not context._pending and not context._works and not context._followers and context._leader is None


def test_lane_is_an_option():
    assert LANE.lane and not copyrpc.EndpointOptions().lane
