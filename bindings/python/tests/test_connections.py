"""Connecting and parting: listeners, decisions, blobs, peers that go."""
import subprocess
import sys
import threading
import time

import pytest
from conftest import asking

import copyrpc


def test_nobody_listens(address):
    with copyrpc.Context() as context:
        with pytest.raises(copyrpc.CopyrpcError) as caught:
            context.connect(address)
        assert isinstance(caught.value, (copyrpc.Refused, copyrpc.Unreachable))
        assert isinstance(caught.value, ConnectionError) and context.info().endpoints == 0


def test_no_such_name():
    with copyrpc.Context() as context, pytest.raises(copyrpc.Unreachable):
        context.connect("no-such-name.invalid:1")


def test_a_taken_port(server):
    with copyrpc.Context() as context, pytest.raises(copyrpc.SystemCallFailed) as caught:
        context.listen(server.address)
    assert caught.value.errno and isinstance(caught.value, OSError)


def test_port_zero_is_any(address):
    with copyrpc.Context() as context, context.listen("*:0") as listener:
        assert listener.port > 0 and listener.counts() == (0, 0)


def test_no_such_device():
    with pytest.raises(copyrpc.NoDevice, match="nothing9"):
        copyrpc.Context("nothing9")
    with pytest.raises(copyrpc.NoDevice):
        copyrpc.Context("x" * 100)


def decide(address, decision):
    """A listener that does not accept by itself, in a thread."""
    context = copyrpc.Context()
    listener = context.listen(address, auto_accept=False)

    def run():
        request = listener.next_connection(60)
        decision(request)
        listener.serve(lambda request: request.payload)

    thread = threading.Thread(target=run)
    thread.start()

    def end():
        listener.close()
        thread.join(60)
        context.close()
        assert not thread.is_alive()

    return end


def test_a_choosy_listener(address):
    seen = []

    def decision(request):
        seen.append((request.token, request.peer_address))
        request.accept()
        with pytest.raises(copyrpc.InvalidArgument):
            request.reject()

    end = decide(address, decision)
    with copyrpc.connect(address, copyrpc.EndpointOptions(token=b"let me in")) as endpoint:
        assert endpoint.call(b"hello") == b"hello"
    end()
    assert seen[0][0] == b"let me in" and seen[0][1]


def test_a_refusal_tells_its_reason(address):
    end = decide(address, lambda request: request.reject(42))
    with pytest.raises(copyrpc.Refused, match="42") as caught:
        copyrpc.connect(address)
    end()
    assert isinstance(caught.value, ConnectionRefusedError) and caught.value.errno


def test_a_listener_that_accepts_by_itself_has_no_queue(server):
    with pytest.raises(copyrpc.InvalidArgument, match="auto_accept"):
        server.listener.next_connection(0)


def test_blobs():
    with copyrpc.Context() as one, copyrpc.Context() as two:
        # 4 s before a retry: what one end sends before the other has joined is not lost, however late that is. A retry may be needed.
        options = copyrpc.EndpointOptions(retry_timeout=20, connect_timeout=60)
        first, first_blob = one.blob(options)
        second, second_blob = two.blob(options)
        thread = threading.Thread(target=first.join, args=(second_blob,), kwargs={"timeout": 60})
        thread.start()
        second.join(first_blob, timeout=60)
        thread.join()
        server = threading.Thread(target=first.serve, args=(lambda request: request.payload,))
        server.start()
        assert second.call(b"by blob") == b"by blob"
        second.disconnect(60)
        server.join(60)
        assert not server.is_alive()


def test_a_damaged_blob():
    with copyrpc.Context() as context:
        endpoint, blob = context.blob()
        with pytest.raises(copyrpc.ProtocolError):
            endpoint.join(bytes(len(blob)))


def test_requests_go_both_ways(server):
    """The side that connected is called by the side that accepted."""
    with copyrpc.connect(server.address) as endpoint:
        thread = threading.Thread(target=endpoint.serve, args=(lambda request: b"from the client",))
        thread.start()
        assert endpoint.call(b"x") == b"x"
        (other,) = server.listener.endpoints
        assert other.call(b"y", timeout=60) == b"from the client"
        endpoint.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_taking_leave(server):
    with copyrpc.Context() as context:
        endpoint = context.connect(server.address)
        endpoint.call(b"x")
        endpoint.disconnect(60)
        assert not endpoint.connected
        with pytest.raises(copyrpc.Disconnected) as caught:
            endpoint.call(b"x")
        assert isinstance(caught.value, ConnectionError)
        endpoint.disconnect()  # once more does no harm
        deadline = time.monotonic() + 60
        while server.listener.endpoints and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not server.listener.endpoints


def test_the_peer_ends_while_a_call_waits(silent, waiting):
    def end():
        silent.wait_for(1)
        for endpoint in list(silent.listener.endpoints):
            endpoint.close()

    peer = threading.Thread(target=end)
    peer.start()
    with pytest.raises(copyrpc.Disconnected):
        waiting.call(b"x")
    peer.join(60)
    with pytest.raises(copyrpc.Disconnected):
        waiting.call_many([b"x"])


PEER = """
import copyrpc, sys
with copyrpc.listen(sys.argv[1], copyrpc.EndpointOptions(connect_timeout=60)) as listener:
    print("listening", flush=True)
    request = listener.receive()
    import os; os.kill(os.getpid(), 9)
"""


def test_the_peer_is_killed(address):
    peer = subprocess.Popen([sys.executable, "-c", PEER, address], stdout=subprocess.PIPE, text=True)
    assert peer.stdout.readline() == "listening\n"
    with copyrpc.connect(address, copyrpc.EndpointOptions(keepalive=0.2)) as endpoint:
        with pytest.raises(copyrpc.Disconnected):
            endpoint.call(b"x")
        assert not endpoint.connected and endpoint.error is not None
    peer.wait()
    peer.stdout.close()


def test_a_reply_to_a_peer_that_went(silent):
    with copyrpc.Context() as context:
        endpoint = context.connect(silent.address)
        endpoint.start(b"x")
        (request,) = silent.wait_for(1)
        endpoint.close()
        deadline = time.monotonic() + 60
        while silent.listener.endpoints and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(copyrpc.Disconnected):
            request.reply(b"y")
        assert bytes(request.payload) == b"x"  # a copy by now


def test_reconnecting(server):
    with copyrpc.Context() as context:
        for index in range(20):
            with context.connect(server.address) as endpoint:
                assert endpoint.call(b"%d" % index) == b"%d" % index
        assert context.info().endpoints == 0


def test_many_connections(server):
    with copyrpc.Context() as context:
        endpoints = [context.connect(server.address, copyrpc.EndpointOptions(ring_bytes=65536, batch_window=8)) for _ in range(40)]
        calls = [endpoint.start(b"%d" % index) for index, endpoint in enumerate(endpoints)]
        assert [call.result(60) for call in calls] == [b"%d" % index for index in range(40)]


def test_a_region():
    memory = bytearray(8192)
    with copyrpc.Context() as context:
        with context.register(memory, "local_write", "remote_read") as region:
            info = region.info()
            assert info.bytes == 8192 and info.remote_key and info.address and info.access == ("local_write", "remote_read")
            with pytest.raises(BufferError):
                memory.append(1)  # it must stay where it is
        region.close()
        memory.append(1)
        with pytest.raises(copyrpc.Closed):
            region.info()
        again = context.register(memory, "remote_read")
        with pytest.raises(copyrpc.Closed):  # not what lies in its place now
            region.info()
        assert again.info().bytes == 8193


def test_regions_that_cannot_be():
    with copyrpc.Context() as context:
        for buffer, access, error, words in (
            (b"constant", "local_write", BufferError, "writable"),
            (memoryview(bytearray(8))[::2], "local_write", BufferError, "contiguous"),
            ("text", "local_write", TypeError, "not str"),
            (5, "local_write", TypeError, "not int"),
            (bytearray(8), "execute", ValueError, "local_write"),
            (bytearray(8), 1, TypeError, "local_write"),
            (bytearray(8), "remote_write", ValueError, "LOCAL_WRITE"),
            (bytearray(), "local_write", ValueError, "length"),
        ):
            with pytest.raises(error, match=words):
                context.register(buffer, access)


def test_a_region_ends_with_its_context():
    memory = bytearray(4096)
    with copyrpc.Context() as context:
        region = context.register(memory, "local_write")
    with pytest.raises(copyrpc.Closed):
        region.info()
    region.close()
    memory.append(1)


def test_a_handler_that_calls_its_caller_back(address):
    """The nested call polls: the request's payload is kept for the handler all the same."""
    with copyrpc.Context() as context:
        listener = context.listen(address)

        def handler(request):
            view = request.payload
            answer = request.endpoint.call(b"back with " + bytes(view), timeout=60)
            return answer + b" for " + bytes(request.payload)

        server = threading.Thread(target=listener.serve, args=(handler,))
        server.start()
        with copyrpc.Context() as other:
            endpoint = other.connect(address)
            serving = threading.Thread(target=endpoint.serve, args=(lambda request: b"[" + bytes(request.payload) + b"]",))
            serving.start()
            assert endpoint.call(b"x", timeout=60) == b"[back with x] for x"
            endpoint.stop()
            serving.join(60)
        listener.stop()
        server.join(60)
        assert not serving.is_alive() and not server.is_alive()


def test_accepting_that_takes_too_long_closes_the_connection(address):
    with copyrpc.Context() as context, copyrpc.Context() as other, context.listen(address, auto_accept=False) as listener:
        _, request = asking(other, listener)  # and nobody polls `other` from now on
        with pytest.raises(copyrpc.Timeout, match="accept"):
            request.accept(timeout=0.05)
        assert context.info().endpoints == 0 and not context._endpoints


def test_peers_that_cannot_be_accepted_leave_nothing(address):
    """Each hears that it was refused, and the listener goes on."""
    with copyrpc.Context() as context, context.listen(address) as listener:
        good, listener._options = listener._options, copyrpc.EndpointOptions(ring_bytes=1000)  # not a possible size
        serving = threading.Thread(target=listener.serve, args=(lambda request: request.payload,))
        serving.start()
        with copyrpc.Context() as other:
            for _ in range(20):
                with pytest.raises(copyrpc.Refused):
                    other.connect(address, timeout=60)
            assert context.info().endpoints == 0 and not context._endpoints
            assert isinstance(listener.accept_error, copyrpc.InvalidArgument)
            listener._options = good
            assert other.connect(address).call(b"x", timeout=60) == b"x"
        listener.stop()
        serving.join(60)
        assert not serving.is_alive()


def test_a_listener_that_closes_refuses_who_waits(address):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address, auto_accept=False)
        endpoint = other._begin_connect(address, None, False)
        completions = copyrpc.CompletionArray(1)
        while not listener._connections:
            context.poll(completions)
            other.poll(completions)
        listener.close()
        while endpoint.error is None:
            context.poll(completions)
            other.poll(completions)
        assert isinstance(endpoint.error, copyrpc.Refused) and context.info().endpoints == 0
