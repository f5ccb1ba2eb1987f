"""Lifetimes: closing, what was closed, fork(), views of payloads, the interpreter's end."""
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
from conftest import FAIL, STATUS, asking

import copyrpc


def test_closing_twice(server):
    context = copyrpc.Context()
    endpoint = context.connect(server.address)
    listener = context.listen("*:0")
    for _ in range(2):
        listener.close()
        endpoint.close()
        context.close()
    assert context.closed


def test_a_closed_endpoint_raises(server):
    with copyrpc.Context() as context:
        endpoint = context.connect(server.address)
        endpoint.close()
        for use in (
            lambda: endpoint.call(b"x"),
            lambda: endpoint.call_many([b"x"]),
            lambda: endpoint.call_view(b"x"),
            lambda: endpoint.start(b"x"),
            lambda: endpoint.info(),
            lambda: endpoint.stats(),
            lambda: endpoint.join(b"x"),
            lambda: endpoint.reserve(10),
        ):
            with pytest.raises(copyrpc.Closed, match="closed"):
                use()
        assert endpoint.receive() is None
        endpoint.disconnect()  # it is over already
        endpoint.serve(lambda request: None)  # returns
        assert "closed" in repr(endpoint)
        with pytest.raises(ValueError):  # as a closed file
            endpoint.call(b"x")


def test_a_closed_context_raises(server):
    context = copyrpc.Context()
    endpoint = context.connect(server.address)
    listener = context.listen("*:0")
    context.close()
    ops, completions = copyrpc.OpArray(1), copyrpc.CompletionArray(1)
    for use in (
        lambda: endpoint.call(b"x"),
        lambda: endpoint.call_many([b"x"]),
        lambda: context.connect(server.address),
        lambda: context.listen("*:0"),
        lambda: context.blob(),
        lambda: context.register(bytearray(10)),
        lambda: context.submit(ops),
        lambda: context.poll(completions),
        lambda: context.wait(0),
        lambda: context.info(),
        lambda: context.stats(),
        lambda: context.log(),
        lambda: context.fileno(),
        lambda: context.arm(),
        lambda: listener.receive(),
        lambda: listener.counts(),
        lambda: listener.next_connection(),
        lambda: endpoint.reserve(10),
        lambda: endpoint.info(),
        lambda: endpoint.disconnect(),
    ):
        with pytest.raises(copyrpc.Closed, match="closed"):
            use()
    listener.serve(lambda request: None)  # returns, as when it is closed while it serves


def test_a_closed_listener(address):
    with copyrpc.Context() as context, copyrpc.Context() as other:
        listener = context.listen(address, auto_accept=False)
        _, connection = asking(other, listener)
        listener.close()
        assert listener.next_connection() is None and listener.receive() is None
        listener.serve(lambda request: None)  # returns
        for use in (connection.accept, connection.reject, listener.counts):
            with pytest.raises(copyrpc.Closed):
                use()


def test_a_request_of_a_closed_context(silent):
    with copyrpc.Context() as context:
        context.connect(silent.address).start(b"x")
        (request,) = silent.wait_for(1)
    for _ in range(1200):  # until the peer's end is heard of
        if request.endpoint.error is not None:
            break
        time.sleep(0.05)
    for use in (lambda: request.reply(b"y"), request.drop, lambda: request.reserve(10)):
        with pytest.raises(copyrpc.Disconnected):
            use()
    silent.context.close()
    for use in (lambda: request.reply(b"y"), request.drop, lambda: request.reserve(10)):
        with pytest.raises(copyrpc.Closed, match="closed"):
            use()
    silent.thread.join(60)
    assert isinstance(silent.error, copyrpc.Closed)
    silent.error = None  # meant, and none that its close has to raise


def test_closing_an_endpoint_ends_its_calls(silent, waiting):
    call = waiting.start(b"x")
    silent.wait_for(1)
    waiting.close()
    with pytest.raises(copyrpc.Closed):
        call.result(60)


def test_closing_a_context_ends_its_calls(silent):
    context = copyrpc.Context()
    call = context.connect(silent.address).start(b"x")
    silent.wait_for(1)
    context.close()
    assert call.done()
    with pytest.raises(copyrpc.Closed):
        call.result()


def test_closing_in_another_thread_ends_a_waiting_call(silent):
    context = copyrpc.Context()
    endpoint = context.connect(silent.address)
    threading.Timer(0.2, context.close).start()
    with pytest.raises(copyrpc.Closed):
        endpoint.call(b"x")


def test_stopping_serve(address):
    with copyrpc.Context() as context, context.listen(address) as listener:
        threading.Timer(0.1, listener.stop).start()
        listener.serve(lambda request: None)  # returns
        threading.Timer(0.1, listener.close).start()
        listener.serve(lambda request: None)


def test_an_unclosed_context_warns():
    context = copyrpc.Context()
    descriptor = context.fileno()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del context
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    with pytest.raises(OSError):
        os.fstat(descriptor)


def in_child(action):
    """What action() gives, or raises, in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_a_forked_child_raises(server):
    with copyrpc.Context() as context:
        endpoint = context.connect(server.address)
        pending = endpoint.start(b"pending")
        for action in (
            lambda: endpoint.call(b"x"),
            lambda: endpoint.call_many([b"x"]),
            lambda: pending.result(),
            lambda: context.info(),
            lambda: context.connect(server.address),
            lambda: endpoint.serve(lambda request: None),
            lambda: server.listener.receive(),  # a thread that the child does not have may hold its lock
        ):
            assert "Forked: " in (text := in_child(action)) or text == "b'pending'", text
        assert in_child(lambda: (endpoint.close(), context.close(), server.context.close())) == "(None, None, None)"
        assert endpoint.call(b"the parent goes on") == b"the parent goes on"
        assert pending.result() == b"pending"


def test_a_program_that_is_started_does_not_mind(endpoint):
    assert subprocess.run([sys.executable, "-c", "print('hello')"], stdout=subprocess.PIPE, check=True).stdout == b"hello\n"
    assert endpoint.call(b"x") == b"x"


# ---- Views ----


def serve_until_end(listener, client):
    """Serves nothing but what the thread `client` needs to come to its end."""
    ending = threading.Thread(target=lambda: (client.join(60), listener.stop()))
    ending.start()
    listener.serve(lambda request: None)
    ending.join(60)
    assert not client.is_alive()


def one_request(address, use):
    """A server in this thread, a client in another; use(context, request) is what the server does."""
    with copyrpc.Context() as context:
        listener = context.listen(address)
        results = []

        def client():
            with copyrpc.connect(address) as endpoint:
                results.append(endpoint.call(b"0123456789"))

        thread = threading.Thread(target=client)
        thread.start()
        try:
            request = listener.receive()
            use(context, request)
        finally:
            if not request.answered:
                request.reply(b"?")
            serve_until_end(listener, thread)  # the client takes leave
        return results[0]


def test_a_view_dies_with_its_release(address):
    def use(context, request):
        view = request.payload
        assert bytes(view) == b"0123456789" and view.readonly and len(request) == 10
        request.reply(view)
        request.release()
        with pytest.raises(ValueError):
            view[0]
        with pytest.raises(copyrpc.Closed, match="released"):
            request.payload
        request.release()

    assert one_request(address, use) == b"0123456789"


def test_a_view_dies_with_the_next_poll_and_a_copy_takes_its_place(address):
    def use(context, request):
        view = request.payload
        context.poll(copyrpc.CompletionArray(8))
        with pytest.raises(ValueError):
            view[0]
        assert bytes(request.payload) == b"0123456789"

    one_request(address, use)


def test_a_slice_of_a_view_holds_the_poll_up(address):
    def use(context, request):
        part = request.payload[2:4]
        with pytest.raises(BufferError, match="slice"):
            context.poll(copyrpc.CompletionArray(8))
        with pytest.raises(BufferError):
            context.close()
        assert bytes(part) == b"23"  # and not what the device has written since
        with pytest.raises(BufferError):
            request.release()
        part.release()
        request.release()
        context.poll(copyrpc.CompletionArray(8))

    one_request(address, use)


def test_an_array_on_a_view_holds_the_poll_up(address):
    numpy = pytest.importorskip("numpy")

    def use(context, request):
        array = numpy.frombuffer(request.payload, "u1")
        with pytest.raises(BufferError, match="array"):
            context.poll(copyrpc.CompletionArray(8))
        assert array[3] == ord("3")
        del array
        context.poll(copyrpc.CompletionArray(8))
        assert bytes(request.payload) == b"0123456789"

    one_request(address, use)


def test_what_is_behind_a_view_ends_with_it(address):
    def use(context, request):
        behind = request.payload.obj
        with pytest.raises(TypeError, match="read-only"):
            request.payload[:] = b"x" * 10
        other = memoryview(behind)
        with pytest.raises(BufferError, match="slice"):
            context.poll(copyrpc.CompletionArray(8))
        assert bytes(other) == b"0123456789"
        other.release()
        context.poll(copyrpc.CompletionArray(8))
        with pytest.raises(BufferError, match="ended"):
            memoryview(behind)

    one_request(address, use)


def test_a_handler_that_raises_with_a_slice_in_hand(server):
    """The traceback holds the handler's variables until it is gone; a cycle holds it longer."""

    def handler(request):
        part = request.payload[1:]
        assert len(part) == 6
        error = ValueError("with a slice")
        error.cycle = error
        raise error

    with copyrpc.Context() as context:
        listener = context.listen("*:0")
        answers = []

        def client():
            with copyrpc.connect(f"{server.address.split(':')[0]}:{listener.port}") as endpoint:
                for _ in range(3):
                    try:
                        endpoint.call(b"payload")
                    except copyrpc.RemoteError as error:
                        answers.append(error.message)
            listener.stop()

        thread = threading.Thread(target=client)
        thread.start()
        listener.serve(handler)
        thread.join(60)
    assert len(answers) == 3 and "with a slice" in answers[0]


def test_an_exception_that_is_no_error_ends_serve(server):
    """Ctrl-C in a handler: the request is let go, and nothing is left open."""

    def handler(request):
        raise KeyboardInterrupt

    with copyrpc.Context() as context, context.listen("*:0") as listener:
        outcome = []

        def client():
            with copyrpc.connect(f"{server.address.split(':')[0]}:{listener.port}") as endpoint:
                try:
                    endpoint.call(b"x", timeout=60)
                except copyrpc.CopyrpcError as error:
                    outcome.append(error)

        thread = threading.Thread(target=client)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            listener.serve(handler)
        serve_until_end(listener, thread)  # goes on
    assert [type(error) for error in outcome] == [copyrpc.Dropped]


def records_of(monkeypatch):
    """What is logged from now on."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("copyrpc")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [handler])
    return records


def test_the_traceback_of_a_handler_is_logged(endpoint, address, monkeypatch):
    records = records_of(monkeypatch)
    for _ in range(2):
        with pytest.raises(copyrpc.RemoteError, match="the handler's own trouble"):
            endpoint.call(b"x", method=FAIL)
    with pytest.raises(copyrpc.RemoteError):
        endpoint.call(b"x", method=STATUS)  # is an answer like others
    assert len(records) == 2
    text = logging.Formatter().format(records[0])
    assert "Traceback" in text and "in handle" in text and "ValueError: the handler's own trouble" in text


def test_a_handler_whose_own_call_fails_answers(address, monkeypatch):
    """That peer has gone; the one who asked is still there."""
    records = records_of(monkeypatch)
    with copyrpc.Context() as context, copyrpc.Context() as behind:
        listener = context.listen(address)
        far = behind.listen("*:0")
        host = address.rpartition(":")[0]
        serving_far = threading.Thread(target=far.serve, args=(lambda request: b"",))
        serving_far.start()
        backend = context.connect(f"{host}:{far.port}")
        far.stop()
        serving_far.join(60)
        behind.close()
        serving = threading.Thread(target=listener.serve, args=(lambda request: backend.call(b"x"),))
        serving.start()
        with copyrpc.connect(address) as endpoint:
            for _ in range(2):
                with pytest.raises(copyrpc.RemoteError, match="Disconnected"):
                    endpoint.call(b"x", timeout=60)
        listener.stop()
        serving.join(60)
        assert not serving.is_alive() and len(records) == 2


# ---- The interpreter's end ----

AT_EXIT = {
    "a call pending": "call = endpoint.start(b'x')",
    "many pending": "calls = [endpoint.start(b'x') for _ in range(50)]",
    "a thread in a call": """
import threading
threading.Thread(target=lambda: endpoint.call(b'x'), daemon=True).start()
time.sleep(0.3)""",
    "a coroutine in a call": """
import asyncio
async def main():
    task = asyncio.ensure_future(endpoint.acall(b'x'))
    await asyncio.sleep(0.2)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())""",
    "a slice of a view in hand": """
import threading
other = copyrpc.Context()
listener = other.listen('*:0', copyrpc.EndpointOptions(connect_timeout=60))
threading.Thread(target=lambda: listener.serve(lambda request: request.payload), daemon=True).start()
alone = copyrpc.Context()
where = f"{sys.argv[1].split(':')[0]}:{listener.port}"
reply = alone.connect(where, copyrpc.EndpointOptions(connect_timeout=60)).call_view(b'abc')
part = reply.payload[1:]
assert bytes(part) == b'bc'""",
    "a thread that serves": """
import threading
threading.Thread(target=lambda: context.listen('*:0').serve(lambda request: None), daemon=True).start()
time.sleep(0.3)""",
    "a reservation open": "room = endpoint.reserve(100); room.memory[:5] = b'hello'",
    "a slice of a reservation in hand": "room = endpoint.reserve(100); part = room.memory[1:]",
    "an exception": "call = endpoint.start(b'x'); raise SystemExit(0)",
}


@pytest.mark.parametrize("what", AT_EXIT, ids=list(AT_EXIT))
def test_the_interpreter_ends_with(silent, what):
    program = f"""
import copyrpc, sys, time
context = copyrpc.Context()
endpoint = context.connect(sys.argv[1], copyrpc.EndpointOptions(connect_timeout=60))
{AT_EXIT[what]}
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program, silent.address], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "Segmentation" not in done.stderr
    assert time.monotonic() - begun < 30


def test_a_signal_ends_a_waiting_call(silent):
    program = """
import copyrpc, sys
with copyrpc.connect(sys.argv[1], copyrpc.EndpointOptions(connect_timeout=60)) as endpoint:
    try:
        endpoint.call(b'x')
    except KeyboardInterrupt:
        print('interrupted', endpoint.info().calls_open)
"""
    with subprocess.Popen([sys.executable, "-c", program, silent.address], stdout=subprocess.PIPE, text=True) as process:
        try:
            silent.wait_for(1)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0] == "interrupted 0\n" and process.returncode == 0
        finally:
            process.kill()
