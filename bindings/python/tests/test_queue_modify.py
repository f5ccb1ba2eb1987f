"""Queues that change while they are in use, and shared receives that run low."""
import asyncio
import threading
import time

import pytest
from conftest import queues_in

import copyrpc

OPTIONS = copyrpc.QueueOptions(sends=16, receives=16)


def wait_for(context, done):
    """Polls until done()."""
    with context._use:
        context._wait_in_time(done, 30 * 10**9, "wait_for")


def test_a_peer_loses_a_right_and_gets_it_back(queue_context, queue_pair, region):
    left, right = queue_pair
    assert set(right.info().access) >= {"remote_write", "remote_read"}
    right.modify(access=["remote_read"])
    assert right.info().access == ("remote_read",)
    left.read(region[0:8], region[8:16].remote)
    right.modify(access=("remote_read", "remote_write"))
    left.write(b"12345678", region[8:16].remote)
    right.modify(access=[])
    with pytest.raises(copyrpc.AccessRefused):
        left.write(b"87654321", region[8:16].remote)
    assert region.memory[8:16] == b"12345678"
    wait_for(queue_context, lambda: right.error is not None)
    with pytest.raises(copyrpc.Disconnected):
        right.modify(access=[])


def test_how_long_a_peer_waits(queue_pair):
    left, _ = queue_pair
    assert left.info().not_ready_wait == pytest.approx(0.00064)
    left.modify(not_ready_wait=0.1)
    assert left.info().not_ready_wait == pytest.approx(0.12288)
    left.modify(not_ready_wait=0)
    assert left.info().not_ready_wait == pytest.approx(0.00064)


def test_what_the_device_refuses_stays(queue_pair, region):
    left, right = queue_pair
    before = left.info()
    for change in ({"retry_timeout": 16}, {"retry_count": 3}, {"not_ready_retry_count": 3, "access": []}):
        with pytest.raises(copyrpc.Unsupported, match="retry_"):
            left.modify(**change)
    assert left.info() == before
    right.write(b"12345678", region[0:8].remote)


def test_a_queue_of_a_blob_takes_all(queue_context, region):
    left, blob = queue_context.queue_blob(OPTIONS)
    right, other = queue_context.queue_blob(OPTIONS)
    right.modify(access=[], retry_timeout=15, retry_count=2, not_ready_retry_count=3, not_ready_wait=0.02)
    info = right.info()
    assert (info.access, info.retry_timeout, info.retry_count, info.not_ready_retry_count) == ((), 15, 2, 3)
    right._join(blob)
    left.join(other)
    wait_for(queue_context, lambda: right.connected)
    with pytest.raises(copyrpc.AccessRefused):
        left.read(region[0:8], region[8:16].remote)


def test_another_key(queue_context):
    with queue_context.datagram_queue(OPTIONS) as queue:
        assert queue.info().queue_key == 0x11111111
        queue.modify(queue_key=5)
        assert queue.info().queue_key == 5
        with pytest.raises(ValueError):
            queue.modify(queue_key=-1)
        with pytest.raises(copyrpc.InvalidArgument, match="0x7fffffff"):
            queue.modify(queue_key=0x80000000)


def test_wrong_arguments(queue_pair, queue_context):
    left, _ = queue_pair
    with pytest.raises(copyrpc.InvalidArgument, match="changes is 0"):
        left.modify()
    for change in ({"access": "remote_read"}, {"access": [1]}, {"retry_count": "1"}, {"not_ready_wait": "1"}):
        with pytest.raises(TypeError):
            left.modify(**change)
    for change in ({"access": ["all"]}, {"retry_count": -1}, {"not_ready_wait": -1}):
        with pytest.raises(ValueError):
            left.modify(**change)
    for change in ({"access": ["local_write"]}, {"retry_count": 8}, {"not_ready_wait": 0.6}):
        with pytest.raises(copyrpc.InvalidArgument):
            left.modify(**change)
    shared = queue_context.queue_open(copyrpc.QueueOptions(receives=4))
    for limit in (0, -1):
        with pytest.raises(ValueError):
            shared.run_low(limit)
    with pytest.raises(copyrpc.InvalidArgument, match="4 receives"):
        shared.run_low(5)


# ---- Shared receives ----


@pytest.fixture
def shared(queue_context, address, region):
    """Shared receives of which 8 are there, and a queue that sends to them."""
    shared = queue_context.queue_open(copyrpc.QueueOptions(receives=8))
    with queue_context.listen_queues(address, copyrpc.QueueOptions(receive_queue=shared)) as listener:
        left, _ = queues_in(queue_context, listener, OPTIONS)
        for index in range(8):
            shared.post_receive(region[index * 8 : index * 8 + 8])
        yield shared, left


def test_a_thread_waits_until_receives_run_low(shared):
    receives, left = shared
    for left_over, sends in ((6, 2), (4, 1)):  # the limit is set again
        low = threading.Thread(target=receives.run_low, args=(left_over,))
        low.start()
        while receives.info().srq_limit != left_over:
            time.sleep(0.001)
        for _ in range(sends):
            left.send(b"x")
        time.sleep(0.05)
        assert low.is_alive()  # exactly so many are there
        left.send(b"x")
        low.join(30)
        assert not low.is_alive()


def test_nobody_waits_for_ever(shared):
    receives, left = shared
    with pytest.raises(copyrpc.Timeout):
        receives.run_low(1, timeout=0.01)
    left.close()


def test_a_coroutine_waits_until_receives_run_low(shared):
    receives, left = shared

    async def main():
        low = asyncio.ensure_future(receives.arun_low(8))
        while receives.info().srq_limit != 8:
            await asyncio.sleep(0)
        await left.asend(b"x")
        await asyncio.wait_for(low, 30)

    asyncio.run(main())
