"""Channels: how they begin and end, and what becomes of what is under way."""
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import channels_in

import copyrpc

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
    # 4 s before a retry: what one end sends before the other has joined is not lost, however late that is. A retry may be needed.
    left, one = context.channel_blob(copyrpc.ChannelOptions(slots=4, retry_timeout=20, connect_timeout=60))
    right, other = context.channel_blob(copyrpc.ChannelOptions(retry_timeout=20, connect_timeout=60))
    with pytest.raises(copyrpc.ProtocolError):
        left.join(one[:-1])
    left._join(other)
    right.join(one, timeout=60)
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
        left, right = channels_in(context, listener)
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
