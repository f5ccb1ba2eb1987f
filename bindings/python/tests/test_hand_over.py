"""Peers that one listener hands over to others: contexts of other threads and event loops, which close meanwhile."""
import asyncio
import collections
import os
import queue
import subprocess
import threading

import pytest
from conftest import CONNECT_SECONDS, HOST, LARGE, STRICT_PYTHON, data

import copyrpc

# How to listen, and to begin to connect, for what each kind has.
Kind = collections.namedtuple("Kind", "of_context listen begin")
CALLS = Kind(
    {},
    lambda context, *place, **options: context.listen(*place, auto_accept=False, **options),
    lambda context, address, options=None: context._begin_connect(address, options, False),
)
CHANNELS = Kind(
    {"rails": True}, copyrpc.Context.listen_channels, lambda context, address, options=None: context._begin_channel(address, options)
)
QUEUES = Kind(
    {"queues": True}, copyrpc.Context.listen_queues, lambda context, address, options=None: context._begin_queue(address, options)
)
KINDS = {"calls": CALLS, "channels": CHANNELS, "queues": QUEUES}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def started(name, run, *arguments):
    """A thread. It is none that the program waits for, should a test fail."""
    thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def joined(*threads):
    for thread in threads:
        thread.join(CONNECT_SECONDS)
        assert not thread.is_alive(), f"{thread.name} does not come back"


def look(*contexts):
    for context in contexts:
        context.poll(copyrpc.CompletionArray(1))


def next_of(listener, *others):
    """The next peer of a listener, all in this thread."""
    while not listener._connections:
        look(listener._context, *others)
    return listener.next_connection()


@pytest.fixture(params=KINDS)
def trio(request, address):
    """A context that asks, and two with a listener each, the second without an address. All in this thread."""
    with Trio(KINDS[request.param], address) as trio:
        yield trio


@pytest.fixture
def calls(address):
    with Trio(CALLS, address) as trio:
        yield trio


class Trio:
    def __init__(self, kind, address):
        self.kind = kind
        self.client, self.front, self.back = (copyrpc.Context(**kind.of_context) for _ in range(3))
        self.listener = kind.listen(self.front, address)
        self.taker = kind.listen(self.back, None)

    def ask(self, options=None):
        """Both ends of what a peer asks for."""
        connection = self.kind.begin(self.client, self.listener.address, options)
        return connection, next_of(self.listener, self.client)

    def settle(self, connection):
        """Until it is connected, or refused."""
        while not connection._settled():
            look(self.client, *(context for context in (self.front, self.back) if not context.closed))
        return connection.error

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        for context in (self.client, self.front, self.back):
            context.close()


class Server:
    """A listener without an address, in a context and a thread of its own. It answers with its name."""

    def __init__(self, name):
        self.name = name
        made = queue.SimpleQueue()
        self.thread = started(name, self.run, made)
        self.listener = made.get()

    def run(self, made):
        with copyrpc.listen(None) as listener:
            made.put(listener)
            listener.serve(lambda request: self.name.encode())

    def close(self):
        self.listener.stop()
        joined(self.thread)


@pytest.fixture
def servers():
    servers = [Server(f"server {index}") for index in range(3)]
    yield servers
    for server in servers:
        server.close()


def test_peers_are_spread_over_threads(address, servers):
    """In turn, and what they have does not need the listener that they came to."""
    front = copyrpc.listen(address, spread=[server.listener for server in servers])
    serving = started("front", front.serve, lambda request: b"front")
    with copyrpc.Context() as context:
        clients = [context.connect(address) for _ in range(8)]
        names = [client.call(b"who?", timeout=60) for client in clients]
        assert names == [b"front", b"server 0", b"server 1", b"server 2"] * 2
        assert front.counts() == (8, 0) and [server.listener.counts() for server in servers] == [(2, 0)] * 3
        assert front.spread_error is None and len(front.endpoints) == 2
        front.stop()
        joined(serving)
        front.close()
        for client, name in zip(clients, names):
            if name != b"front":
                assert client.call(b"who?", timeout=60) == name


def test_who_is_closed_is_passed_over(address, servers):
    front = copyrpc.listen(address, spread=[server.listener for server in servers])
    servers[1].close()
    serving = started("front", front.serve, lambda request: b"front")
    with copyrpc.Context() as context:
        names = [context.connect(address).call(b"who?", timeout=60) for _ in range(6)]
        assert names == [b"front", b"server 0", b"server 2"] * 2
        assert isinstance(front.spread_error, copyrpc.Closed)
        servers[0].close()
        servers[2].close()
        assert [context.connect(address).call(b"who?", timeout=60) for _ in range(3)] == [b"front"] * 3
    front.stop()
    joined(serving)
    front.close()


@every_kind
def test_listeners_of_any_kind_spread(kind, address):
    contexts = [copyrpc.Context(**kind.of_context) for _ in range(3)]
    client, *others = contexts
    taker = kind.listen(others[1], None)
    listener = kind.listen(others[0], address, spread=[taker])
    ours = [kind.begin(client, listener.address) for _ in range(4)]
    for one in (listener, taker, listener, taker):
        request = next_of(one, *contexts)
        with one._context._use:
            request._accept(None)
    while not all(connection.connected for connection in ours):
        look(*contexts)
    assert listener.counts() == (4, 0) and taker.counts() == (2, 0)
    for context in contexts:
        context.close()


def test_a_peer_is_accepted_elsewhere(trio):
    ours, request = trio.ask()
    request.hand_over(trio.taker)
    trio.listener.close()
    taken = next_of(trio.taker, trio.client)
    assert type(taken) is type(request) and taken.peer_address == request.peer_address
    assert trio.taker.counts() == (1, 0)
    for late in (request.accept, request.reject, lambda: request.hand_over(trio.taker)):
        with pytest.raises(copyrpc.InvalidArgument, match="handed over before"):
            late()
    trio.front.close()
    with trio.back._use:
        theirs = taken._accept(None)
    assert trio.settle(ours) is None and theirs.context is trio.back


def test_what_the_peer_said_goes_along(calls):
    _, request = calls.ask(copyrpc.EndpointOptions(token=b"who I am"))
    request.hand_over(calls.taker)
    assert next_of(calls.taker).token == b"who I am"
    with Trio(QUEUES, f"{HOST}:0") as queues:
        _, request = queues.ask(copyrpc.QueueOptions(private_data=b"who I am"))
        request.hand_over(queues.taker)
        assert next_of(queues.taker).private_data == request.private_data and request.private_data.startswith(b"who I am")


def test_a_peer_is_rejected_elsewhere(trio):
    ours, request = trio.ask()
    request.hand_over(trio.taker)
    if trio.kind is QUEUES:
        next_of(trio.taker).reject(b"because")
        assert trio.settle(ours).private_data.startswith(b"because")
    else:
        next_of(trio.taker).reject(4711)
        assert "4711" in str(trio.settle(ours))
    assert isinstance(ours.error, copyrpc.Refused)


def test_a_peer_goes_to_and_fro(trio):
    """A listener with an address takes what is handed over, too."""
    ours, request = trio.ask()
    for _ in range(10):
        request.hand_over(trio.taker)
        request = next_of(trio.taker, trio.client)
        request.hand_over(trio.listener)
        request = next_of(trio.listener, trio.client)
    with trio.front._use:
        request._accept(None)
    assert trio.settle(ours) is None and trio.taker.counts() == (10, 0) and trio.listener.counts() == (1, 0)


def test_each_listener_has_its_own_options(address):
    """Who is handed over proves the key of the listener that takes it."""
    key, made = os.urandom(16), queue.SimpleQueue()

    def serve():
        with copyrpc.listen(None, copyrpc.EndpointOptions(key=key)) as listener:
            made.put(listener)
            listener.serve(lambda request: b"with the key")

    def front():
        with copyrpc.Context() as context, context.listen(address, auto_accept=False) as listener:
            made.put(listener)
            listener.next_connection().hand_over(taker)
            request = listener.next_connection()
            assert request.token == b"no key"
            request.accept()
            listener.serve(lambda request: b"without")

    serving = started("with the key", serve)
    taker = made.get()
    handing_over = started("front", front)
    listener = made.get()
    with copyrpc.connect(address, copyrpc.EndpointOptions(key=key)) as endpoint:
        assert endpoint.call(b"", timeout=60) == b"with the key"
    with copyrpc.connect(address, copyrpc.EndpointOptions(token=b"no key")) as endpoint:
        assert endpoint.call(b"", timeout=60) == b"without"
    listener.stop()
    taker.stop()
    joined(serving, handing_over)


# ---- Asleep, and in an event loop ----


class Loop:
    """An event loop in a thread. `main` gets its context."""

    def __init__(self, main, **options):
        self.error = None
        self.thread = started("loop", self.run, main, options)

    def run(self, main, options):
        async def within():
            with copyrpc.Context(**options) as context:
                await main(context)

        try:
            asyncio.run(within())
        except BaseException as error:
            self.error = error

    def close(self):
        joined(self.thread)
        if self.error is not None:
            raise self.error


def test_a_loop_takes_peers(address):
    """It has nothing else to do: the peer that is handed over wakes it."""
    made = queue.SimpleQueue()

    async def main(context):
        async def answer(request):
            return b"from the loop"

        with context.listen(None) as listener:
            made.put(listener)
            await listener.aserve(answer)

    loop = Loop(main)
    taker = made.get()
    with copyrpc.Context() as context, copyrpc.Context() as client, context.listen(address, spread=[taker]) as front:
        serving = started("front", front.serve, lambda request: b"front")
        for _ in range(5):
            assert client.connect(address).call(b"", timeout=60) == b"front"
            assert client.connect(address).call(b"", timeout=60) == b"from the loop"
        front.stop()
        joined(serving)
    taker.stop()
    loop.close()


@every_kind
def test_loops_hand_over_to_each_other(kind, address):
    """To and fro, until the first accepts."""
    hops, made, connected = 20, queue.SimpleQueue(), threading.Event()
    listeners = []

    async def pass_on(context, where, to):
        with kind.listen(context, where) as listener:
            listeners.append(listener)
            made.put(None)
            for _ in range(hops):
                (await listener.anext_connection()).hand_over(listeners[to])
            request = await listener.anext_connection()
            if request is not None:
                await request.aaccept()
                listeners[to].close()
                await asyncio.get_running_loop().run_in_executor(None, connected.wait, CONNECT_SECONDS)

    loops = []
    for index in range(2):
        loops.append(Loop(lambda context, index=index: pass_on(context, None if index else address, 1 - index), **kind.of_context))
        made.get()
    with copyrpc.Context(**kind.of_context) as client:
        ours = kind.begin(client, address)
        with client._use:
            ours._settle(0, "connect")
        connected.set()
        for loop in loops:
            loop.close()


def test_a_channel_in_another_thread(address):
    made = queue.SimpleQueue()

    def serve():
        with copyrpc.listen_channels(None) as listener:
            made.put(listener)
            with listener.accept() as channel:
                room = bytearray(LARGE)
                channel.receive(room)
                channel.send(room)

    def front():
        with copyrpc.listen_channels(address) as listener:
            made.put(None)
            listener.next_connection().hand_over(taker)

    serving = started("back", serve)
    taker = made.get()
    handing_over = started("front", front)
    made.get()
    with copyrpc.connect_channel(address) as channel:
        room = bytearray(LARGE)
        answer = channel.post_receive(room)
        channel.send(data(LARGE), timeout=60)
        assert answer.wait() == LARGE and room == data(LARGE)
    joined(serving, handing_over)


def test_a_queue_in_another_thread(address):
    made = queue.SimpleQueue()

    def serve():
        with copyrpc.Context(queues=True) as context, context.listen_queues(None, copyrpc.QueueOptions(receives=4)) as listener:
            made.put(listener)
            region = context.register(bytearray(4096), "local_write")
            queue_of_peer = listener.accept()
            made.put(queue_of_peer.receive(region[0:100]).size)
            queue_of_peer.drain(60)

    def front():
        with copyrpc.Context(queues=True) as context, context.listen_queues(address) as listener:
            made.put(None)
            listener.next_connection().hand_over(taker)

    serving = started("back", serve)
    taker = made.get()
    handing_over = started("front", front)
    made.get()
    with copyrpc.Context(queues=True) as context, context.queue_connect(address) as ours:
        ours.send(b"hello")
        assert made.get(timeout=60) == 5
    joined(serving, handing_over)


# ---- What cannot be ----


def test_what_cannot_be_handed_over(trio):
    """After each exception, the peer still can be accepted."""
    ours, request = trio.ask()
    with copyrpc.Context(rails=True, queues=True) as other:
        wrong = other.listen_queues(None) if trio.kind is not QUEUES else other.listen_channels(None)
        for thing in (None, trio.back, "listener", wrong):
            with pytest.raises(TypeError, match=f"{type(trio.listener).__name__} .* not to {type(thing).__name__}"):
                request.hand_over(thing)
        gone = trio.kind.listen(other, None)
        gone.close()
        with pytest.raises(copyrpc.Closed, match="listener to hand over to"):
            request.hand_over(gone)
        gone = trio.kind.listen(other, None)
    with pytest.raises(copyrpc.Closed, match="context to hand over to"):
        request.hand_over(gone)
    same = trio.kind.listen(trio.front, None)
    for listener in (same, trio.listener):
        with pytest.raises(copyrpc.InvalidArgument, match="this context's already"):
            request.hand_over(listener)
    with trio.front._use:
        request._accept(None)
    assert trio.settle(ours) is None
    with pytest.raises(copyrpc.InvalidArgument, match="accepted"):
        request.hand_over(trio.taker)
    trio.front.close()
    with pytest.raises(copyrpc.Closed, match="^the context is closed"):
        request.hand_over(trio.taker)


@every_kind
def test_whom_nobody_can_spread_to(kind, address):
    with copyrpc.Context(rails=True, queues=True) as context, copyrpc.Context(rails=True, queues=True) as other:
        wrong = other.listen_queues(None) if kind is not QUEUES else other.listen_channels(None)
        closed = kind.listen(other, None)
        closed.close()
        for spread, error in (
            ([wrong], TypeError),
            ([None], TypeError),
            (wrong, TypeError),
            ([kind.listen(context, None)], copyrpc.InvalidArgument),
            ([closed], copyrpc.Closed),
        ):
            with pytest.raises(error):
                kind.listen(context, address, spread=spread)
        taker = kind.listen(other, None)
        other.close()
        with pytest.raises(copyrpc.Closed, match="context to hand over to"):
            kind.listen(context, address, spread=[taker])
        kind.listen(context, address).close()  # none of them has it


@every_kind
def test_a_listener_without_an_address(kind):
    with copyrpc.Context(**kind.of_context) as context:
        listener = kind.listen(context, None)
        assert (listener.address, listener.port, listener.counts()) == ("", 0, (0, 0)) and "without an address" in repr(listener)
        with pytest.raises(copyrpc.Timeout):
            listener.next_connection(0.001)
        with pytest.raises(copyrpc.InvalidArgument, match="backlog"):
            kind.listen(context, None, backlog=5)
        listener.close()
        listener.close()
        assert "closed" in repr(listener) and listener.next_connection() is None


def test_contexts_that_lack_what_it_needs():
    with copyrpc.Context() as context:
        with pytest.raises(copyrpc.InvalidArgument, match="no rails"):
            context.listen_channels(None)
        with pytest.raises(copyrpc.InvalidArgument, match="no queues"):
            context.listen_queues(None)


# ---- Ends ----


@pytest.mark.parametrize("closed", ["taker", "back"])
def test_a_listener_or_context_that_closes_rejects_what_was_handed_over(trio, closed):
    """What its next_connection would return, and what its context has not even looked at."""
    known, request = trio.ask()
    request.hand_over(trio.taker)
    while not trio.taker._connections:
        look(trio.back)
    unknown, request = trio.ask()
    request.hand_over(trio.taker)
    getattr(trio, closed).close()
    assert isinstance(trio.settle(known), copyrpc.Refused) and isinstance(trio.settle(unknown), copyrpc.Refused)


def test_so_many_wait_and_no_more(address):
    """Then the listener that spreads keeps the peers, and who hands over by hand is told."""
    wait_max = 128
    with copyrpc.Context() as client, copyrpc.Context() as context, copyrpc.Context() as other:
        full = other.listen(None, auto_accept=False)
        listener = context.listen(address, auto_accept=False)
        for _ in range(wait_max):
            client._begin_connect(address, None, False)
            next_of(listener, client).hand_over(full)
        client._begin_connect(address, None, False)
        request = next_of(listener, client)
        with pytest.raises(copyrpc.NoResource, match="128"):
            request.hand_over(full)
        request.reject()
        listener.close()
        listener = context.listen(address, auto_accept=False, spread=[full])
        for _ in range(2):
            client._begin_connect(address, None, False)
            next_of(listener, client).reject()
        assert isinstance(listener.spread_error, copyrpc.NoResource)
        while len(full._connections) < wait_max:
            look(other)
        full.next_connection().reject()
        for _ in range(2):
            client._begin_connect(address, None, False)
        next_of(listener, client).reject()
        while len(full._connections) < wait_max:
            look(client, context, other)


def test_two_that_hand_over_to_each_other(address):
    """Hundreds of times, from two threads: neither waits for the other, which waits for it."""
    hops, peers = 400, 6
    contexts = [copyrpc.Context() for _ in range(2)]
    listeners = [contexts[0].listen(address, auto_accept=False), contexts[1].listen(None, auto_accept=False)]
    taken, wrong = [0, 0], []

    def work(index):
        try:
            while True:
                request = listeners[index].next_connection()
                if request is None:
                    return
                if taken[index] < hops:
                    taken[index] += 1
                    request.hand_over(listeners[1 - index])
                else:
                    request.reject(taken[index])
        except BaseException as error:
            wrong.append(error)

    threads = [started(f"thread {index}", work, index) for index in range(2)]
    with copyrpc.Context() as client:
        ours = [client._begin_connect(address, None, False) for _ in range(peers)]
        for connection in ours:
            with pytest.raises(copyrpc.Refused, match=str(hops)), client._use:
                connection._settle(0, "connect")
    for listener in listeners:
        listener.close()
    joined(*threads)
    for context in contexts:
        context.close()
    assert not wrong and max(taken) == hops and min(taken) >= hops - peers


def test_contexts_that_close_while_they_hand_over_to_each_other():
    """Each has a peer for the other, and both close: a peer is refused by whoever has it, or by the context that could not take it."""
    refused = 0
    for _ in range(25):
        with copyrpc.Context() as client:
            contexts = [copyrpc.Context() for _ in range(2)]
            listeners = [context.listen(f"{HOST}:0", auto_accept=False) for context in contexts]
            ours = [client._begin_connect(listener.address, None, False) for listener in listeners]
            requests = [next_of(listener, client) for listener in listeners]
            together, wrong = threading.Barrier(2), []

            def work(index, contexts=contexts, listeners=listeners, requests=requests, together=together, wrong=wrong):
                try:
                    together.wait()
                    try:
                        requests[index].hand_over(listeners[1 - index])
                    except copyrpc.Closed:
                        requests[index].reject()
                    contexts[index].close()
                except BaseException as error:
                    wrong.append(error)

            threads = [started(f"thread {index}", work, index) for index in range(2)]
            joined(*threads)
            assert not wrong
            for connection in ours:
                while not connection._settled():
                    look(client)
                refused += isinstance(connection.error, copyrpc.Refused)
    assert refused == 50


def test_closing_waits_for_who_hands_over_to_it(calls):
    """That has the library's pointer until then."""
    with calls.back._visit as pointer:
        closing = started("closing", calls.back.close)
        while not calls.back._visit_lock.contenders:
            assert closing.is_alive()
        assert calls.back.closed and calls.back._holder[0] == pointer
    joined(closing)
    assert not calls.back._holder[0]


def test_a_child_of_fork_hands_nothing_over(calls):
    _, request = calls.ask()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            request.hand_over(calls.taker)
        except copyrpc.Forked:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    request.hand_over(calls.taker)


def test_documentation():
    """The section's program, as it is printed."""
    with open(os.path.join(os.environ["TEST_SOURCE"], "docs/python.md")) as file:
        section = file.read().split("## Servers with several threads")[1].split("\n## ")[0]
    for part in section.split("```python")[1:]:
        done = subprocess.run([*STRICT_PYTHON, "-c", part.split("```")[0]], stdout=subprocess.PIPE, text=True, timeout=60)
        told = [line.split("# ")[-1] for line in part.split("```")[0].splitlines() if line.strip().startswith("print(")]
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == sorted(told) != []
