"""perf_server.py: the server's side of copyrpc-perf in Python, so that speeds compare: all requests of a poll are answered by one
submit. Method 0 is an echo; method 1 asks for as many bytes as the first four of the request say.

    perf_server.py [ADDRESS] [--handler]        *:7472 if no address is given

In arrays with numpy; with --handler by a function that is called for each request, as a program would begin."""
import signal
import struct
import sys

import copyrpc

SIZED = 1
COMPLETIONS = 1024
REFUSED = copyrpc.Status.OUT_OF_RANGE
RING_BYTES = 4 << 20


def handler(request):
    if request.method != SIZED or len(request) < 4:
        return request.payload if len(request) <= request.reply_bytes_max else refuse()
    (size,) = struct.unpack_from("<I", request.payload)
    return bytes(size) if size <= request.reply_bytes_max else refuse()


def refuse():
    raise copyrpc.RemoteError(REFUSED)


def serve_arrays(context, stopped):
    import numpy

    completions, replies = copyrpc.CompletionArray(COMPLETIONS), copyrpc.OpArray(COMPLETIONS)
    idle = 0
    while not stopped:
        count = context.poll(completions)
        if count == 0:
            idle += 1
            if idle > 1000:  # without anybody to answer there is no latency to spoil
                context.wait(0.5)
            continue
        idle = 0
        requests, ops = completions.array, replies.array[:count]
        payload = completions.gather()
        ops["opcode"] = copyrpc.OP_REPLY
        ops["flags"] = copyrpc.OP_QUIET
        ops["endpoint"] = requests["endpoint"]
        ops["token"] = requests["token"]
        ops["payload_bytes"] = requests["payload_bytes"]
        ops["payload_offset"] = numpy.frombuffer(completions.offsets, "u8")
        ops["status"] = 0
        sized = requests["method"] == SIZED
        if sized.any():
            payload = answer_sized(ops, payload, sized)
        too_long = ops["payload_bytes"] > requests["reply_bytes_max"]
        if too_long.any():
            ops["payload_bytes"][too_long] = 0
            ops["status"][too_long] = REFUSED
        send(context, replies, count, payload)


def answer_sized(ops, payload, sized):
    """Those that ask for a size: all of them share the zeros behind the gathered payloads."""
    sizes = [struct.unpack_from("<I", payload, offset)[0] for offset in ops["payload_offset"][sized]]
    ops["payload_bytes"][sized] = sizes
    ops["payload_offset"][sized] = len(payload)
    return bytes(payload) + bytes(max(sizes))


def send(context, replies, count, payload):
    sent = 0
    while sent < count:
        try:
            sent += context.submit(replies, count - sent, payload, first=sent)
        except copyrpc.CopyrpcError:
            sent += 1  # its client has gone, and will hear of that


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--handler"]
    by_handler = len(arguments) < len(sys.argv) - 1
    address = arguments[0] if arguments else "*:7472"
    stopped = []
    with copyrpc.Context() as context:
        listener = context.listen(address, copyrpc.EndpointOptions(ring_bytes=RING_BYTES, peer_ring_bytes_max=64 << 20), arrays=not by_handler)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: (stopped.append(True), listener.stop()))
        print(f"listening on {listener.address}", flush=True)
        if by_handler:
            listener.serve(handler)
        else:
            serve_arrays(context, stopped)


if __name__ == "__main__":
    try:
        main()
    except copyrpc.CopyrpcError as error:
        sys.exit(f"perf_server: {error}")
