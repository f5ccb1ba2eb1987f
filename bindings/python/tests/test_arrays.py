"""Arrays of ops and completions: 256 calls in a few crossings, with numpy and without; and what both are made from."""
import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import STATUS

import copyrpc
from copyrpc import _records
from copyrpc._native import ffi, lib

CALLS, BYTES = 256, 32
SOURCE = os.environ.get("TEST_SOURCE", os.path.join(os.path.dirname(__file__), "../../.."))


@pytest.fixture
def crossings(monkeypatch):
    """How often this thread called the library."""
    counts = {}
    here = threading.get_ident()

    class Counting:
        def __getattr__(self, name):
            value = getattr(lib, name)
            if not callable(value):
                return value

            def call(*arguments):
                if threading.get_ident() == here:
                    counts[name] = counts.get(name, 0) + 1
                return value(*arguments)

            return call

    for module in ("_pump", "_context", "_arrays"):
        monkeypatch.setattr(f"copyrpc.{module}.lib", Counting())
    return counts


def drain(context, completions, count):
    """All completions of `count` ops, as (user_data, status, payload)."""
    found = []
    while len(found) < count:
        if context.poll(completions) == 0:
            assert context.wait(20.0)
        for index, completion in enumerate(completions):
            assert completion.kind == copyrpc.COMPLETION_RESPONSE
            found.append((completion.user_data, completion.status, bytes(completions.payload(index))))
    return found


def test_256_calls_without_numpy(endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(CALLS), copyrpc.CompletionArray(CALLS)
    ops.fill_calls(endpoint, request_bytes=BYTES, reply_bytes_max=BYTES)
    payload = os.urandom(CALLS * BYTES)
    for _ in range(3):
        assert context.submit(ops, payload=payload) == CALLS
        found = drain(context, completions, CALLS)
        assert sorted(found) == [(index, 0, payload[index * BYTES :][:BYTES]) for index in range(CALLS)]


def test_256_calls_with_numpy(endpoint):
    numpy = pytest.importorskip("numpy")
    context = endpoint.context
    ops, completions = copyrpc.OpArray(CALLS), copyrpc.CompletionArray(CALLS)
    ops.array["opcode"] = copyrpc.OP_CALL
    ops.array["endpoint"] = endpoint.bits
    ops.array["user_data"] = numpy.arange(CALLS)
    ops.array["payload_offset"] = numpy.arange(CALLS) * BYTES
    ops.array["payload_bytes"] = ops.array["reply_bytes_max"] = BYTES
    requests = numpy.frombuffer(os.urandom(CALLS * BYTES), "u1").reshape(CALLS, BYTES)
    replies = numpy.zeros_like(requests)
    assert context.submit(ops, payload=requests) == CALLS
    left = CALLS
    while left:
        count = context.poll(completions)
        if count == 0:
            context.wait(20.0)
            continue
        done = completions.array
        assert len(done) == count == len(completions) and not done["status"].any()
        gathered = numpy.frombuffer(completions.gather(), "u1")
        offsets = numpy.frombuffer(completions.offsets, "u8")
        replies[done["user_data"].astype(int)] = gathered[offsets[:, None].astype(int) + numpy.arange(BYTES)]
        left -= count
    assert (replies == requests).all()


def test_submitting_and_draining_are_few_crossings(endpoint, crossings):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(CALLS), copyrpc.CompletionArray(CALLS)
    ops.fill_calls(endpoint, request_bytes=BYTES, reply_bytes_max=BYTES)
    payload = bytes(CALLS * BYTES)
    draining = {}
    for pause in (0.5, 2, 8, 32):  # until all are answered, which nothing tells
        crossings.clear()
        assert context.submit(ops, payload=payload) == CALLS
        context.arm()
        assert crossings == {"copyrpc_native_submit_array": 1, "crpc_context_arm": 1}
        time.sleep(pause)
        crossings.clear()
        left = CALLS
        while left:
            left -= context.poll(completions)
        draining = dict(crossings)
        if sum(draining.values()) <= 8:
            break
    assert sum(draining.values()) <= 8, draining


def test_a_list_is_few_crossings(endpoint, crossings):
    requests = [b"x" * BYTES] * CALLS
    endpoint.call_many(requests, reply_bytes_max=BYTES)
    crossings.clear()
    endpoint.call_many(requests, reply_bytes_max=BYTES)
    assert crossings["copyrpc_native_submit_calls"] == 1 and set(crossings) <= {
        "copyrpc_native_submit_calls", "copyrpc_native_poll", "crpc_context_arm", "copyrpc_native_sleep"}


def test_retain_copies_one_payload(endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(2), copyrpc.CompletionArray(2)
    ops.fill_calls(endpoint, request_bytes=BYTES, reply_bytes_max=BYTES)
    payload = os.urandom(2 * BYTES)
    assert context.submit(ops, payload=payload) == 2
    left = 2
    while left:
        if context.poll(completions) == 0:
            assert context.wait(20.0)
        for index, completion in enumerate(completions):
            copy = bytearray(BYTES + 1)
            assert completions.retain(index, copy) == BYTES
            assert copy == payload[completion.user_data * BYTES :][:BYTES] + b"\0"
            with pytest.raises(copyrpc.TooBig):
                completions.retain(index, bytearray(BYTES - 1))
            with pytest.raises(BufferError):
                completions.retain(index, b"read-only" * BYTES)
            with pytest.raises((ValueError, IndexError)):
                completions.retain(len(completions), copy)
            left -= 1
    context.poll(copyrpc.CompletionArray(2))
    with pytest.raises(copyrpc.Closed):
        completions.retain(0, copy)


def test_views_of_an_array_end_with_the_next_poll(endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(1), copyrpc.CompletionArray(1)
    ops.fill_calls(endpoint, request_bytes=5, reply_bytes_max=5)
    context.submit(ops, payload=b"hello")
    while context.poll(completions) == 0:
        context.wait(20.0)
    view = completions.payload(0)
    assert bytes(view) == b"hello"
    other = copyrpc.CompletionArray(1)
    context.poll(other)
    with pytest.raises(ValueError):
        view[0]
    with pytest.raises(copyrpc.Closed, match="later poll"):
        completions.payload(0)
    with pytest.raises(copyrpc.Closed):
        completions.gather()
    assert [completion.status for completion in completions] == [0]  # the completions themselves stay


def test_arrays_beside_simple_calls(endpoint):
    """A simple call's poll finds completions for an array: they are kept for it, payloads and all."""
    context = endpoint.context
    ops, completions = copyrpc.OpArray(100), copyrpc.CompletionArray(7)
    ops.fill_calls(endpoint, request_bytes=4, reply_bytes_max=4)
    payload = b"".join(b"%04d" % index for index in range(100))
    assert context.submit(ops, payload=payload) == 100
    for _ in range(5):
        assert endpoint.call(b"simple") == b"simple"
        assert endpoint.call_many([b"a", b"b"]) == [b"a", b"b"]
    found = drain(context, completions, 100)
    assert sorted(found) == [(index, 0, b"%04d" % index) for index in range(100)]


def test_retain_copies_what_another_poll_has_found(endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(1), copyrpc.CompletionArray(1)
    ops.fill_calls(endpoint, request_bytes=BYTES, reply_bytes_max=BYTES)
    payload = os.urandom(BYTES)
    assert context.submit(ops, payload=payload) == 1
    assert endpoint.call(b"behind it") == b"behind it"
    assert context.poll(completions) == 1
    copy = bytearray(BYTES + 1)
    assert completions.retain(0, copy) == BYTES and copy == payload + b"\0"
    with pytest.raises(copyrpc.TooBig):
        completions.retain(0, bytearray(BYTES - 1))
    context.poll(copyrpc.CompletionArray(1))
    with pytest.raises(copyrpc.Closed):
        completions.retain(0, copy)


def test_records_and_columns(endpoint):
    context = endpoint.context
    ops, completions = copyrpc.OpArray(CALLS), copyrpc.CompletionArray(CALLS)
    assert not any(completions.column("status")) and len(completions.column("status")) == 0  # nothing was polled yet
    ops.fill_calls(endpoint, request_bytes=BYTES, reply_bytes_max=BYTES)
    ops.set(7, opcode=copyrpc.OP_CALL, endpoint=endpoint.bits, user_data=7, method=STATUS, reply_bytes_max=BYTES)
    assert context.submit(ops, payload=bytes(CALLS * BYTES)) == CALLS
    left = CALLS
    while left:
        if context.poll(completions) == 0:
            assert context.wait(20.0)
        left -= len(completions)
        whole = list(completions)
        for field in copyrpc.Completion._fields:
            column = completions.column(field)
            assert column.tolist() == [getattr(one, field) for one in whole] and column.readonly
        assert list(completions.records("status", "user_data")) == [(one.status, one.user_data) for one in whole]
        assert list(completions.records()) == whole
        for one in whole:
            assert one.status == (7 if one.user_data == 7 else 0)
        assert any(completions.column("status")) == (7 in completions.column("user_data"))
    for wrong in ("colour", ""):
        with pytest.raises(ValueError, match="a completion has no"):
            completions.column(wrong)
        with pytest.raises(ValueError, match="a completion has no"):
            completions.records("status", wrong)
    for wrong in (("user_data", "status"), ("status", "status")):
        with pytest.raises(ValueError, match="in the header's order"):
            completions.records(*wrong)
    with pytest.raises(TypeError):
        completions.column("status")[0] = 1


def test_a_server_of_arrays(address):
    with copyrpc.Context() as one, copyrpc.Context() as two:
        one.listen(address, arrays=True)
        completions, replies = copyrpc.CompletionArray(64), copyrpc.OpArray(64)
        endpoint = two._begin_connect(address, None, False)
        call = None
        deadline = time.monotonic() + 60
        while call is None or not call.done():
            assert time.monotonic() < deadline, "the call is not answered"
            count = one.poll(completions)
            if count:
                payloads = completions.gather()
                for index, request in enumerate(completions):
                    assert request.kind == copyrpc.COMPLETION_REQUEST
                    replies.set(index, opcode=copyrpc.OP_REPLY, flags=copyrpc.OP_QUIET, endpoint=request.endpoint, token=request.token,
                                payload_offset=completions.offsets[index], payload_bytes=request.payload_bytes)
                assert one.submit(replies, count, payloads) == count
            two.poll(copyrpc.CompletionArray(1))
            if call is None and endpoint.connected:
                call = endpoint.start(b"to an array")
        assert call.result() == b"to an array"


def test_requests_of_an_endpoint_that_was_joined():
    """Context.blob has `arrays`, as listen and connect have."""

    async def join(ends, blobs):
        await asyncio.gather(*(end.ajoin(blob) for end, blob in zip(ends, reversed(blobs))))

    with copyrpc.Context() as context:
        (left, left_blob), (right, right_blob) = context.blob(), context.blob(arrays=True)
        asyncio.run(join((left, right), (left_blob, right_blob)))
        completions, replies = copyrpc.CompletionArray(1), copyrpc.OpArray(1)
        call = left.start(b"to an array")
        while context.poll(completions) == 0:
            assert context.wait(20.0)
        (request,) = completions
        assert (request.kind, request.endpoint) == (copyrpc.COMPLETION_REQUEST, right.bits)
        payload = bytes(completions.payload(0))
        replies.set(0, opcode=copyrpc.OP_REPLY, endpoint=right.bits, token=request.token, payload_bytes=len(payload))
        assert context.submit(replies, payload=payload) == 1
        assert call.result(60) == b"to an array"


def test_an_op_names_a_region(endpoint):
    context = endpoint.context
    region = context.register(bytearray(b"....hello"))
    ops, completions = copyrpc.OpArray(1), copyrpc.CompletionArray(1)
    ops.set(0, opcode=copyrpc.OP_CALL, flags=copyrpc.OP_REGION, endpoint=endpoint.bits, region=region.bits, payload_offset=4,
            payload_bytes=5, reply_bytes_max=5)
    assert context.submit(ops) == 1
    assert drain(context, completions, 1) == [(0, 0, b"hello")]


def test_no_room_takes_a_part(waiting):
    context = waiting.context
    ops = copyrpc.OpArray(2000)
    ops.fill_calls(waiting, request_bytes=2000, reply_bytes_max=100)
    payload = bytes(2000 * 2000)
    taken = context.submit(ops, payload=payload)
    assert 0 < taken < 2000
    assert context.submit(ops, payload=payload, first=taken) == 0


def test_waiting_has_an_end(endpoint):
    begun = time.monotonic()
    while time.monotonic() - begun < 5 and endpoint.context.wait(0.05):
        endpoint.context.poll(copyrpc.CompletionArray(8))
    assert time.monotonic() - begun < 5


def test_without_numpy_the_rest_works():
    program = """
import sys
sys.modules['numpy'] = None
import copyrpc
ops = copyrpc.OpArray(4)
ops.set(1, user_data=5)
try:
    ops.array
except ImportError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "pip install numpy" in output


# ---- What is read from copyrpc.h ----


def header():
    with open(os.path.join(SOURCE, "capi/copyrpc.h")) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def test_the_module_was_built_from_this_header():
    sys.path.insert(0, os.path.join(SOURCE, "bindings/python"))
    try:
        import build_native
    finally:
        sys.path.pop(0)
    with open(os.path.join(SOURCE, "capi/copyrpc.h")) as file:
        now = build_native.declarations(file.read(), ["cc"])
    built = ffi.string(lib.copyrpc_native_declarations).decode()
    assert [line for line in built.splitlines() if line.strip()] == [line for line in now.splitlines() if line.strip()]


def test_every_function_and_constant_is_there():
    functions = set(re.findall(r"CRPC_API[^;(]*?\b(crpc_\w+)\(", header()))
    constants = set(re.findall(r"#define (CRPC_\w+) [-0-9]", header()))
    assert len(functions) > 30 and len(constants) > 60
    assert functions | constants <= set(dir(lib))


FORMS = {"crpc_op": _records.OP, "crpc_channel_op": _records.CHANNEL_OP, "crpc_queue_op": _records.QUEUE_OP, "crpc_piece": _records.PIECE,
         "crpc_completion": _records.COMPLETION}


@pytest.mark.parametrize("name", FORMS)
def test_the_struct_module_reads_what_c_wrote(name):
    form = FORMS[name]
    memory = bytes(range(1, 1 + form.size))
    struct = ffi.from_buffer(f"{name}[]", memory)[0]
    values = [getattr(struct, field) for field, _ in ffi.typeof(name).fields]
    assert [value if isinstance(value, int) else value.bits for value in values] == list(form.unpack(memory))


def test_completions_have_the_headers_names():
    assert list(copyrpc.Completion._fields) == [name for name, _ in ffi.typeof("crpc_completion").fields]
    memory = bytes(range(1, 65))
    whole = copyrpc.Completion._make(_records.COMPLETION.unpack(memory))
    for fields in (("status",), ("kind", "status", "user_data"), ("endpoint_user_data",), copyrpc.Completion._fields):
        assert _records.records_form(fields).unpack(memory) == tuple(getattr(whole, field) for field in fields)


def test_every_function_is_used():
    """Of those that have no place in Python, here is why."""
    elsewhere = {
        "crpc_poll", "crpc_submit", "crpc_context_close", "crpc_endpoint_accept", "crpc_channel_accept", "crpc_queue_submit", "crpc_lane_submit",
        "crpc_queue_accept", "crpc_endpoint_hand_over", "crpc_channel_hand_over", "crpc_queue_hand_over",  # native.c has them
        "crpc_wait",  # holds the context while it sleeps: _pump.py arms, and sleeps by itself
        "crpc_retain",  # Message copies by itself
        "crpc_endpoint_get_method_metrics",  # metrics_text says the same, and more
        "crpc_listener_drain",  # _drain.py disconnects later than it closes the listener: handlers may still call their callers
        "crpc_status_name",
        "crpc_tag_header_write", "crpc_tag_header_read",  # _tags.py packs the 16 bytes by itself; test_tags.py compares them
    }
    text = "".join(path.read_text() for path in Path(SOURCE, "bindings/python/copyrpc").glob("*.py"))
    used = set(re.findall(r"\blib\.(crpc_\w+)\(", text))
    for verb in re.findall(r'(?:_function\(|_leaving = )"(\w+)"', text):  # endpoints, channels and queues share these
        used |= {f"crpc_endpoint_{verb}", f"crpc_channel_{verb}", f"crpc_queue_{verb}"}
    functions = set(re.findall(r"CRPC_API[^;(]*?\b(crpc_\w+)\(", header()))
    assert functions - used <= elsewhere


@pytest.mark.parametrize("struct,kind", [("crpc_stats", "Stats"), ("crpc_context_info", "ContextInfo"),
                                         ("crpc_endpoint_info", "EndpointInfo"), ("crpc_region_info", "RegionInfo"),
                                         ("crpc_queue_stats", "QueueStats"), ("crpc_queue_address", "QueueAddress")])
def test_descriptions_have_the_headers_fields(struct, kind):
    there = {name for name, _ in ffi.typeof(struct).fields} - {"struct_size", "reserved", "user_data", "token_bytes"}
    there = {"grh_required" if name == "flags" else name for name in there}  # the one that there is
    assert there == set(getattr(copyrpc, kind).__dataclass_fields__)
