"""Threads: several on one context, each on its own, and the GIL let go while one waits."""
import threading
import time

import pytest

import copyrpc


def together(count, work):
    """Runs work(index) in `count` threads; raises what they raised."""
    errors = []

    def run(index):
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread does not come back"
    if errors:
        raise errors[0]


def test_threads_share_an_endpoint(endpoint):
    def work(index):
        for number in range(100):
            request = b"%d/%d" % (index, number)
            assert endpoint.call(request, timeout=60) == request

    together(6, work)
    assert endpoint.stats().calls == 600


def test_threads_with_lists(endpoint):
    def work(index):
        for number in range(10):
            requests = [b"%d/%d/%d" % (index, number, item) for item in range(100)]
            assert endpoint.call_many(requests, timeout=60) == requests

    together(4, work)


def test_threads_with_arrays_and_calls(endpoint):
    """One thread polls an array while others call."""
    context = endpoint.context

    def work(index):
        if index:
            for number in range(50):
                request = b"%d/%d" % (index, number)
                assert endpoint.call(request, timeout=60) == request
            return
        ops, completions = copyrpc.OpArray(50), copyrpc.CompletionArray(50)
        ops.fill_calls(endpoint, request_bytes=2, reply_bytes_max=2)
        for _ in range(10):
            left = context.submit(ops, payload=bytes(range(100)))
            assert left == 50
            while left:
                count = context.poll(completions)
                for place, completion in enumerate(completions):
                    number = completion.user_data * 2
                    assert completion.status == 0 and bytes(completions.payload(place)) == bytes([number, number + 1])
                left -= count
                if not count:
                    context.wait(0.05)

    together(3, work)


def test_threads_with_connections_of_their_own(server):
    def work(index):
        with copyrpc.connect(server.address) as endpoint:
            for number in range(50):
                assert endpoint.call(b"%d" % number, timeout=60) == b"%d" % number

    together(4, work)


def test_threads_connect_in_one_context(server):
    with copyrpc.Context() as context:

        def work(index):
            for _ in range(5):
                with context.connect(server.address, timeout=60) as endpoint:
                    assert endpoint.call(b"x", timeout=60) == b"x"

        together(4, work)


def test_servers_share_a_listener(address):
    with copyrpc.Context() as context:
        listener = context.listen(address)
        names = set()

        def serve(index):
            def handler(request):
                names.add(index)
                time.sleep(0.001)
                return request.payload

            while not stopping:
                listener.serve(handler)

        stopping = []
        servers = [threading.Thread(target=serve, args=(index,)) for index in range(3)]
        for thread in servers:
            thread.start()
        with copyrpc.connect(address) as endpoint:
            assert endpoint.call_many([b"%d" % index for index in range(300)]) == [b"%d" % index for index in range(300)]
        stopping.append(True)
        listener.close()
        for thread in servers:
            thread.join(60)
            assert not thread.is_alive()
        assert names


def counted_while(wait):
    """How far another thread counts meanwhile, as a part of how far it comes alone."""
    progress = [0]
    stop = []

    def count():
        while not stop:
            progress[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = progress[0]
    wait()
    during = progress[0] - before
    stop.append(True)
    thread.join()
    return during


def test_the_gil_is_let_go_while_a_call_waits(waiting):
    """A thread that computes gets as far while another waits for an answer as while it sleeps."""

    def call():
        with pytest.raises(copyrpc.Timeout):
            waiting.call(b"x", timeout=0.5)

    asleep = max(counted_while(lambda: time.sleep(0.5)) for _ in range(2))
    calling = max(counted_while(call) for _ in range(3))
    assert calling > asleep * 0.1, (calling, asleep)  # with the GIL held it would be next to nothing


def test_the_gil_is_let_go_while_waiting_for_requests_and_events(endpoint):
    def receive():
        with pytest.raises(copyrpc.Timeout):
            endpoint.receive(0.5)

    asleep = max(counted_while(lambda: time.sleep(0.5)) for _ in range(2))
    for wait in (receive, lambda: endpoint.context.wait(0.5)):
        assert max(counted_while(wait) for _ in range(3)) > asleep * 0.1
    endpoint.context.poll(copyrpc.CompletionArray(8))


def test_followers_time_out_on_their_own(waiting):
    """While one thread leads, the deadlines of others hold."""

    def work(index):
        begun = time.monotonic()
        with pytest.raises(copyrpc.Timeout):
            if index:
                waiting.receive(0.1 * index)
            else:
                waiting.call(b"x", timeout=0.6)
        assert time.monotonic() - begun < 20

    together(4, work)


def test_the_leader_hands_on(silent, waiting):
    """The thread that polls has its answer first; another must take over."""
    results = {}

    def work(index):
        results[index] = waiting.call(b"%d" % index, timeout=60)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for request in sorted(silent.wait_for(5), key=lambda request: bytes(request.payload)):
        request.reply(request.payload)
        time.sleep(0.05)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert results == {index: b"%d" % index for index in range(5)}


def test_a_busy_thread_does_not_starve_others(server, endpoint):
    """One thread's lists keep the context busy; others' calls do not each wait for the end of a list."""
    requests = [b"x" * 32] * 100000
    other = endpoint.context.connect(server.address)  # with room of its own
    calls, done, lists = 50, [], 0
    busy = threading.Event()

    def work(index):
        nonlocal lists
        if index == 0:
            while len(done) < 2:
                busy.set()
                assert len(endpoint.call_many(requests, reply_bytes_max=32, timeout=120)) == len(requests)
                lists += 1
        else:
            assert busy.wait(60)
            for _ in range(calls):
                other.call(b"y", timeout=120)
            done.append(index)

    together(3, work)
    assert lists < calls / 2, lists


def test_stopping_a_busy_server(address):
    """stop() ends serve() also while requests never run out."""
    with copyrpc.Context() as context:
        listener = context.listen(address)
        ended = []

        def client():
            with copyrpc.connect(address) as endpoint:
                while not ended:
                    endpoint.call_many([b"x"] * 200, reply_bytes_max=8, timeout=1.0, return_exceptions=True)

        thread = threading.Thread(target=client)
        thread.start()
        threading.Timer(0.3, listener.stop).start()
        begun = time.monotonic()
        listener.serve(lambda request: None)
        assert time.monotonic() - begun < 10
        ended.append(True)
        threading.Timer(2.0, listener.stop).start()
        listener.serve(lambda request: None)
        thread.join(30)
        assert not thread.is_alive()
