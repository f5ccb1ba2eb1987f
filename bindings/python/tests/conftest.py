"""conftest.py: a server to talk to, in a thread of this process, channels, queues, lanes, and ports that no two tests share."""
import asyncio
import dataclasses
import faulthandler
import itertools
import os
import sys
import threading
import warnings

import pytest

import copyrpc

faulthandler.enable()
HOST = os.environ.get("TEST_ADDRESS", "127.0.0.1")
_ports = itertools.count(21000)

STATUS, FAIL, DROP, SIZED, KEEP, METHOD = 1, 2, 3, 4, 5, 6
CONNECT_SECONDS = 60  # ends a hang, and means nothing else
# For what the documents print. A Python without a GIL warns that the package has turned it on, as docs/python.md says.
STRICT_PYTHON = (sys.executable, "-W", "error", "-W", "ignore:The global interpreter lock:RuntimeWarning")


def be_patient(options):
    """Has connecting take as long as a busy machine needs, where a test gives no limit of its own; the default, 5 s, is for users."""
    made = options.__init__
    names = [field.name for field in dataclasses.fields(options)]
    values = dict(zip(names, made.__defaults__), connect_timeout=CONNECT_SECONDS)
    made.__defaults__ = tuple(values[name] for name in names)


def pytest_configure(config):
    # A context that nobody closed is a mistake of a test.
    warnings.simplefilter("error", ResourceWarning)
    be_patient(copyrpc.EndpointOptions)
    be_patient(copyrpc.ChannelOptions)
    be_patient(copyrpc.QueueOptions)


@pytest.fixture
def address():
    return f"{HOST}:{next(_ports)}"


async def until(condition):
    """Waits for what the pump or a peer will do."""
    while not condition():
        await asyncio.sleep(0.001)


class Serving:
    """A listener, and a thread that does with it what `run` says, which ends when the listener is stopped."""

    def __init__(self, where, options=None, **context_options):
        self.context = copyrpc.Context(**context_options)
        self.listener = self.context.listen(where, options)
        self.address = self.listener.address
        self.error = None
        self.thread = threading.Thread(target=self.guarded_run, name=type(self).__name__)
        self.thread.start()

    def guarded_run(self):
        try:
            self.run()
        except BaseException as error:
            self.error = error

    def run(self):
        self.listener.serve(self.handle)

    def close(self):
        """Raises what has ended the thread before."""
        self.listener.stop()
        self.thread.join(60)
        assert not self.thread.is_alive(), f"{self.thread.name} does not stop"
        self.context.close()
        if self.error is not None:
            raise self.error


class Server(Serving):
    """Echoes; other methods do what their names say."""

    def __init__(self, where, **context_options):
        self.seen = 0
        super().__init__(where, **context_options)

    def handle(self, request):
        self.seen += 1
        if request.method == STATUS:
            raise copyrpc.RemoteError(7, bytes(request.payload))
        if request.method == FAIL:
            raise ValueError("the handler's own trouble: \u00fc")
        if request.method == DROP:
            request.drop()
            return None
        if request.method == SIZED:
            return bytes(int(bytes(request.payload)))
        if request.method == METHOD:
            return b"%d" % request.method
        return request.payload


@pytest.fixture
def server(address):
    server = Server(address)
    yield server
    server.close()


@pytest.fixture
def endpoint(server):
    with copyrpc.connect(server.address) as endpoint:
        yield endpoint


class Silent(Serving):
    """A peer that accepts and takes requests, and answers when it is told to."""

    def __init__(self, where, **options):
        self.requests = []
        self.lock = threading.Lock()
        super().__init__(where, copyrpc.EndpointOptions(**options))

    def run(self):
        while True:
            request = self.listener.receive()
            if request is None:
                return
            with self.lock:
                self.requests.append(request)

    def wait_for(self, count):
        """The first `count` requests, once they are there."""
        for _ in range(12000):  # a minute, which ends a hang
            with self.lock:
                if len(self.requests) >= count:
                    return list(self.requests)
            threading.Event().wait(0.005)
        raise AssertionError(f"{count} requests did not come, but {len(self.requests)}")


@pytest.fixture
def silent(address):
    silent = Silent(address)
    yield silent
    silent.close()


@pytest.fixture
def waiting(silent):
    with copyrpc.Context() as context:
        yield context.connect(silent.address)


def asking(context, listener):
    """A connection that `context` has asked for, at a listener in this thread: (endpoint, ConnectionRequest)."""
    endpoint = context._begin_connect(listener.address, None, False)
    while True:
        context.poll(copyrpc.CompletionArray(1))
        try:
            return endpoint, listener.next_connection(0.01)
        except copyrpc.Timeout:
            pass


# ---- Channels ----

LARGE = 300_000


def data(size, seed=1):
    return bytes((seed * 31 + index * 7) & 0xFF for index in range(251)) * (size // 251) + bytes(size % 251)


def channels_in(context, listener, options=None):
    """Both ends in one context, so one thread serves both."""
    left = context._begin_channel(listener.address, options)
    right = listener.accept(timeout=CONNECT_SECONDS)
    with context._use:
        left._settle(0, "connect")
    return left, right


@pytest.fixture
def context():
    with copyrpc.Context(rails=True) as context:
        yield context


@pytest.fixture
def pair(context, address):
    with context.listen_channels(address) as listener:
        yield channels_in(context, listener)
    registrations = context.cache_info().registrations
    assert registrations == 0 or context._channels, "what is done with is registered still"


# ---- Queues ----

ALL_RIGHTS = ("local_write", "remote_write", "remote_read", "remote_atomic")


def queues_in(context, listener, options=None, others=None):
    """Both ends in one context, so one thread serves both."""
    left = context._begin_queue(listener.address, options)
    right = listener.next_connection(CONNECT_SECONDS).accept(others, timeout=CONNECT_SECONDS)
    with context._use:
        left._settle(0, "connect")
    return left, right


@pytest.fixture
def queue_context():
    with copyrpc.Context(queues=True) as context:
        yield context
        assert not context._works


@pytest.fixture
def queue_pair(queue_context, address):
    options = copyrpc.QueueOptions(sends=64, receives=64, send_pieces=4, receive_pieces=4)
    with queue_context.listen_queues(address, options) as listener:
        yield queues_in(queue_context, listener, options)


@pytest.fixture
def region(queue_context):
    """1 MiB of a queue_context's, of which all peers may do what they like."""
    return queue_context.register(bytearray(1 << 20), *ALL_RIGHTS)


# ---- Lanes ----

LANE = copyrpc.EndpointOptions(lane=True)


def endpoints_in(context, where, options=LANE, others=LANE):
    """Both ends in one context, so one thread serves both."""
    with context.listen(where, auto_accept=False) as listener:
        left = context._begin_connect(listener.address, options, False)
        right = listener.next_connection(CONNECT_SECONDS).accept(others, timeout=CONNECT_SECONDS)
        with context._use:
            left._settle(0, "connect")
    return left, right


@pytest.fixture
def lane_context():
    with copyrpc.Context() as context:
        yield context
        assert not context._works


@pytest.fixture
def lane_pair(lane_context, address):
    return endpoints_in(lane_context, address)


@pytest.fixture
def place(lane_context):
    """1 MiB that no peer may touch unless it is granted."""
    return lane_context.register(bytearray(1 << 20), "local_write")
