"""Receives with tags (TM-SRQs): one op at a time, for coroutines, and in arrays."""
import asyncio
import threading
import time

import pytest
from conftest import CONNECT_SECONDS, data

import copyrpc
from copyrpc._native import ffi, lib

HEADER = copyrpc.TAG_HEADER_BYTES
ALL = copyrpc.TAG_MASK_ALL
TAGS = 8


def tagged_pair(context, where, **options):
    """A queue that receives with tags, and one that sends to it; one thread serves both."""
    tagged = context.tagged_queue(copyrpc.QueueOptions(receives=16, receive_pieces=2, tags=TAGS, **options))
    sender = connect_to(context, where, tagged)
    return tagged, sender


def connect_to(context, where, tagged):
    with context.listen_queues(where) as listener:
        sender = context._begin_queue(listener.address, copyrpc.QueueOptions(sends=64, send_pieces=2))
        listener.next_connection(CONNECT_SECONDS).accept(copyrpc.QueueOptions(receive_queue=tagged), timeout=CONNECT_SECONDS)
        with context._use:
            sender._settle(0, "connect")
    return sender


@pytest.fixture
def pair(queue_context, address):
    tagged, sender = tagged_pair(queue_context, address)
    yield tagged, sender
    assert not tagged._boxes()[0].waiting


def send(queue, tag, payload=b"", context=0):
    queue.send(copyrpc.tag_header(tag, context) + payload)


# ---- Headers ----


def test_a_header_is_what_the_library_writes():
    theirs = ffi.new("uint8_t[16]")
    for tag, context in ((0, 0), (1, 2), (0x0123456789ABCDEF, 0xDEADBEEF), (ALL, 0xFFFFFFFF)):
        assert lib.crpc_tag_header_write(theirs, tag, context) == 0
        ours = copyrpc.tag_header(tag, context)
        assert ours == bytes(ffi.buffer(theirs)) and len(ours) == HEADER
        memory = bytearray(20)
        copyrpc.write_tag_header(memory, tag, context)
        assert memory == ours + bytes(4)
        assert copyrpc.read_tag_header(ours + b"payload") == ("eager", tag, context)


def test_bad_headers():
    for tag, context in ((-1, 0), (1 << 64, 0), (0, -1), (0, 1 << 32)):
        with pytest.raises(ValueError):
            copyrpc.tag_header(tag, context)
    for tag, context in (("1", 0), (1.0, 0), (0, None), (True, 0)):
        with pytest.raises(TypeError):
            copyrpc.tag_header(tag, context)
    with pytest.raises(ValueError):
        copyrpc.write_tag_header(bytearray(15), 1)
    with pytest.raises(BufferError):
        copyrpc.write_tag_header(bytes(16), 1)
    with pytest.raises(TypeError):
        copyrpc.write_tag_header(None, 1)
    for message in (b"", bytes(15), b"\4" + bytes(15), b"\xff" * 16):
        with pytest.raises(copyrpc.ProtocolError):
            copyrpc.read_tag_header(message)
    assert copyrpc.read_tag_header(bytes(16)) == ("none", 0, 0)
    assert copyrpc.read_tag_header(b"\1" + bytes(15)).kind == "rendezvous"


# ---- Messages ----


def test_a_message_finds_its_memory(pair, region):
    tagged, sender = pair
    info = tagged.info()
    assert (info.kind, info.state, info.tags, info.tags_open, info.queues) == ("tm_srq", "connected", TAGS, 0, 1)
    word = tagged.post_receive_tag(region[0:100], 1)
    number = tagged.post_receive_tag(region[100:200], 0x100, ALL - 0xFF)
    anything = tagged.post_receive_tag(region[200:300], 0, 0)
    assert tagged.info().tags_open == 3 and not word.test()
    send(sender, 0x1AB, b"384400 km", 7)
    matched = number.wait(30)
    assert (matched.size, matched.tag, matched.context, matched.rendezvous) == (9, 0x1AB, 7, False)
    assert matched.queue is not None and matched.queue is not tagged and region.memory[100:109] == b"384400 km"
    send(sender, 1, b"moon")
    assert word.wait(30).tag == 1 and region.memory[0:4] == b"moon"
    send(sender, 0x0123456789ABCDEF)
    assert anything.wait(30)[:2] == (0, 0x0123456789ABCDEF)
    assert tagged.info().tags_open == 0 and "receive_tag done" in repr(anything)


def test_it_waits(pair, region):
    tagged, sender = pair
    thread = threading.Timer(0.05, send, (sender, 5, data(40)))
    thread.start()
    matched = tagged.receive_tag(region[0:64], 5, timeout=60)
    thread.join()
    assert matched.size == 40 and region.memory[0:40] == data(40)


def test_large_messages_in_pieces(pair, region):
    tagged, sender = pair
    copyrpc.write_tag_header(region.memory, 9)
    region.memory[4096:104096] = data(100000)
    work = tagged.post_receive_tag(region[200000:400000], 9)
    sender.send([region[0:HEADER], region[4096:104096]])
    assert work.wait(30).size == 100000 and region.memory[200000:300000] == data(100000)


def test_the_oldest_that_matches_gets_it(pair, region):
    tagged, sender = pair
    works = [tagged.post_receive_tag(region[i * 64 : i * 64 + 64], 5, ALL if i % 2 else 0xFF) for i in range(4)]
    for index in range(4):
        send(sender, 5, b"%d" % index)
    for index, work in enumerate(works):
        assert work.wait(30).size == 1 and region.memory[index * 64] == ord("0") + index


def test_a_rendezvous_is_left_to_the_application(pair, region):
    tagged, sender = pair
    work = tagged.post_receive_tag(region[0:64], 5)
    request = b"\1" + copyrpc.tag_header(5, 9)[1:] + bytes(range(16))  # where the payload is, as other programs say it
    sender.send(request)
    matched = work.wait(30)
    assert matched.rendezvous and (matched.size, matched.tag, matched.context) == (32, 5, 9)
    assert region.memory[0:32] == request and copyrpc.read_tag_header(region.memory[0:32]).kind == "rendezvous"


def test_places_are_used_again(pair, region):
    tagged, sender = pair
    for turn in range(5 * TAGS):
        works = [tagged.post_receive_tag(region[i * 64 : i * 64 + 64], i) for i in range(3)]
        for index in (2, 0, 1):
            send(sender, index, b"%d %d" % (turn, index))
        for index, work in enumerate(works):
            text = b"%d %d" % (turn, index)
            assert work.wait(30).size == len(text) and region.memory[index * 64 : index * 64 + len(text)] == text


# ---- Removal ----


def test_memory_is_taken_back(pair, region):
    tagged, sender = pair
    works = [tagged.post_receive_tag(region[i * 64 : i * 64 + 64], 5) for i in range(2)]
    assert works[0].remove() is True
    with pytest.raises(copyrpc.Canceled):
        works[0].wait()
    assert works[0].remove() is True and not works[1].done()  # it was, once
    send(sender, 5, b"x")
    assert works[1].wait(30).size == 1
    assert works[1].remove() is False and works[1].wait().tag == 5
    assert tagged.info().tags_open == 0


def test_a_message_is_faster_than_its_removal(pair, region):
    tagged, sender = pair
    for _ in range(20):
        work = tagged.post_receive_tag(region[0:64], 5)
        sent = sender.post_send(copyrpc.tag_header(5) + b"x")
        if work.remove():
            with pytest.raises(copyrpc.Canceled):
                work.wait()
            received = tagged.receive(region[64:128], timeout=30)  # the message must go somewhere
            assert received.unexpected and tagged.synchronize()
        else:
            assert work.wait(30).size == 1
        sent.wait(30)


def test_a_timeout_takes_it_back(pair, region):
    tagged, sender = pair
    with pytest.raises(copyrpc.Timeout):
        tagged.receive_tag(region[0:64], 5, timeout=0.01)
    assert tagged.info().tags_open == 0
    receive = tagged.post_receive(region[64:128])
    send(sender, 5, b"x")
    assert receive.wait(30).unexpected and region.memory[0] == 0


# ---- Unexpected messages ----


def test_what_nothing_matches_is_received(pair, region):
    tagged, sender = pair
    receives = [tagged.post_receive(region[i * 128 : i * 128 + 128]) for i in range(4)]
    send(sender, 77, b"sun", 3)
    received = receives[0].wait(30)
    assert received.unexpected and received.size == HEADER + 3 and received.queue.info().kind == "rc"
    assert copyrpc.read_tag_header(region.memory[0:128]) == ("eager", 77, 3) and region.memory[HEADER : HEADER + 3] == b"sun"
    late = tagged.post_receive_tag(region[1024:1100], 5)  # matches nothing until the message was looked at
    send(sender, 5, b"early")
    assert receives[1].wait(30).unexpected
    assert tagged.synchronize() is True
    send(sender, 5, b"late")
    assert late.wait(30).size == 4
    sender.send(b"without a header")
    assert receives[2].wait(30).unexpected is False
    assert tagged.synchronize() is True  # there was nothing, which does no harm


def test_what_was_not_looked_at_bars_synchronize(pair, region):
    tagged, sender = pair
    receives = [tagged.post_receive(region[i * 128 : i * 128 + 128]) for i in range(3)]
    for tag in range(2):
        send(sender, tag)
    while not receives[1].test():
        pass
    assert tagged.synchronize() is False
    assert receives[0].wait().unexpected
    assert tagged.synchronize() is False
    ops = copyrpc.QueueOpArray(2)
    ops.set(0, opcode=copyrpc.QUEUE_TAG_ADD, user_data=1, remote_address=9, operand=ALL)
    ops.set(1, opcode=copyrpc.QUEUE_TAG_SYNC, user_data=2)
    assert tagged.submit(ops) == 1  # the second is refused
    with pytest.raises(copyrpc.InvalidArgument) as caught:
        tagged.submit(ops, 1, 1)
    assert caught.value.status_name == "CRPC_E_BUSY" and "not looked at" in str(caught.value)
    ops.set(0, opcode=copyrpc.QUEUE_TAG_ADD, user_data=1, remote_address=8, operand=ALL)
    done = tagged.post_receive_tag(region[512:600], 3)
    assert done.remove()
    del receives[1]  # nobody can look at it any more
    assert tagged.synchronize() is True
    late = tagged.post_receive_tag(region[1024:1100], 0)
    send(sender, 0)
    assert late.wait(30).size == 0
    assert not receives[1].done()


def test_a_poll_of_arrays_counts_as_looking(queue_context, pair, region):
    tagged, sender = pair
    ops = copyrpc.QueueOpArray(2)
    for index in range(2):
        ops.set(index, opcode=copyrpc.QUEUE_RECEIVE, user_data=index, address=region.address + 128 * index, bytes=128)
    assert tagged.submit(ops, region=region) == 2
    sent = [sender.post_send(copyrpc.tag_header(tag)) for tag in range(2)]
    for one in sent:
        one.wait(30)
    while len(queue_context._backlog) < 2:  # the package has them, and the application has not
        queue_context.info()
        with queue_context._use:
            queue_context._poll()
    assert tagged.synchronize() is False
    done = copyrpc.CompletionArray(4)
    assert queue_context.poll(done) == 2 and all(one.flags & copyrpc.COMPLETION_SYNC for one in done)
    assert tagged.synchronize() is True


# ---- Room, ends, bad input ----


def test_a_full_list_makes_others_wait(pair, region):
    tagged, sender = pair
    works = [tagged.post_receive_tag(region[i * 64 : i * 64 + 64], i) for i in range(TAGS)]
    with pytest.raises(copyrpc.NoRoom):
        tagged.post_receive_tag(region[0:64], 99)
    thread = threading.Timer(0.05, works[3].remove)  # overtakes what waits for room
    thread.start()
    with pytest.raises(copyrpc.Timeout):
        tagged.receive_tag(region[1024:1100], 100, timeout=0.001)
    thread.join()
    assert tagged.synchronize()
    sending = threading.Timer(0.05, send, (sender, 100, b"x"))
    sending.start()
    assert tagged.receive_tag(region[1024:1100], 100, timeout=60).tag == 100
    sending.join()


def test_a_message_that_is_too_long_ends_its_connection(queue_context, pair, region, address):
    tagged, sender = pair
    short, other = tagged.post_receive_tag(region[0:10], 1), tagged.post_receive_tag(region[64:128], 2)
    receive = tagged.post_receive(region[128:256])
    assert tagged.synchronize()  # the device does it behind them; before them, the message would take the receive
    with pytest.raises(copyrpc.CopyrpcError):
        send(sender, 1, bytes(11))
    with pytest.raises(copyrpc.Flushed):
        short.wait(30)
    with pytest.raises(copyrpc.TruncatedError):
        receive.wait(30)
    assert tagged.error is None and tagged.info().tags_open == 1
    send(connect_to(queue_context, address, tagged), 2, b"goes on")
    assert other.wait(30).size == 7


def test_a_close_ends_what_is_open(pair, region):
    tagged, sender = pair
    works = [tagged.post_receive_tag(region[i * 64 : i * 64 + 64], i) for i in range(3)]
    with pytest.raises(copyrpc.InvalidArgument):
        tagged.close()  # queues use it
    matched = None
    send(sender, 0)
    matched = works[0].wait(30)
    matched.queue.close()
    assert works[0].wait().queue is None
    tagged.close()
    for work in works[1:]:
        with pytest.raises(copyrpc.Closed):
            work.wait()
        assert work.remove() is False
    with pytest.raises(copyrpc.Closed):
        tagged.post_receive_tag(region[0:64], 1)
    with pytest.raises(copyrpc.Closed):
        tagged.synchronize()


def test_bad_input(queue_context, pair, region):
    tagged, sender = pair
    for wrong in ({"tag": -1}, {"tag": 1 << 64}, {"tag": 1, "mask": -1}, {"tag": 1, "mask": 1 << 64}, {"tag": 5, "mask": 4}):
        with pytest.raises(ValueError):
            tagged.post_receive_tag(region[0:64], **wrong)
    for wrong in ({"tag": "x"}, {"tag": 1.5}, {"tag": 1, "mask": None}):
        with pytest.raises(TypeError):
            tagged.post_receive_tag(region[0:64], **wrong)
    for place in ([region[0:64], region[64:128]], None, 5, "text"):
        with pytest.raises(TypeError):
            tagged.post_receive_tag(place, 1)
    with pytest.raises(copyrpc.InvalidArgument):
        tagged.post_receive_tag(bytearray(64), 1)  # in no region
    weak = queue_context.register(bytearray(64))
    with pytest.raises(copyrpc.InvalidArgument):
        tagged.post_receive_tag(weak[:], 1)
    with copyrpc.Context(queues=True) as other:
        stranger = other.register(bytearray(64), "local_write")
        with pytest.raises(copyrpc.InvalidArgument):
            tagged.post_receive_tag(stranger[:], 1)
    for options in ({"receives": 0}, {"receives": 4, "tags": 1 << 20}, {"receives": 4, "sends": 4}, {"receives": 4, "private_data": b"x"}):
        with pytest.raises(copyrpc.CopyrpcError):
            queue_context.tagged_queue(copyrpc.QueueOptions(**options))
    with pytest.raises(ValueError):
        queue_context.tagged_queue(copyrpc.QueueOptions(receives=4, tags=-1))
    for kind in (queue_context.queue_open, queue_context.datagram_queue):
        with pytest.raises(copyrpc.InvalidArgument):
            kind(copyrpc.QueueOptions(receives=4, tags=4))
    with pytest.raises(copyrpc.InvalidArgument):
        queue_context.datagram_queue(copyrpc.QueueOptions(receive_queue=tagged))
    ops = copyrpc.QueueOpArray(1)
    ops.set(0, opcode=copyrpc.QUEUE_TAG_SYNC)
    for queue in (sender, queue_context.queue_open(copyrpc.QueueOptions(receives=4))):
        with pytest.raises(copyrpc.Unsupported):
            queue.submit(ops)
    assert tagged.info().tags_open == 0


# ---- Coroutines ----


def test_coroutines(address):
    async def main():
        async with copyrpc.Context(queues=True) as context:
            tagged, sender = tagged_pair(context, address)
            region = context.register(bytearray(1 << 16), "local_write")
            waiting = [asyncio.ensure_future(tagged.areceive_tag(region[i * 64 : i * 64 + 64], i)) for i in range(20)]  # more than there is room for
            await asyncio.sleep(0)
            for tag in range(20):
                await sender.asend(copyrpc.tag_header(tag) + b"%d" % tag)
            came = await asyncio.gather(*waiting)
            assert [one.tag for one in came] == list(range(20))
            work = tagged.post_receive_tag(region[0:64], 5)
            assert await work.aremove() is True and work.done()
            assert await work.aremove() is True
            canceled = asyncio.ensure_future(tagged.areceive_tag(region[0:64], 6))
            await asyncio.sleep(0)
            while tagged.info().tags_open == 0:
                await asyncio.sleep(0)
            canceled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await canceled
            while tagged.info().tags_open:
                await asyncio.sleep(0)
            receive = asyncio.ensure_future(tagged.areceive(region[0:64]))
            await asyncio.sleep(0)
            await sender.asend(copyrpc.tag_header(6))
            assert (await receive).unexpected and await tagged.asynchronize() is True

    asyncio.run(main())


# ---- Arrays ----


def test_arrays(pair, region):
    numpy = pytest.importorskip("numpy")
    tagged, sender = pair
    adds = copyrpc.queue_ops(TAGS)
    adds["opcode"], adds["bytes"], adds["operand"] = copyrpc.QUEUE_TAG_ADD, 64, ALL
    adds["user_data"] = 100 + numpy.arange(TAGS)
    adds["remote_address"] = numpy.arange(TAGS)
    adds["address"] = region.address + 64 * numpy.arange(TAGS)
    got = []
    thread = threading.Thread(target=lambda: got.append(tagged.submit_and_wait(adds, region=region, timeout=60)))
    thread.start()
    while tagged.info().tags_open < TAGS:
        pass
    removals = copyrpc.queue_ops(3)
    removals["opcode"] = [copyrpc.QUEUE_TAG_SYNC, copyrpc.QUEUE_TAG_REMOVE, copyrpc.QUEUE_TAG_REMOVE]
    removals["operand"] = [0, 100 + 2, 555]
    done = tagged.submit_and_wait(removals)
    assert list(done["status"]) == [0, 0, lib.CRPC_E_NOT_FOUND]
    for tag in range(TAGS):
        if tag != 2:
            send(sender, tag, b"%d" % tag)
    thread.join(60)
    assert not thread.is_alive()
    result = {int(one["user_data"]): one for one in got[0]}
    assert len(result) == TAGS and result[102]["status"] == lib.CRPC_E_CANCELED
    for tag in range(TAGS):
        if tag != 2:
            one = result[100 + tag]
            assert (one["status"], one["token"], one["payload_bytes"]) == (0, tag, 1) and one["flags"] & copyrpc.COMPLETION_MATCHED
            assert region.memory[64 * tag] == ord("0") + tag


def test_a_removal_in_the_same_array(pair, region):
    tagged, _ = pair
    ops = copyrpc.QueueOpArray(4)
    for index in (0, 2):
        ops.set(index, opcode=copyrpc.QUEUE_TAG_ADD, user_data=7, address=region.address, bytes=64, remote_address=1, operand=ALL)
        ops.set(index + 1, opcode=copyrpc.QUEUE_TAG_REMOVE, user_data=8, operand=7)
    done = tagged.submit_and_wait(ops, region=region, timeout=60)
    assert [(one.method, one.status) for one in done] == [(copyrpc.QUEUE_TAG_ADD, lib.CRPC_E_CANCELED), (copyrpc.QUEUE_TAG_REMOVE, 0)] * 2
    assert [one.user_data for one in done] == [7, 8] * 2
    ops.set(0, opcode=copyrpc.QUEUE_TAG_ADD, user_data=7, address=region.address, bytes=64, remote_address=3, operand=1)
    with pytest.raises(copyrpc.InvalidArgument):
        tagged.submit_and_wait(ops, region=region)
    assert tagged.info().tags_open == 0


def test_arrays_that_the_application_polls(queue_context, pair, region):
    tagged, sender = pair
    ops = copyrpc.QueueOpArray(3)
    ops.set(0, opcode=copyrpc.QUEUE_TAG_ADD, user_data=1, address=region.address, bytes=64, remote_address=1, operand=ALL)
    ops.set(1, opcode=copyrpc.QUEUE_TAG_ADD, user_data=2, address=region.address + 64, bytes=64, remote_address=2, operand=ALL)
    ops.set(2, opcode=copyrpc.QUEUE_TAG_REMOVE, user_data=3, operand=1)
    assert tagged.submit(ops, region=region) == 3
    send(sender, 2, b"x", 11)
    done, seen = copyrpc.CompletionArray(8), []
    while len(seen) < 3:
        queue_context.poll(done)
        seen += [(one.user_data, one.status, one.token) for one in done]
    assert sorted(seen) == [(1, lib.CRPC_E_CANCELED, 0), (2, 0, 2), (3, 0, 0)]


def test_receives_run_low(pair, region):
    tagged, sender = pair
    for index in range(3):
        tagged.post_receive(region[index * 64 : index * 64 + 64])

    def take_two():
        while tagged.info().srq_limit != 2:  # what is taken before does not count
            time.sleep(0.001)
        for _ in range(2):
            sender.send(b"takes one")

    thread = threading.Thread(target=take_two, daemon=True)
    thread.start()
    tagged.run_low(2, timeout=60)
    thread.join()
    with pytest.raises(copyrpc.InvalidArgument):
        tagged.run_low(17, timeout=60)
