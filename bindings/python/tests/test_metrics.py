"""What a context has counted, as Prometheus reads it."""
import http.server
import threading
import urllib.request

import pytest

import copyrpc


@pytest.fixture
def served(address):
    """A client and a server in a thread, each with metrics and a context of its own."""
    router = copyrpc.Router()
    router.add("metrics.echo", lambda request: bytes(request.payload))
    ready = threading.Event()
    made = []

    def run():
        with copyrpc.Context(metrics=True) as context:
            with context.listen(address) as listener:
                made.append((context, listener))
                ready.set()
                listener.serve(router)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    with copyrpc.Context(metrics=True) as context:
        yield context, context.connect(address)
    made[0][1].stop()
    thread.join(60)


def line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_calls_are_counted_and_served_over_http(served):
    context, endpoint = served
    for _ in range(3):
        assert endpoint.call(b"12345", method=copyrpc.method_number("metrics.echo")) == b"12345"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = context.metrics_text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
                text = answer.read().decode()
        finally:
            server.shutdown()
            thread.join(60)
    assert 'method="metrics.echo"} 3' in line_of(text, "copyrpc_client_started_total{")
    assert 'method="metrics.echo",status="OK",error=""} 3' in line_of(text, "copyrpc_client_handled_total{")
    assert line_of(text, "copyrpc_client_reply_bytes_total{").endswith(" 15")
    assert line_of(text, "copyrpc_client_handling_seconds_count{").endswith(" 3")
    assert "copyrpc_endpoint_" not in text
    assert "copyrpc_endpoint_calls_total" in context.metrics_text(endpoints=True)


def test_names_are_checked(served):
    context, _ = served
    with pytest.raises(TypeError):
        context.name_method(1, b"x")
    with pytest.raises(copyrpc.InvalidArgument):
        context.name_method(1, "")
    with pytest.raises(ValueError):
        context.name_method(1 << 16, "x")
