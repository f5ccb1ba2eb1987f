"""Calls in the simple form: payloads in and out, answers, deadlines, connections."""
import array
import concurrent.futures
import os
import sys
import time

import pytest
from conftest import DROP, FAIL, METHOD, SIZED, STATUS

import copyrpc


def test_an_echo(endpoint):
    assert endpoint.call(b"hello", timeout=5.0) == b"hello"


def test_an_empty_request(endpoint):
    assert endpoint.call(b"") == b""


@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 65536])
def test_sizes(endpoint, size):
    payload = os.urandom(size)
    assert endpoint.call(payload, reply_bytes_max=size) == payload


def test_the_largest_request_and_one_more(endpoint):
    most = endpoint.info().request_bytes_max
    assert endpoint.call(bytes(most), method=METHOD) == b"%d" % METHOD
    with pytest.raises(copyrpc.TooBig, match="info") as caught:
        endpoint.call(bytes(most + 1), method=METHOD)
    assert caught.value.status == -5 and caught.value.status_name == "CRPC_E_TOO_BIG"


@pytest.mark.parametrize(
    "buffer",
    [bytearray(b"abcdef"), memoryview(b"abcdef"), memoryview(b"xabcdefx")[1:7], array.array("B", b"abcdef"), (memoryview(b"abcdef").cast("B", (2, 3)))],
    ids=["bytearray", "memoryview", "slice", "array", "two dimensions"],
)
def test_any_contiguous_buffer_goes_in(endpoint, buffer):
    assert endpoint.call(buffer) == b"abcdef"
    assert endpoint.call_many([buffer, buffer]) == [b"abcdef"] * 2


def test_a_buffer_of_wide_items(endpoint):
    numbers = array.array("d", [1.5, 2.5])
    assert endpoint.call(numbers) == numbers.tobytes()
    assert endpoint.call_many([numbers]) == [numbers.tobytes()]


def test_numpy_arrays_go_in(endpoint):
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(12, dtype="<u4").reshape(3, 4)
    assert endpoint.call(grid) == grid.tobytes()
    with pytest.raises(BufferError, match="contiguous"):
        endpoint.call(grid[:, ::2])


def test_the_method_arrives(endpoint):
    assert endpoint.call(b"", method=METHOD) == b"%d" % METHOD


def test_a_status_of_the_application(endpoint):
    with pytest.raises(copyrpc.RemoteError) as caught:
        endpoint.call(b"details", method=STATUS)
    assert (caught.value.status, caught.value.payload) == (7, b"details")


def test_a_handler_that_raises_answers_and_lives(endpoint):
    with pytest.raises(copyrpc.RemoteError) as caught:
        endpoint.call(b"x", method=FAIL)
    assert caught.value.status == copyrpc.Status.UNKNOWN
    assert "ValueError: the handler's own trouble: \u00fc" in caught.value.message
    assert endpoint.call(b"still there") == b"still there"


def test_a_reply_longer_than_its_caller_takes(endpoint):
    with pytest.raises(copyrpc.RemoteError) as caught:
        endpoint.call(b"5000", method=SIZED, reply_bytes_max=4096)
    assert "5000" in caught.value.message and "reply_bytes_max" in caught.value.message
    assert len(endpoint.call(b"5000", method=SIZED, reply_bytes_max=5000)) == 5000


def test_a_dropped_request(endpoint):
    with pytest.raises(copyrpc.Dropped):
        endpoint.call(b"x", method=DROP)


def test_a_deadline(waiting):
    begun = time.monotonic()
    with pytest.raises(copyrpc.Timeout) as caught:
        waiting.call(b"x", timeout=0.05)
    assert 0.04 <= time.monotonic() - begun < 5
    assert isinstance(caught.value, TimeoutError) and caught.value.status == -11 and caught.value.errno


def test_no_time_at_all(waiting):
    with pytest.raises(copyrpc.Timeout):
        waiting.call(b"x", timeout=0)


def test_calls_in_the_background(silent, waiting):
    calls = [waiting.start(b"%d" % index) for index in range(5)]
    with pytest.raises(copyrpc.Timeout):
        calls[0].result(0.02)
    for request in reversed(silent.wait_for(5)):  # out of order
        request.reply(b"re " + bytes(request.payload))
    assert [call.result(60) for call in calls] == [b"re %d" % index for index in range(5)]
    assert all(call.done() for call in calls)


def test_cancelling_a_call(silent, waiting):
    call = waiting.start(b"x")
    silent.wait_for(1)
    call.cancel()
    with pytest.raises(copyrpc.Canceled):
        call.result(60)
    call.cancel()  # once more does no harm
    silent.requests[0].reply(b"too late")


def test_an_answer_in_place(endpoint):
    with endpoint.call_view(b"look") as reply:
        view = reply.payload
        assert bytes(view) == b"look" and reply.status == 0 and view.readonly and len(reply) == 4
    with pytest.raises(ValueError):
        view[0]
    with pytest.raises(copyrpc.Closed):
        reply.payload


def test_a_status_in_place_raises_nothing(endpoint):
    with endpoint.call_view(b"why", method=STATUS) as reply:
        assert (reply.status, bytes(reply)) == (7, b"why")
    with pytest.raises(copyrpc.Dropped):
        endpoint.call_view(b"x", method=DROP)


def test_many(endpoint):
    requests = [b"%d" % index * (index % 50) for index in range(1000)]
    assert endpoint.call_many(requests) == requests
    assert endpoint.call_many([]) == []
    assert endpoint.call_many(iter(requests[:3])) == requests[:3]


def test_many_with_more_than_there_is_room_for(endpoint):
    requests = [bytes([index % 256]) * 2000 for index in range(3000)]
    assert endpoint.call_many(requests) == requests
    assert endpoint.stats().calls == 3000


class Named(bytes):
    pass


def test_many_of_every_kind(endpoint):
    buffers = [b"bytes", bytearray(b"bytearray"), memoryview(b"xsliced")[1:], b"", Named(b"named"), bytearray(), array.array("H", [1, 2]), b"end"]
    held = [sys.getrefcount(buffer) for buffer in buffers if buffer != b""]  # that of bytes, all share
    assert endpoint.call_many(buffers) == [bytes(buffer) for buffer in buffers]
    assert [sys.getrefcount(buffer) for buffer in buffers if buffer != b""] == held
    buffers[1].append(1)  # which raises BufferError while something holds it
    with pytest.raises(TypeError):
        endpoint.call_many([buffers[1], None])
    buffers[1].append(2)


def test_many_answered_out_of_order(silent, waiting):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answers = pool.submit(waiting.call_many, [b"%d" % index for index in range(200)], reply_bytes_max=16, timeout=60)
        for request in reversed(silent.wait_for(200)):
            request.reply(b"re " + bytes(request.payload))
        assert answers.result(60) == [b"re %d" % index for index in range(200)]


def test_many_with_a_failure(endpoint):
    with pytest.raises(copyrpc.RemoteError, match="status 7"):
        endpoint.call_many([b"a", b"b"], method=STATUS)
    results = endpoint.call_many([b"a", b"b"], method=STATUS, return_exceptions=True)
    assert [result.payload for result in results] == [b"a", b"b"]


def test_many_with_one_too_big(endpoint):
    most = endpoint.info().request_bytes_max
    results = endpoint.call_many([b"a", bytes(most + 1), b"c"], return_exceptions=True)
    assert results[0] == b"a" and results[2] == b"c" and isinstance(results[1], copyrpc.TooBig)


def test_many_with_a_deadline(waiting):
    results = waiting.call_many([b"x"] * 5, timeout=0.05, return_exceptions=True)
    assert all(isinstance(result, copyrpc.Timeout) for result in results) and len(results) == 5


def test_many_without_room_until_the_deadline(waiting):
    results = waiting.call_many([bytes(2000)] * 2000, timeout=0.2, return_exceptions=True)
    assert all(isinstance(result, copyrpc.Timeout) for result in results) and len(results) == 2000


def test_info_and_stats(endpoint, server):
    endpoint.call(b"x")
    info, stats = endpoint.info(), endpoint.stats()
    assert info.state == "connected" and info.peer_address == server.address and info.calls_open == 0
    assert stats.calls == stats.responses == 1
    context = endpoint.context
    assert context.info().endpoints == 1 and context.info().driver_name and context.stats().polls > 0
    assert context.info().device in [device.name for device in copyrpc.devices()]


def test_completion_vectors():
    vectors = copyrpc.devices()[0].completion_vectors
    assert vectors > 0
    for vector in range(vectors):
        with copyrpc.Context(completion_vector=vector) as context:
            assert context.info().completion_vector == vector
    with copyrpc.Context() as one, copyrpc.Context() as other:  # they take turns
        assert (one.info().completion_vector + 1) % vectors == other.info().completion_vector
    with pytest.raises(ValueError, match="completion_vector"):
        copyrpc.Context(completion_vector=-1)


@pytest.mark.skipif(not os.environ.get("TEST_DEVICE", "mlx5_0").startswith("mlx5"), reason="no mlx5 device")
def test_features():
    with copyrpc.Context(driver="mlx5") as context:
        assert context.info().features == copyrpc.FEATURE_BLUEFLAME
    with copyrpc.Context(driver="mlx5", compressed_completions=True) as context:
        assert context.info().features == copyrpc.FEATURE_BLUEFLAME | copyrpc.FEATURE_CQE_COMPRESSION
    with copyrpc.Context(driver="verbs", compressed_completions=True) as context:
        assert context.info().features == 0


def test_the_log(address):
    with copyrpc.Context(log_level="debug") as context:
        with pytest.raises(copyrpc.CopyrpcError):
            context.connect(address)  # nobody listens
        entries = context.log()
        assert all(entry.message and entry.level and entry.time_ns for entry in entries)
        assert context.log() == []


def test_the_version():
    assert ".".join(map(str, copyrpc.version())) == copyrpc.__version__


def test_the_longest_reply_and_one_more(endpoint):
    most = endpoint.info().reply_bytes_max
    assert len(endpoint.call(b"%d" % most, method=SIZED, reply_bytes_max=most)) == most
    with pytest.raises(copyrpc.TooBig):
        endpoint.call(b"1", method=SIZED, reply_bytes_max=most + 1)
