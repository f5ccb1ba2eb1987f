"""What an endpoint has done last."""
import re
import threading

import pytest

import copyrpc


def serve_once(listener):
    listener.serve(lambda request: b"good")


@pytest.fixture
def client(address):
    with copyrpc.Context() as context, context.listen(address) as listener:
        thread = threading.Thread(target=serve_once, args=(listener,))
        thread.start()
        with copyrpc.Context(flight_records=8, log_level="warning") as mine:
            yield mine, mine.connect(address), listener
        listener.stop()
        thread.join(60)


def test_the_last_calls_can_be_read(client):
    _, endpoint, _ = client
    for _ in range(20):
        endpoint.call(b"12", method=7)
    lines = endpoint.flight_records().splitlines()
    assert len(lines) == 8
    assert re.fullmatch(r"-\d+\.\d{3} ms call user_data 0x\w+, method 7, 2 bytes", lines[-2])
    assert re.fullmatch(r"-\d+\.\d{3} ms RESPONSE user_data 0x\w+, method 7, 4 bytes, status 0", lines[-1])


def test_without_them_it_says_so(client):
    _, endpoint, listener = client
    with copyrpc.Context() as mine, pytest.raises(copyrpc.CopyrpcError, match="E_STATE|state"):
        mine.connect(listener.address).flight_records()
