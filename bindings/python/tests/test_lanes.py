"""Lanes: grants, and ops on memory that the peer has granted, one at a time, in the forms for threads."""
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
from conftest import LANE, data, endpoints_in

import copyrpc
from copyrpc._native import ffi

U64 = struct.Struct("<Q")
HALF = 1 << 19


def give(left, right, place, access="rwa", part=slice(HALF, 1 << 20)):
    """Memory that the right side lets the left use: its grant on both sides."""
    given = right.grant(place[part], access)
    return given, left.open_grant(bytes(given))


@pytest.fixture
def given(lane_pair, place):
    return give(*lane_pair, place)


def checksum(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def forged(data, **fields):
    """The bytes of a grant (docs/wire.md) with other fields, and the right checksum."""
    form = struct.Struct("<IHHIIQQIII")
    names = ("magic", "version", "access", "giver", "taker", "serial", "address", "bytes", "key", "life")
    values = dict(zip(names, form.unpack(data[:44])), **fields)
    made = form.pack(*values.values())
    return made + checksum(made).to_bytes(4, "little")


# ---- Beginning ----


@pytest.mark.parametrize("who", ["none", "left", "right"])
def test_without_a_lane(lane_context, address, place, who):
    plain = copyrpc.EndpointOptions()
    left, right = endpoints_in(lane_context, address, LANE if who == "left" else plain, LANE if who == "right" else plain)
    assert not left.info().lane and not right.info().lane
    for attempt in (lambda: left.grant(place[:], "r"), lambda: left.post_grant(place[:], "r"), lambda: left.open_grant(bytes(48)),
                    lambda: left.call(b"x", after=True)):
        with pytest.raises(copyrpc.Unsupported):
            attempt()


def test_there_is_a_lane(lane_pair):
    left, right = lane_pair
    assert left.info().lane and right.info().lane


def test_the_types_are_the_headers():
    letters = {name for name, _ in ffi.typeof("crpc_grant_info").fields} - {"struct_size"}
    assert letters == {"access", "endpoint", "bytes", "of_peer", "over"}
    assert copyrpc.GRANT_BYTES == 48 and copyrpc.OP_AFTER == 2 and copyrpc.LANE_REVOKE == 6


def test_other_connections_do_not_wait_for_a_lane(lane_context, address):
    """post_... raise NoRoom until it is there; others wait."""
    place = lane_context.register(bytearray(100), "local_write")
    left, right = endpoints_in(lane_context, address)
    refused = 0
    while True:
        try:
            work = left.post_grant(place[:], "r")
            break
        except copyrpc.NoRoom as error:
            assert "no lane yet" in error.message
            refused += 1
            lane_context.poll(copyrpc.CompletionArray(8))
    assert work.wait().of_peer is False and refused < 1000000


# ---- Ops ----


def test_each_op(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    place.memory[:1000] = data(1000)
    assert left.write(place[:1000], there) is None
    assert place.memory[HALF : HALF + 1000] == data(1000)
    left.write(place.memory[0:5], there.at(100))  # a buffer that lies in the region
    assert left.read(place[4096:5096], there) == 1000
    assert place.memory[4096:5096] == data(1000)[:100] + data(1000)[:5] + data(1000)[105:]
    assert left.read(place[0:0], there.at(HALF)) == 0
    place.memory[HALF : HALF + 8] = U64.pack(40)
    assert left.fetch_add(there, 2) == 40 and left.compare_swap(there, 41, 7) == 42 and left.compare_swap(there, 42, (1 << 64) - 1) == 42
    assert left.fetch_add(there, 1) == (1 << 64) - 1 and U64.unpack(place.memory[HALF : HALF + 8]) == (0,)
    works = [left.post_write(place[8:16], there.at(8)), left.post_read(place[16:24], there.at(8)), left.post_fetch_add(there, 5, fence=True),
             left.post_compare_swap(there, 5, 6, fence=True), right.post_grant(place[0:8], "r")]
    assert "under way" in repr(works[0]) or works[0].done()
    results = [work.wait() for work in works]
    assert results[:4] == [None, 8, 0, 5] and len(results[4]) == 8 and works[4].wait() is results[4] and "grant done" in repr(works[4])
    assert right.post_revoke(results[4]).wait() is None and works[0].test()


def test_lists_and_memory_without_a_region(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    place.memory[:1000] = data(1000)
    left.write([place[0:3], place[10:20], place[5:5]], there)
    left.write(b"copied", there.at(13))
    left.write([b"ab", place[100:103], b""], there.at(19))
    assert place.memory[HALF : HALF + 24] == data(1000)[0:3] + data(1000)[10:20] + b"copied" + b"ab" + data(1000)[100:103]
    assert left.read([place[4096:4100], place[8192:8212]], there) == 24
    assert place.memory[4096:4100].tobytes() + place.memory[8192:8212].tobytes() == place.memory[HALF : HALF + 24]
    works = [left.post_write(bytes([index]), there.at(index)) for index in range(60)]
    assert [work.wait() for work in works] == [None] * 60 and bytes(place.memory[HALF : HALF + 60]) == bytes(range(60))


def test_more_may_be_open(lane_context, address, place):
    options = copyrpc.EndpointOptions(lane=True, lane_depth=1000)
    left, right = endpoints_in(lane_context, address, options, options)
    own, there = give(left, right, place)
    works = []
    with pytest.raises(copyrpc.NoRoom):
        while True:
            works.append(left.post_fetch_add(there, 1))
    assert 1000 <= len(works) <= 2048
    assert sorted(work.wait() for work in works) == list(range(len(works)))


def test_what_a_grant_says(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    assert (len(own), own.access, own.of_peer, own.over, own.endpoint) == (HALF, "rwa", False, False, right)
    assert (len(there), there.access, there.of_peer, there.over, there.endpoint) == (HALF, "rwa", True, False, left)
    assert len(bytes(own)) == copyrpc.GRANT_BYTES and bytes(own) == bytes(own) and "of the peer" in repr(there) and "'rwa'" in repr(own)
    with pytest.raises(copyrpc.InvalidArgument):  # only who gives it can pass it on
        bytes(there)
    assert there.at(3) == copyrpc.GrantPlace(there, 3) and right.grant_of(own.bits).access == "rwa"
    with pytest.raises(ValueError):
        left.grant_of(own.bits)
    there.close()
    there.close()
    assert there.over and not own.over
    with pytest.raises(copyrpc.Closed):
        left.write(place[0:8], there)
    again = left.open_grant(bytes(own))
    left.write(place[0:8], again)


def test_the_rights_are_those_that_were_given(lane_pair, place):
    left, right = lane_pair
    attempts = {"w": lambda grant: left.write(place[0:8], grant), "r": lambda grant: left.read(place[0:8], grant),
                "a": lambda grant: left.fetch_add(grant, 1)}
    for access in ("r", "w", "a", "ar"):
        own, there = give(left, right, place, access, slice(HALF, HALF + 64))
        assert sorted(there.access) == sorted(access)
        for letter, attempt in attempts.items():
            if letter in access:
                attempt(there)
            else:
                with pytest.raises(copyrpc.InvalidArgument):
                    attempt(there)
        for wrong in (there.at(60), there.at(64)):
            with pytest.raises(copyrpc.InvalidArgument):
                attempts[access[0]](wrong)
        right.revoke(own)


def test_more_than_there_is_room_for(lane_pair, given, place):
    """Blocking forms wait for room."""
    left, right = lane_pair
    own, there = given
    works = []
    with pytest.raises(copyrpc.NoRoom, match="no room in the lane"):
        while len(works) < 1000:
            works.append(left.post_fetch_add(there, 1))
    assert len(works) == 62  # send_depth of the context
    errors = []

    def add(count):
        try:
            for _ in range(count):
                left.fetch_add(there, 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(50,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and sorted(work.wait() for work in works) == list(range(len(works)))
    assert left.fetch_add(there, 0) == len(works) + 200


# ---- Calls behind ops ----


def test_after(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    seen = []
    place.memory[:HALF] = bytes([7]) * HALF
    for how in ("start", "reply"):
        place.memory[HALF:] = bytes(HALF)
        if how == "start":
            left.post_write(place[:HALF], there)
            call = left.start(b"done", after=True)
            request = right.receive(60)
            seen.append(place.memory[HALF:] == place.memory[:HALF])
            request.reply()
            assert call.result() == b""
        else:
            call = right.start(b"fill it")
            request = left.receive(60)
            left.post_write(place[:HALF], there)
            request.reply(b"done", after=True)
            assert call.result() == b"done"
            seen.append(place.memory[HALF:] == place.memory[:HALF])
    assert seen == [True, True]
    thread = threading.Thread(target=lambda: right.serve(lambda request: request.payload))
    thread.start()
    assert left.call(b"1", after=True) == b"1" and left.call_many([b"2", b"3"], after=True) == [b"2", b"3"]
    with left.call_view(b"4", after=True) as reply:
        assert bytes(reply.payload) == b"4"
    right.stop()
    thread.join(60)


def test_after_an_op_that_fails(lane_pair, given, place):
    """The peer must not hear that it was done."""
    left, right = lane_pair
    own, _ = given
    bad = left.open_grant(forged(bytes(own), key=0x123456))
    work = left.post_write(place[0:8], bad)
    call = left.start(b"done", after=True)
    with pytest.raises((copyrpc.AccessRefused, copyrpc.Disconnected)):
        work.wait(60)
    with pytest.raises(copyrpc.Disconnected):
        call.result(60)
    with pytest.raises(copyrpc.Disconnected):
        left.write(place[0:8], bad)
    assert "lane has failed" in left.error.message


# ---- Grants that are no good ----


def test_bytes_that_are_no_grant(lane_pair, given, place, lane_context, address):
    left, right = lane_pair
    good = bytes(given[0])
    for wrong in (b"", good[:-1], good + b"x", bytes(48), good[:20] + bytes([good[20] ^ 1]) + good[21:]):
        with pytest.raises(copyrpc.ProtocolError):
            left.open_grant(wrong)
    for wrong in ("text", None, 7):
        with pytest.raises(TypeError):
            left.open_grant(wrong)
    with pytest.raises(copyrpc.Closed):  # given to the other side
        right.open_grant(good)
    other, _ = endpoints_in(lane_context, address)
    with pytest.raises(copyrpc.Closed):  # of another connection
        other.open_grant(good)
    for fields in ({"access": 0}, {"access": 16}, {"bytes": 0}, {"bytes": (1 << 31) + 1}, {"version": 2}, {"address": (1 << 64) - 1}):
        with pytest.raises(copyrpc.ProtocolError):
            left.open_grant(forged(good, **fields))
    left.write(place[0:8], left.open_grant(forged(good)))


def test_a_forged_grant_and_the_next_lane(lane_pair, given, place, lane_context):
    left, right = lane_pair
    own, there = given
    wrong = left.open_grant(forged(bytes(own), key=0x123456))
    first, second = left.post_read(place[0:8], wrong), left.post_read(place[0:8], there)
    with pytest.raises(copyrpc.AccessRefused) as caught:
        first.wait(60)
    assert isinstance(caught.value, PermissionError) and caught.value.errno and caught.value.vendor_syndrome is not None
    with pytest.raises(copyrpc.Flushed, match="the lane failed"):
        second.wait(60)
    # Calls go on, and the lane is made again.
    call = left.start(b"still there")
    right.receive(60).reply(b"yes")
    assert call.result(60) == b"yes" and left.connected
    fresh, grant = give(left, right, place)
    place.memory[HALF : HALF + 4] = b"anew"
    assert left.read(place[0:4], grant) == 4 and place.memory[0:4] == b"anew"
    assert own.over and there.over and wrong.over and not fresh.over and not grant.over
    for old in (there, wrong):
        with pytest.raises(copyrpc.Closed):
            left.read(place[0:8], old)
    with pytest.raises(copyrpc.Closed):
        right.revoke(own)
    with pytest.raises(copyrpc.Closed):  # of the lane before
        left.open_grant(forged(bytes(fresh), life=1))
    own.close()
    there.close()


# ---- Revoking ----


def test_revoke(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    good = bytes(own)
    works = [left.post_write(place[0:4096], there) for _ in range(10)]
    with pytest.raises(copyrpc.InvalidArgument) as caught:
        place.close()
    assert caught.value.status_name == "CRPC_E_BUSY"
    right.revoke(own, timeout=60)
    assert [work.wait() for work in works] == [None] * 10 and own.over and there.over
    with pytest.raises(copyrpc.Closed):
        left.write(place[0:8], there)
    with pytest.raises(copyrpc.Closed):
        left.open_grant(good)  # replayed
    with pytest.raises(copyrpc.Closed):
        bytes(own)
    with pytest.raises(copyrpc.Closed):
        right.revoke(own)
    place.close()


def test_a_with_block_revokes(lane_pair, place):
    left, right = lane_pair
    with right.grant(place[0:64], "rw") as own:
        there = left.open_grant(bytes(own))
        left.write(place[100:164], there)
    assert own.over and there.over
    with right.grant(place[0:64], "rw") as own, left.open_grant(bytes(own)) as there:
        pass
    assert own.over and there.over
    own.close()
    place.close()


def test_a_peer_that_does_not_answer(address):
    """It is another program, which is stopped: after the time limit, the right ends without it."""
    code = """
import copyrpc, sys
region = None
with copyrpc.Context() as context:
    endpoint = context.connect(sys.argv[1], copyrpc.EndpointOptions(lane=True, connect_timeout=60, keepalive=None))
    region = context.register(bytearray(4096), "local_write")
    grant = endpoint.open_grant(endpoint.call(b"give me something"))
    endpoint.read(region[0:4], grant)
    print(bytes(region.memory[0:4]).decode(), flush=True)
    sys.stdin.readline()
    try:
        endpoint.read(region[0:4], grant)
    except copyrpc.CopyrpcError as error:
        print(type(error).__name__, flush=True)
    endpoint.close()
"""
    with copyrpc.Context() as context:
        place = context.register(bytearray(b"here" * 1024), "local_write")
        with context.listen(address, copyrpc.EndpointOptions(lane=True, keepalive=None)) as listener:
            process = subprocess.Popen([sys.executable, "-c", code, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            request = listener.receive(60)
            endpoint = request.endpoint
            own = endpoint.grant(place[:], "r")
            request.reply(bytes(own))
            del request
            assert process.stdout.readline() == "here\n"
            os.kill(process.pid, signal.SIGSTOP)
            begin = time.monotonic()
            endpoint.revoke(own, timeout=0.2)
            assert time.monotonic() - begin >= 0.2
            place.close()  # nobody reaches it any more
            os.kill(process.pid, signal.SIGCONT)
            print(file=process.stdin, flush=True)
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                context.poll(copyrpc.CompletionArray(8))
        assert process.stdout.read() in ("Closed\n", "AccessRefused\n") and process.wait(60) == 0
        process.stdout.close()
        process.stdin.close()


# ---- Ends ----


@pytest.mark.parametrize("who", ["left", "right", "context"])
def test_close_with_ops_open(lane_pair, given, place, lane_context, who):
    left, right = lane_pair
    own, there = given
    works = [left.post_write(place[0:4096], there) for _ in range(20)] + [left.post_read(place[0:4096], there) for _ in range(20)]
    {"left": left, "right": right, "context": lane_context}[who].close()
    for work in works:
        try:
            assert work.wait(60) in (None, 4096)
        except (copyrpc.Closed, copyrpc.Disconnected):
            pass
    assert not lane_context._pending
    for attempt in (lambda: left.write(place[0:8], there), lambda: left.post_read(place[0:8], there), lambda: left.grant(place[:], "r")):
        with pytest.raises((copyrpc.Closed, copyrpc.Disconnected)):
            attempt()
    own.close()
    there.close()
    assert own.over and there.over


def test_disconnect_waits_for_ops(lane_pair, given, place):
    left, right = lane_pair
    own, there = given
    place.memory[:HALF] = b"x" * HALF
    works = [left.post_write(place[0:HALF], there) for _ in range(8)]
    left.disconnect(60)
    assert [work.wait() for work in works] == [None] * 8 and place.memory[HALF:] == b"x" * HALF
    for endpoint in lane_pair:
        endpoint.close()
    place.close()


def test_a_region_in_use_stays(lane_pair, given, lane_context):
    left, _ = lane_pair
    mine = lane_context.register(bytearray(100), "local_write")
    work = left.post_write(mine[0:50], given[1])
    if not work.done():
        with pytest.raises(copyrpc.InvalidArgument, match="uses this memory"):
            mine.close()
    work.wait()
    mine.close()


def test_timeouts_and_interrupts(lane_pair, given, place, lane_context, monkeypatch):
    """Of what waits for room, nothing remains."""
    left, right = lane_pair
    own, there = given
    left._lane.full = True  # as after CRPC_E_AGAIN
    monkeypatch.setattr(left, "_try_open", lambda pinned: None)
    for attempt in (lambda: left.grant(place[0:8], "r", timeout=0.05), lambda: left.open_grant(bytes(own), timeout=0.05),
                    lambda: left.write(place[0:8], there, timeout=0.05)):
        with pytest.raises(copyrpc.Timeout):
            attempt()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    for attempt in (lambda: left.grant(place[0:8], "r"), lambda: left.open_grant(bytes(own)), lambda: left.write(place[0:8], there)):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            attempt()
    signal.signal(signal.SIGALRM, before)
    assert not left._lane.waiting and not lane_context._pending
    with lane_context._use:
        left._room()
    left.write(place[0:8], there)


def test_a_grant_that_nobody_has_heard_of_is_revoked(lane_pair, given, lane_context):
    left, right = lane_pair
    mine = lane_context.register(bytearray(100))
    work = right.post_grant(mine[:], "r")
    with lane_context._use:
        right._give_up(work)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lane_context.poll(copyrpc.CompletionArray(8))
        try:
            mine.close()
            break
        except copyrpc.InvalidArgument:
            pass
    assert not lane_context._pending and mine._closed


# ---- Bad arguments ----


def test_arguments_that_cannot_be(lane_pair, given, place, lane_context, address):
    left, right = lane_pair
    own, there = given
    outside = bytearray(100)
    readonly = lane_context.register(bytearray(100))
    with pytest.raises(copyrpc.TooBig, match="lie in no region"):
        left.write(bytes(1000), there)
    for attempt in (lambda: left.read(outside, there), lambda: left.grant(outside, "r"),
                    lambda: left.read(readonly[:], there), lambda: left.read(readonly.memory, there), lambda: left.grant(readonly[:], "w"),
                    lambda: left.grant(readonly[:], "a"), lambda: left.grant(place[0:0], "r"), lambda: left.fetch_add(there.at(4), 1),
                    lambda: left.write(place[0:8], there.at(HALF - 7)), lambda: right.write(place[0:8], own), lambda: left.revoke(there)):
        with pytest.raises(copyrpc.InvalidArgument):
            attempt()
    for attempt in (lambda: left.write("text", there), lambda: left.write(None, there),
                    lambda: left.write(place[0:8], None), lambda: left.write(place[0:8], (1, 2)), lambda: left.write(place[0:8], 5),
                    lambda: left.grant(place[0:8], 7), lambda: left.revoke(bytes(own)), lambda: left.fetch_add(there, "1"),
                    lambda: left.grant([place[0:8]], "r"), lambda: left.grant(place[0:8]), lambda: left.revoke(own.at(0))):
        with pytest.raises(TypeError):
            attempt()
    for attempt in (lambda: left.grant(place[0:8], ""), lambda: left.grant(place[0:8], "rx"), lambda: there.at(HALF + 1),
                    lambda: there.at(-1), lambda: left.fetch_add(there, 1 << 64), lambda: left.fetch_add(there, -1),
                    lambda: right.write(place[0:8], there), lambda: left.revoke(own), lambda: left.grant_of(1 << 64),
                    lambda: left.write([], there), lambda: left.write([place[0:1]] * 9, there)):
        with pytest.raises(ValueError):
            attempt()
    with pytest.raises(copyrpc.Closed):
        left.grant_of(12345)
    with copyrpc.Context() as other, pytest.raises(copyrpc.InvalidArgument, match="another context"):
        left.write(other.register(bytearray(10))[:], there)
    left.write(place[0:8], there)


def test_nobody_waits_for_the_peer_to_let_go_of_what_it_never_got(address):
    """A grant whose grant() was given up is revoked, and its region can be closed, though the peer's program does nothing."""
    with copyrpc.Context() as ours, copyrpc.Context() as theirs, theirs.listen(address, LANE, auto_accept=False) as listener:

        def accept():
            right = listener.next_connection(60).accept(LANE, timeout=60)
            right.grant(theirs.register(bytearray(64))[:], "r")  # when there is a lane

        thread = threading.Thread(target=accept)
        thread.start()
        left = ours.connect(listener.address, LANE)
        left.grant(ours.register(bytearray(64))[:], "r")
        thread.join()  # nobody polls for that side any more
        place, pump = ours.register(bytearray(64)), left._pump
        with pump._use:
            left._post(left._granting(place[:], "r"))._abandon()
        end = time.monotonic() + 60
        while True:
            with pump._use:
                pump._look()
            try:
                place.close()
                break
            except copyrpc.InvalidArgument:  # busy
                assert time.monotonic() < end
                time.sleep(0.001)
