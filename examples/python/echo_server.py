"""echo_server.py: answers every request with the request itself.

    echo_server.py [ADDRESS]        e.g. 10.99.0.1:7471, [fd10:99::1]:7471, *:7471 (the default)

One thread, any number of clients. The payload is a view of where the request arrived; reply() copies it to the send ring."""
import signal
import sys

import copyrpc


def echo(request):
    if len(request) > request.reply_bytes_max:
        # The client left no room for an answer this long: tell it so.
        raise copyrpc.RemoteError(copyrpc.Status.OUT_OF_RANGE)
    return request.payload


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "*:7471"
    # A ring of 1 MiB takes requests of up to half of it.
    with copyrpc.Context() as context, context.listen(address) as listener:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: listener.stop())
        print(f"listening on {listener.address}", flush=True)
        listener.serve(echo)


if __name__ == "__main__":
    try:
        main()
    except copyrpc.CopyrpcError as error:
        sys.exit(f"echo_server: {error}")
