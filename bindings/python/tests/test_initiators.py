"""Endpoints that connect by DC: many share few initiators; blocking, for coroutines, and contexts that do not match."""
import asyncio
import dataclasses
import os
import struct
import subprocess
import sys
import threading

import pytest
from conftest import Server

import copyrpc

ENDPOINTS = 16
SIZES = (0, 1, 500, 9000, 100_000)  # the first ring has 8 KiB


def has_initiators():
    try:
        copyrpc.Context(initiators=1).close()
    except copyrpc.Unsupported:
        return False
    return True


needs_initiators = pytest.mark.skipif(not has_initiators(), reason="the driver has no dynamic queue pairs")


@pytest.fixture
def shared(address):
    """A server whose endpoints share an initiator."""
    server = Server(address, initiators=1)
    yield server
    server.close()


def test_a_driver_without_says_so():
    with pytest.raises(copyrpc.Unsupported, match="verbs has no dynamic queue pairs; mlx5 has"):
        copyrpc.Context(driver="verbs", initiators=1)
    with copyrpc.Context(driver="verbs") as context:
        assert context.info().initiators == 0


def test_bad_numbers():
    for number, family in ((-1, ValueError), (1 << 32, ValueError), ("1", TypeError), (1.0, TypeError), (None, TypeError)):
        with pytest.raises(family):
            copyrpc.Context(initiators=number)
    with pytest.raises(copyrpc.InvalidArgument, match="at most 1024"):
        copyrpc.Context(initiators=1025)


@needs_initiators
def test_the_number_is_shown():
    for number in (0, 1, 5):
        with copyrpc.Context(initiators=number) as context:
            assert context.info().initiators == number


@needs_initiators
@pytest.mark.parametrize("initiators", [1, 3])
def test_blocking_calls(shared, initiators):
    with copyrpc.Context(initiators=initiators) as context:
        endpoints = [context.connect(shared.address) for _ in range(ENDPOINTS)]
        payloads = [os.urandom(size) for size in SIZES]
        for endpoint in endpoints:
            assert endpoint.call_many(payloads, reply_bytes_max=max(SIZES)) == payloads
        for payload in payloads:  # each time another endpoint needs the initiator
            assert all(endpoint.call(payload, reply_bytes_max=len(payload)) == payload for endpoint in endpoints)
        for endpoint in endpoints:
            endpoint.close()
        assert context.info().endpoints == 0


@needs_initiators
def test_threads_with_a_context_each(shared):
    failed = []

    def run(number):
        try:
            with copyrpc.Context(initiators=1) as context, context.connect(shared.address) as one, context.connect(shared.address) as another:
                for index in range(200):
                    payload = b"%d %d" % (number, index)
                    assert one.call(payload) == another.call(payload) == payload
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@needs_initiators
def test_coroutines(address):
    """Both sides in one loop, which sleeps while all wait: nothing wakes it but what is there."""

    async def handler(request):
        await asyncio.sleep(0)
        return request.payload

    async def main():
        async with copyrpc.Context(initiators=1) as serving, serving.listen(address) as listener:
            served = asyncio.ensure_future(listener.aserve(handler))
            async with copyrpc.Context(initiators=1) as context:
                endpoints = await asyncio.gather(*(context.aconnect(address) for _ in range(ENDPOINTS)))
                payloads = [os.urandom(size) for size in SIZES]
                for _ in range(5):
                    calls = [endpoint.acall(payload, reply_bytes_max=len(payload)) for payload in payloads for endpoint in endpoints]
                    assert await asyncio.wait_for(asyncio.gather(*calls), 60) == [payload for payload in payloads for _ in endpoints]
                abandoned = [asyncio.ensure_future(endpoint.acall(b"x")) for endpoint in endpoints]
                await asyncio.sleep(0)
                for call in abandoned:
                    call.cancel()
                assert all(isinstance(end, (bytes, asyncio.CancelledError)) for end in await asyncio.gather(*abandoned, return_exceptions=True))
                assert await endpoints[-1].acall(b"goes on") == b"goes on"
                await asyncio.wait_for(asyncio.gather(*(endpoint.__aexit__(None, None, None) for endpoint in endpoints)), 60)
            listener.stop()
            await asyncio.wait_for(served, 60)

    asyncio.run(main())


WORDS = ("this one has none", "this context has initiators")
differ = pytest.mark.parametrize("here, there", [(0, 1), (2, 0)])


@needs_initiators
@differ
def test_contexts_that_do_not_match(address, here, there):
    async def main():
        async with (
            copyrpc.Context(initiators=there, log_level="info") as other,
            other.listen(address) as listener,
            copyrpc.Context(initiators=here) as context,
        ):
            served = asyncio.ensure_future(listener.aserve(lambda request: request.payload))
            with pytest.raises(copyrpc.ProtocolError, match=WORDS[here > 0]) as caught:
                await context.aconnect(address)
            assert caught.value.status_name == "CRPC_E_VERSION" and "on both sides or on neither" in str(caught.value)
            assert listener.counts() == (1, 1)  # asked, refused
            assert any(WORDS[there > 0] in entry.message for entry in other.log())
            listener.stop()
            await asyncio.wait_for(served, 60)

    asyncio.run(main())


@needs_initiators
@differ
def test_blobs_that_do_not_match(here, there):
    with copyrpc.Context(initiators=here) as context, copyrpc.Context(initiators=there) as other:
        (ours, blob), (theirs, other_blob) = context.blob(), other.blob()
        for endpoint, wrong, number in ((ours, other_blob, here), (theirs, blob, there)):
            with pytest.raises(copyrpc.ProtocolError, match=WORDS[number > 0]):
                endpoint.join(wrong)
            endpoint.close()


@needs_initiators
def test_options_that_need_a_queue_pair_of_ones_own(shared):
    with copyrpc.Context(initiators=1) as context:
        for options, family, word in (
            (copyrpc.EndpointOptions(lane=True), copyrpc.Unsupported, "lanes"),
            (copyrpc.EndpointOptions(retry_timeout=14), copyrpc.InvalidArgument, "retry_timeout"),
            (copyrpc.EndpointOptions(retry_count=6), copyrpc.InvalidArgument, "retry_count"),
        ):
            for attempt in (lambda options=options: context.connect(shared.address, options), lambda options=options: context.blob(options)):
                with pytest.raises(family, match=word):
                    attempt()
        assert context.info().endpoints == 0
        with context.connect(shared.address) as endpoint:
            assert endpoint.call(b"as before") == b"as before"


@needs_initiators
@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_what_a_peer_sends_before_this_side_joins_waits(key):
    async def run():
        options = copyrpc.EndpointOptions(key=key, connect_timeout=60)
        async with copyrpc.Context(initiators=1) as here, copyrpc.Context(initiators=1) as there:
            ours, our_blob = here.blob(options)
            theirs, their_blob = there.blob(options)
            joining = asyncio.ensure_future(theirs.ajoin(our_blob))
            call = None
            if not key:
                await joining
                call = asyncio.ensure_future(theirs.acall(b"early"))
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert here.poll(copyrpc.CompletionArray(4)) == 0
            await ours.ajoin(their_blob)
            await joining
            call = call or asyncio.ensure_future(theirs.acall(b"early"))
            request = await ours.areceive()
            request.reply(bytes(request.payload))
            assert await call == b"early"

    asyncio.run(asyncio.wait_for(run(), 60))


CONNECTS_WITH_A_KEY = """
import sys
import copyrpc

with copyrpc.Context(initiators=1) as context:
    try:
        context.connect(sys.argv[1], copyrpc.EndpointOptions(key=b"k" * 32, connect_timeout=60))
    except copyrpc.ProtocolError as error:
        print(error)
"""
NONCE, QUEUE_PAIR = 12, 44  # where they are in a hello with a key


@needs_initiators
def test_a_peer_that_writes_before_it_answers(address):
    """It has the hello of the connect request, and with it what it takes to write."""
    with copyrpc.Context(queues=True) as bad:
        listener = bad.listen_queues(address)
        victim = subprocess.Popen([sys.executable, "-c", CONNECTS_WITH_A_KEY, address], stdout=subprocess.PIPE, text=True)
        hello = listener.next_connection(60).private_data
        (nonce,), (number,) = struct.unpack_from("<I", hello, NONCE), struct.unpack_from("<I", hello, QUEUE_PAIR)
        receives = bad.queue_open(copyrpc.QueueOptions(receives=1))
        dct = bad.dct_queue(copyrpc.QueueOptions(receive_queue=receives))
        dci = bad.dci_queue(copyrpc.QueueOptions(sends=1))
        target = bad.target(dataclasses.replace(dct.address(), queue_pair_number=number), access_key=nonce)
        dci.write(b"", copyrpc.Remote(0, 0), target, immediate=1)
        assert "before it answered" in victim.communicate(timeout=60)[0] and victim.returncode == 0
