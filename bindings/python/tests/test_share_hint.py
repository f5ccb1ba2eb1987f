"""Hints for channels: what a ShareHint writes, who may write it, and what becomes of it when its writer dies."""
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import channels_in

import copyrpc

BYTES = 128 << 10  # of a message, which is split


@pytest.fixture
def name():
    name = f"/copyrpc-python-hint-{os.getpid()}"
    yield name
    os.unlink("/dev/shm" + name)


def carried(pair, count=1):
    """What rail 0 carries of messages now, in 1/1024."""
    left, right = pair
    before = left.stats().rail_bytes_sent[0]
    room, message = bytearray(BYTES), bytes(BYTES)
    for _ in range(count):
        transfer = right.post_receive(room)
        left.send(message)
        transfer.wait()
    return (left.stats().rail_bytes_sent[0] - before) * 1024 // BYTES // count


@pytest.fixture
def hinted(context, address, name):
    with context.listen_channels(address) as listener:
        with copyrpc.ShareHint(name):
            pass  # it is there, and says nothing
        left, right = channels_in(context, listener, copyrpc.ChannelOptions(split="hint", hint=name))
        deadline = time.monotonic() + 60
        while left.rails != ("up", "up") and time.monotonic() < deadline:
            carried((left, right))
        yield left, right


def test_followed(hinted, name):
    assert 0 < carried(hinted) < 1024
    with copyrpc.ShareHint(name) as hint:
        for share in (100, 1024, 0, 512):
            hint.publish(share, lifetime=60)
            assert carried(hinted) == share
        hint.publish(1024, lifetime=0.001)
        time.sleep(0.002)
        assert carried(hinted) < 1024
        hint.publish(0, lifetime=60)
    assert carried(hinted) > 0  # withdrawn


def test_one_writer(name):
    with copyrpc.ShareHint(name) as hint:
        with pytest.raises(copyrpc.InvalidArgument, match="another program writes") as told:
            copyrpc.ShareHint(name)
        assert told.value.status == copyrpc.errors.lib.CRPC_E_BUSY
        assert not hint.closed
    assert hint.closed
    hint.close()
    with pytest.raises(copyrpc.Closed):
        hint.publish(1)
    copyrpc.ShareHint(name).close()


WRITER = "import copyrpc, sys, time; hint = copyrpc.ShareHint(sys.argv[1]); hint.publish(1024, 2); print('there', flush=True); time.sleep(600)"


def test_the_writer_dies(hinted, name):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, name], stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"there\n"
        began = time.monotonic()
        with pytest.raises(copyrpc.InvalidArgument):
            copyrpc.ShareHint(name)
        seen = carried(hinted)
        assert seen == 1024 or time.monotonic() - began > 1, seen
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    time.sleep(2.1)
    assert carried(hinted) < 1024  # its time is over
    with copyrpc.ShareHint(name) as hint:
        hint.publish(7, 60)
        assert carried(hinted) == 7


@pytest.mark.parametrize("wrong", ["", "x", "/", "/x/y", "/" + "x" * 63])
def test_names_that_are_none(wrong):
    with pytest.raises(ValueError, match="name"):
        copyrpc.ShareHint(wrong)


def test_what_cannot_be_published(name):
    with pytest.raises(TypeError):
        copyrpc.ShareHint(b"/x")
    with copyrpc.ShareHint(name) as hint:
        for share in (-1, 1025):
            with pytest.raises(ValueError, match="rail0_share"):
                hint.publish(share)
        for lifetime in (0, -1, 60.1, float("nan"), float("inf")):
            with pytest.raises(ValueError):
                hint.publish(1, lifetime)
        for share, lifetime in ((1.5, 1), (None, 1), (1, None), (1, "1")):
            with pytest.raises(TypeError):
                hint.publish(share, lifetime)


AGENT = os.path.join(os.environ["TEST_SOURCE"], "examples/python/hint_agent.py")


def test_the_agent_makes_room(hinted, context, address, name):
    """Other traffic over rail 0 moves the hint to rail 1, and back when it ends."""
    port = address.rpartition(":")[0] + ":0"
    with context.listen_channels(port) as listener:
        other = channels_in(context, listener, copyrpc.ChannelOptions(split="fixed", rail0_share=1024))
        agent = subprocess.Popen([sys.executable, AGENT, name, os.environ.get("TEST_DEVICE", "mlx5_0"),
                                  os.environ.get("TEST_DEVICE1", "mlx5_1"), "--interval", "0.05"], stdout=subprocess.PIPE, text=True)
        try:
            def until(good, others):
                """Sends until the hint that is followed is good; `others`: messages over rail 0 for each of the hinted channel."""
                seen, deadline = [], time.monotonic() + 60
                while not (len(seen) > 4 and good(seen[-1])):
                    assert time.monotonic() < deadline, (seen[-20:], agent.poll())
                    for _ in range(others):
                        carried(other)
                    seen.append(carried(hinted, 4))

            until(lambda share: 400 < share < 624, 0)
            until(lambda share: share < 200, 8)  # 8 over rail 0 for 4: all of these are due on rail 1
            until(lambda share: 400 < share < 624, 0)
        finally:
            agent.kill()
            told = agent.stdout.read()
            agent.stdout.close()
            agent.wait()
        assert f"/1024 over {os.environ.get('TEST_DEVICE', 'mlx5_0')}: they send" in told
