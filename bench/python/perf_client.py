"""perf_client.py: the client's side of copyrpc-perf in Python, so that speeds compare. Any server that echoes will do: copyrpc-perf
server, perf_server.py, echo_server.

    perf_client.py ADDRESS [-s BYTES] [-r BYTES] [-q CALLS] [-t SECONDS] [-n CALLS] [--form arrays|list|asyncio|simple] [--json]"""
import argparse
import asyncio
import json
import struct
import sys
import time

import copyrpc

SIZED = 1


class Client:
    """What all forms share: payloads, and a count of answers."""

    def __init__(self, options):
        self.options = options
        self.sized = options.reply_size is not None
        self.reply_bytes = options.reply_size if self.sized else options.size
        self.method = SIZED if self.sized else 0
        longest = max(options.size, self.reply_bytes)
        # Half of a ring is for requests and half for replies; each needs room for all that are open, and their headers.
        ring = 1 << max(16, (4 * options.depth * (longest + 64)).bit_length())
        self.endpoint_options = copyrpc.EndpointOptions(ring_bytes=min(ring, 64 << 20), peer_ring_bytes_max=64 << 20, calls_max=max(1024, options.depth))
        self.answered = self.wrong = 0

    def requests(self):
        """One for each call that is open: numbered, so that an answer can be told from another's."""
        size = self.options.size
        if self.sized:
            return [struct.pack("<I", self.reply_bytes) + bytes(size - 4)] * self.options.depth
        return [struct.pack("<I", number)[:size].ljust(size, b"\0") for number in range(self.options.depth)]

    def check(self, request, answer):
        if len(answer) == self.reply_bytes and (self.sized or answer == request):
            self.answered += 1
        else:
            self.wrong += 1

    def over(self):
        options = self.options
        if options.calls is not None:
            return self.answered + self.wrong >= options.calls
        return time.monotonic() >= self.end

    def begin(self, seconds):
        self.answered = self.wrong = 0
        self.end = time.monotonic() + seconds


def by_list(client, endpoint):
    requests = client.requests()
    while not client.over():
        answers = endpoint.call_many(requests, method=client.method, reply_bytes_max=client.reply_bytes)
        if not client.sized and answers == requests:
            client.answered += len(requests)
        else:
            for request, answer in zip(requests, answers):
                client.check(request, answer)


def by_simple(client, endpoint):
    request = client.requests()[0]
    while not client.over():
        client.check(request, endpoint.call(request, method=client.method, reply_bytes_max=client.reply_bytes))


def by_arrays(client, endpoint):
    """What came back is sent anew at once, so that `depth` calls are open all the time."""
    import numpy

    context, options = endpoint.context, client.options
    requests = numpy.frombuffer(b"".join(client.requests()), "u1")
    ops, completions = copyrpc.OpArray(options.depth), copyrpc.CompletionArray(options.depth)
    template = copyrpc.OpArray(options.depth)
    template.fill_calls(endpoint, request_bytes=options.size, reply_bytes_max=client.reply_bytes, method=client.method)
    free = numpy.arange(options.depth)  # user_data of calls to be made
    numbered = not client.sized and options.size >= 4
    opened = 0
    while True:
        if len(free) and not client.over():
            ops.array[: len(free)] = template.array[free]
            taken = context.submit(ops, len(free), requests)
            opened += taken
            free = free[taken:]
        elif opened == 0:
            return
        count = context.poll(completions)
        if count == 0:
            continue
        done = completions.array
        good = (done["status"] == 0) & (done["payload_bytes"] == client.reply_bytes)
        if numbered:
            payload = numpy.frombuffer(completions.gather(), "<u4")
            good &= payload[numpy.frombuffer(completions.offsets, "u8") // 4] == done["user_data"]
        right = int(good.sum())
        client.answered += right
        client.wrong += count - right
        opened -= count
        free = numpy.concatenate((free, done["user_data"].astype(int)))


async def by_asyncio(client, address):
    async def caller(endpoint, request):
        while not client.over():
            client.check(request, await endpoint.acall(request, method=client.method, reply_bytes_max=client.reply_bytes))

    async with copyrpc.Context() as context, await context.aconnect(address, client.endpoint_options) as endpoint:

        async def run(seconds):
            client.begin(seconds)
            begun = time.monotonic()
            await asyncio.gather(*(caller(endpoint, request) for request in client.requests()))
            return time.monotonic() - begun

        await warm_up(client, run)
        return await run(client.options.seconds), context.info()


async def warm_up(client, run):
    calls, client.options.calls = client.options.calls, None
    await run(client.options.warmup)
    client.options.calls = calls


def measure(client):
    options = client.options
    if options.form == "asyncio":
        return asyncio.run(by_asyncio(client, options.address))
    form = {"arrays": by_arrays, "list": by_list, "simple": by_simple}[options.form]
    with copyrpc.Context() as context, context.connect(options.address, client.endpoint_options) as endpoint:
        calls, options.calls = options.calls, None
        client.begin(options.warmup)
        form(client, endpoint)
        options.calls = calls
        client.begin(options.seconds)
        begun = time.monotonic()
        form(client, endpoint)
        return time.monotonic() - begun, context.info()


def main():
    parser = argparse.ArgumentParser(description="Measures calls over RDMA: how many a second.")
    parser.add_argument("address", metavar="ADDRESS")
    parser.add_argument("-s", "--size", type=int, default=32, help="bytes of a request; 32")
    parser.add_argument("-r", "--reply-size", type=int, help="bytes of a reply; as the request, echoed and checked")
    parser.add_argument("-q", "--depth", type=int, default=256, help="calls open at a time; 256")
    parser.add_argument("-t", "--time", dest="seconds", type=float, default=3.0, help="how long to measure; 3")
    parser.add_argument("-n", "--calls", type=int, help="how many calls to measure at least, instead of a time")
    parser.add_argument("--warmup", type=float, default=0.2, help="seconds of calls before the measurement; 0.2")
    parser.add_argument("--form", choices=["arrays", "list", "asyncio", "simple"], default="arrays")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.size < 0 or options.depth < 1 or (options.reply_size is not None and options.size < 4):
        parser.error("depth is 1 or more, sizes 0 or more; --reply-size needs requests of at least 4 bytes")
    client = Client(options)
    seconds, info = measure(client)
    rate = client.answered / seconds
    if options.json:
        result = {"device": info.device, "driver": info.driver_name, "language": "python", "form": options.form,
                  "request_bytes": options.size, "reply_bytes": client.reply_bytes, "depth": options.depth, "calls": client.answered,
                  "wrong": client.wrong, "seconds": round(seconds, 3), "calls_per_second": round(rate)}
        print(json.dumps(result))
    else:
        print(f"{info.driver_name} on {info.device}: {options.depth} calls of {options.size} B open, {options.form}")
        print(f"  rate     {rate:,.0f} calls/s ({client.answered} in {seconds:.2f} s, {client.wrong} wrong)")
    return 0 if client.answered and not client.wrong else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except copyrpc.CopyrpcError as error:
        sys.exit(f"perf_client: {error}")
