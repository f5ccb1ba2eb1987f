"""Bad input: each a clear error, and nothing changed by it."""
import math
import mmap
import pickle

import pytest
from conftest import asking

import copyrpc
from copyrpc import errors
from copyrpc._native import lib

NOT_CONTIGUOUS = memoryview(b"abcdef")[::2]


@pytest.mark.parametrize("payload", ["text", 5, None, 1.5, [b"x"], object()], ids=lambda value: type(value).__name__)
def test_payloads_of_wrong_types(endpoint, payload):
    for use in (endpoint.call, endpoint.call_view, endpoint.start, lambda value: endpoint.call_many([b"x", value])):
        with pytest.raises(TypeError, match=f"bytes or another buffer, not {type(payload).__name__}"):
            use(payload)
    assert endpoint.call(b"goes on") == b"goes on" and endpoint.info().calls_open == 0


def test_many_says_which(endpoint):
    with pytest.raises(TypeError, match="request 1 must be bytes"):
        endpoint.call_many([b"x", "y"])
    with pytest.raises(TypeError):
        endpoint.call_many(5)


def test_a_payload_whose_length_does_not_fit(endpoint):
    no_reserve = 0x4000  # of Linux; Python 3.13 has a name for it
    with mmap.mmap(-1, (1 << 32) + 5, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve) as huge:
        with pytest.raises(OverflowError, match="request 1 "):
            endpoint.call_many([b"x", huge])
    assert endpoint.call_many([b"goes on"]) == [b"goes on"]


def test_payloads_that_are_not_contiguous(endpoint):
    for use in (endpoint.call, endpoint.call_view, endpoint.start, lambda value: endpoint.call_many([value])):
        with pytest.raises(BufferError, match="contiguous"):
            use(NOT_CONTIGUOUS)
    with pytest.raises(BufferError, match="contiguous"):
        endpoint.context.submit(copyrpc.OpArray(1), payload=NOT_CONTIGUOUS)
    with pytest.raises(BufferError, match="contiguous"):
        endpoint.join(NOT_CONTIGUOUS)


@pytest.mark.parametrize("timeout", [-1, -0.001, -math.inf, math.nan])
def test_timeouts_that_make_no_sense(endpoint, server, timeout):
    for use in (
        lambda: endpoint.call(b"x", timeout=timeout),
        lambda: endpoint.call_many([b"x"], timeout=timeout),
        lambda: endpoint.call_view(b"x", timeout=timeout),
        lambda: endpoint.start(b"x", timeout=timeout),
        lambda: endpoint.start(b"x").result(timeout),
        lambda: endpoint.receive(timeout),
        lambda: endpoint.disconnect(timeout),
        lambda: endpoint.reserve(10, timeout=timeout),
        lambda: endpoint.join(b"", timeout=timeout),
        lambda: server.listener.receive(timeout),
        lambda: server.listener.next_connection(timeout),
        lambda: copyrpc.EndpointOptions(keepalive=timeout).to_c(0),
        lambda: endpoint.context.wait(timeout),
        lambda: endpoint.context.connect(server.address, timeout=timeout),
        lambda: endpoint.context.connect(server.address, copyrpc.EndpointOptions(connect_timeout=timeout)),
    ):
        with pytest.raises(ValueError, match="0 seconds or more"):
            use()
    assert endpoint.call(b"goes on") == b"goes on"


@pytest.mark.parametrize("timeout", ["1", b"1", [1], True, 1j])
def test_timeouts_that_are_no_numbers(endpoint, timeout):
    with pytest.raises(TypeError, match="number of seconds"):
        endpoint.call(b"x", timeout=timeout)


@pytest.mark.parametrize("timeout,error", [(-1, ValueError), (math.nan, ValueError), ("1", TypeError)])
def test_timeouts_of_accept(address, timeout, error):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address, auto_accept=False)
        _, connection = asking(other, listener)
        with pytest.raises(error, match="seconds"):
            connection.accept(timeout=timeout)
        connection.reject()  # it was not decided on


def test_endless_timeouts(endpoint):
    assert endpoint.call(b"x", timeout=math.inf) == endpoint.call(b"x", timeout=1e30) == endpoint.call(b"x", timeout=None) == b"x"


@pytest.mark.parametrize("method", [-1, 65536, 1.0, "1", None, True])
def test_methods(endpoint, method):
    with pytest.raises((TypeError, ValueError), match="method is"):
        endpoint.call(b"x", method=method)


@pytest.mark.parametrize("most", [-1, 1 << 32, 1.0, "1"])
def test_reply_bytes_max(endpoint, most):
    with pytest.raises((TypeError, ValueError), match="reply_bytes_max is"):
        endpoint.call(b"x", reply_bytes_max=most)


@pytest.mark.parametrize("address", [5, None, b"127.0.0.1:1"])
def test_addresses_of_wrong_types(address):
    with copyrpc.Context() as context:
        for use in (context.connect, context.listen):
            if address is None and use == context.listen:
                continue  # a listener without an address
            with pytest.raises(TypeError, match="an address is a str"):
                use(address)


@pytest.mark.parametrize("address", ["", "nothing", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "a\0b:1"])
def test_addresses_that_are_none(address):
    with copyrpc.Context() as context:
        for use in (context.connect, context.listen):
            with pytest.raises(ValueError) as caught:
                use(address)
            assert str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"token": "text"}, {"ring_bytes": "1"}, {"keepalive": "1"}, {"calls_max": 1.5}],
)
def test_options_of_wrong_types(options):
    with copyrpc.Context() as context:
        for use in (context.connect, context.listen):
            with pytest.raises(TypeError):
                use("127.0.0.1:1", copyrpc.EndpointOptions(**options))


@pytest.mark.parametrize(
    "options",
    [{"token": bytes(17)}, {"ring_bytes": -1}, {"ring_bytes": 5000}, {"retry_count": 8}, {"call_only": True, "serve_only": True},
     {"reply_bytes_max": -1}],
)
def test_options_with_wrong_values(options):
    with copyrpc.Context() as context:
        with pytest.raises(ValueError):
            context.connect("127.0.0.1:1", copyrpc.EndpointOptions(**options))
        assert context.info().endpoints == 0
        with pytest.raises(TypeError, match="EndpointOptions"):
            context.connect("127.0.0.1:1", {"ring_bytes": 4096})


def test_contexts():
    for arguments, error in (({"device": 5}, TypeError), ({"driver": "fast"}, ValueError), ({"driver": 1}, TypeError),
                             ({"port": -1}, ValueError), ({"log_level": "loud"}, ValueError), ({"gid_index": "0"}, TypeError)):
        with pytest.raises(error):
            copyrpc.Context(**arguments)
    with pytest.raises(TypeError):
        copyrpc.Context(colour="red")


def test_handlers(server):
    for handler in (None, "handler", 5):
        with pytest.raises(TypeError, match="a handler is a function"):
            server.listener.serve(handler)


def test_replies(silent, waiting):
    call = waiting.start(b"x", reply_bytes_max=10)
    (request,) = silent.wait_for(1)
    with pytest.raises(TypeError, match="a reply must be bytes"):
        request.reply("text")
    with pytest.raises(BufferError, match="contiguous"):
        request.reply(NOT_CONTIGUOUS)
    with pytest.raises(ValueError, match="status"):
        request.reply(b"", -1)
    with pytest.raises(copyrpc.TooBig, match="takes 10"):
        request.reply(bytes(11))
    request.reply(b"good", 0)
    for again in (request.reply, request.drop):
        with pytest.raises(copyrpc.Closed, match="answered before"):
            again()
    assert call.result(60) == b"good"


def test_reservations(endpoint):
    for size in (-1, 1.5, "10", None, 1 << 32):
        with pytest.raises((TypeError, ValueError), match="payload_bytes is"):
            endpoint.reserve(size)
    with pytest.raises(copyrpc.TooBig):
        endpoint.reserve(endpoint.info().request_bytes_max + 1)
    with endpoint.reserve(10) as room:
        for size in (-1, 1.5, "10"):
            with pytest.raises((TypeError, ValueError), match="payload_bytes is"):
                room.commit(size)
        with pytest.raises(copyrpc.TooBig, match="10 were reserved"):
            room.commit(11)
        with pytest.raises(ValueError):
            room.memory[:] = bytes(11)
    assert endpoint.call(b"goes on") == b"goes on"


def test_reservations_of_replies(silent, waiting):
    waiting.start(b"x", reply_bytes_max=10)
    (request,) = silent.wait_for(1)
    with pytest.raises(copyrpc.TooBig, match="takes 10"):
        request.reserve(11)
    with pytest.raises(ValueError, match="status"):
        request.reserve(10, -1)
    request.drop()
    with pytest.raises(copyrpc.Closed, match="answered before"):
        request.reserve(10)


def test_a_handler_that_gives_nonsense(address):
    import threading

    with copyrpc.Context() as context:
        listener = context.listen(address)
        thread = threading.Thread(target=listener.serve, args=(lambda request: [b"a", b"reply"] if len(request) else "text",))
        thread.start()
        with copyrpc.connect(address) as endpoint:
            with pytest.raises(copyrpc.RemoteError, match="TypeError.*not list"):
                endpoint.call(b"x")
            with pytest.raises(copyrpc.RemoteError, match="TypeError.*not str"):
                endpoint.call(b"")
        listener.stop()
        thread.join(60)


def test_arrays(endpoint):
    context = endpoint.context
    for wrong in (0, -1, 1 << 21):
        with pytest.raises(ValueError):
            copyrpc.OpArray(wrong)
        with pytest.raises(ValueError):
            copyrpc.CompletionArray(wrong)
    ops, completions = copyrpc.OpArray(4), copyrpc.CompletionArray(4)
    for use in (lambda: context.submit(b"ops"), lambda: context.poll([]), lambda: copyrpc.OpArray("4")):
        with pytest.raises(TypeError):
            use()
    for use in (lambda: context.submit(ops, 5), lambda: context.submit(ops, 2, first=3), lambda: context.submit(ops, -1),
                lambda: ops.set(4), lambda: completions.payload(0)):
        with pytest.raises(ValueError):
            use()
    ops.set(0, opcode=77, endpoint=endpoint.bits)
    with pytest.raises(copyrpc.Unsupported):
        context.submit(ops, 1)
    ops.set(0, opcode=copyrpc.OP_CALL, endpoint=endpoint.bits, payload_bytes=10, reply_bytes_max=10)
    with pytest.raises(copyrpc.InvalidArgument):  # past the payload's end
        context.submit(ops, 1, b"short")
    ops.set(0, opcode=copyrpc.OP_CALL, endpoint=endpoint.bits, user_data=1 << 63)
    with pytest.raises(copyrpc.InvalidArgument):  # the package's own
        context.submit(ops, 1)
    ops.set(0, opcode=copyrpc.OP_CALL, endpoint=12345)
    with pytest.raises(copyrpc.Closed):
        context.submit(ops, 1)
    with pytest.raises(AttributeError):
        ops.set(0, colour=1)
    assert endpoint.call(b"goes on") == b"goes on"


def test_remote_errors():
    for status in (0, -1, 1 << 31, True, "1"):
        with pytest.raises(ValueError):
            copyrpc.RemoteError(status)


@pytest.mark.parametrize("blob", ["text", None, 5])
def test_blobs_of_wrong_types(blob):
    with copyrpc.Context() as context:
        endpoint, _ = context.blob()
        with pytest.raises(TypeError, match="a blob must be bytes"):
            endpoint.join(blob)


# ---- Exceptions ----

STATUSES = sorted(name for name in dir(lib) if name.startswith("CRPC_E_"))


@pytest.mark.parametrize("name", STATUSES)
def test_every_status_has_a_family(name):
    status = getattr(lib, name)
    error = errors.error_of(status, "here")
    assert type(error) is not copyrpc.CopyrpcError, "a status that no class of errors.py stands for"
    assert error.status == status and error.status_name == name and error.message.startswith("here: ") and str(error) == error.message
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and (again.status, again.message, again.errno) == (status, error.message, error.errno)


def test_a_status_of_a_later_version():
    error = errors.error_of(-1000)
    assert type(error) is copyrpc.CopyrpcError and error.status == -1000


def test_a_remote_error_survives_pickling():
    error = pickle.loads(pickle.dumps(copyrpc.RemoteError(5, b"why")))
    assert (error.status, error.payload) == (5, b"why")
