"""Keys: who knows it gets in, for calls and for channels, and everybody else hears why not."""
import threading

import pytest

import copyrpc

KEY, OTHER = bytes(range(1, 33)), bytes(range(33, 65))


def serve_with(address, key):
    """A server in a thread that answers with what it is sent."""
    listener = copyrpc.listen(address, copyrpc.EndpointOptions(key=key))
    thread = threading.Thread(target=listener.serve, args=(lambda request: request.payload,))
    thread.start()
    return listener, thread


@pytest.fixture
def guarded(address):
    listener, thread = serve_with(address, KEY)
    yield listener.address
    listener.stop()
    thread.join(60)
    listener.close()


def test_the_same_key(guarded):
    with copyrpc.connect(guarded, copyrpc.EndpointOptions(key=KEY)) as endpoint:
        assert endpoint.call(b"hello") == b"hello"


@pytest.mark.parametrize("key", [OTHER, KEY[:31], KEY + b"\0", b""])
def test_another_key_or_none(guarded, key):
    with pytest.raises(copyrpc.WrongKey) as caught:
        copyrpc.connect(guarded, copyrpc.EndpointOptions(key=key))
    assert "key" in str(caught.value) and isinstance(caught.value, copyrpc.Refused)
    with copyrpc.connect(guarded, copyrpc.EndpointOptions(key=KEY)) as endpoint:  # the server goes on
        assert endpoint.call(b"again") == b"again"


def test_a_server_without_the_key(address):
    listener, thread = serve_with(address, b"")
    with pytest.raises(copyrpc.WrongKey):
        copyrpc.connect(listener.address, copyrpc.EndpointOptions(key=KEY))
    listener.stop()
    thread.join(60)
    listener.close()


def test_the_token_tells_whose_key_it_is(address):
    keys = {b"ann": KEY, b"bob": OTHER}

    def accept_all(listener):
        while (request := listener.next_connection()) is not None:
            try:
                request.accept(copyrpc.EndpointOptions(key=keys[request.token]))
            except copyrpc.CopyrpcError:  # another key; or the peer has closed already
                pass

    with copyrpc.Context() as context, context.listen(address, auto_accept=False) as listener:
        thread = threading.Thread(target=accept_all, args=(listener,))
        thread.start()
        for name, key in keys.items():
            copyrpc.connect(listener.address, copyrpc.EndpointOptions(key=key, token=name)).close()
        with pytest.raises(copyrpc.WrongKey):
            copyrpc.connect(listener.address, copyrpc.EndpointOptions(key=keys[b"bob"], token=b"ann"))
        listener.close()
        thread.join(60)


def test_channels(address):
    outcome = []

    def accept(listener):
        for _ in range(2):
            try:
                outcome.append(listener.accept().receive(bytearray(16)))
            except copyrpc.WrongKey:
                outcome.append(None)

    with copyrpc.listen_channels(address, copyrpc.ChannelOptions(key=KEY)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        with copyrpc.connect_channel(listener.address, copyrpc.ChannelOptions(key=KEY)) as channel:
            channel.send(b"secret")
        with pytest.raises(copyrpc.WrongKey):
            copyrpc.connect_channel(listener.address, copyrpc.ChannelOptions(key=OTHER))
        thread.join(60)
    assert outcome == [6, None]


@pytest.mark.parametrize("options", [copyrpc.EndpointOptions, copyrpc.ChannelOptions])
def test_keys_that_are_none(address, options):
    connect = copyrpc.connect if options is copyrpc.EndpointOptions else copyrpc.connect_channel
    for key in (b"short", bytes(65)):
        with pytest.raises(ValueError, match="16 to 64"):
            connect(address, options(key=key))
    with pytest.raises(TypeError, match="bytes"):
        connect(address, options(key="a key that is text"))
    assert repr(KEY) not in repr(options(key=KEY))
