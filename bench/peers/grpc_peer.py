"""grpc_peer.py: gRPC's peer in Python: it makes the calls that copyrpc-perf makes, over TCP.

    grpc_peer.py server|client HOST PORT [--size BYTES] [--depth CALLS] [--connections N] [--time SECONDS | --calls N] [--warmup SECONDS]

The command line and the line of JSON are those of peer.h. A call is unary, and its message is the payload itself, without protobuf,
which would only add to it. gRPC's guide to performance names asyncio as the faster of its two ways in Python, so it is what both sides
use. A task makes one call after the other for each that is to be open."""
import argparse
import asyncio
import json
import signal
import sys
import time

import grpc
import grpc.aio

METHOD = "/peer.Echo/Call"
NUMBERED_BYTES_MAX = 65536  # larger payloads are all the same, as with copyrpc-perf
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # else channels to the same address share a connection
    ("grpc.http2.lookahead_bytes", 4 << 20),  # windows that large calls do not have to wait for
    ("grpc.server.max_pending_requests", 1 << 20),  # else it refuses some calls at random from 1000 open ones on
    ("grpc.server.max_pending_requests_hard_limit", 1 << 20),
]


async def serve(options):
    async def echo(request, _):
        return request

    server = grpc.aio.server(options=OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Echo", {"Call": handler}),))
    server.add_insecure_port(f"{options.host}:{options.port}")
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"listening on {options.host}:{options.port}", flush=True)
    await stop.wait()
    await server.stop(None)


class Client:
    def __init__(self, options):
        self.options = options
        self.channels = [grpc.aio.insecure_channel(f"{options.host}:{options.port}", options=OPTIONS) for _ in range(options.connections)]
        self.calls = [channel.unary_unary(METHOD) for channel in self.channels]
        self.latencies = []
        self.begun = self.wrong = 0

    def request(self, number):
        shared = self.options.size > NUMBERED_BYTES_MAX
        return bytes(self.options.size) if shared else number.to_bytes(4, "little") + bytes(self.options.size - 4)

    async def caller(self, number, request, end, calls):
        call = self.calls[number % len(self.calls)]
        while self.begun < calls:  # each task calls at least once: so that as many are open as there are tasks
            self.begun += 1
            begun = time.perf_counter_ns()
            reply = await call(request)
            self.latencies.append(time.perf_counter_ns() - begun)
            self.wrong += len(reply) != len(request) or reply[:4] != request[:4]
            if time.perf_counter() >= end:
                break

    async def run(self, requests, seconds=float("inf"), calls=float("inf")):
        """Calls until the time is over or as many were begun, and all are answered. Returns the seconds."""
        self.latencies.clear()
        self.begun = 0
        begun = time.perf_counter()
        await asyncio.gather(*(self.caller(number, request, begun + seconds, calls) for number, request in enumerate(requests)))
        return time.perf_counter() - begun

    async def measure(self):
        options = self.options
        one = self.request(0)
        slots = range(options.depth * options.connections)
        requests = [self.request(slot) if options.size <= NUMBERED_BYTES_MAX else one for slot in slots]
        for channel in self.channels:
            await channel.channel_ready()
        await self.run(requests, calls=len(requests))
        if options.warmup > 0:
            await self.run(requests, seconds=options.warmup)
        limit = {"calls": options.calls} if options.calls else {"seconds": options.time}
        seconds = await self.run(requests, **limit)
        for channel in self.channels:
            await channel.close()
        latencies = sorted(self.latencies)
        at = {name: latencies[(len(latencies) - 1) * percent // 100] for name, percent in (("p50", 50), ("p99", 99), ("max", 100))}
        return {"peer": "grpc_python", "version": grpc.__version__, "size": options.size, "depth": options.depth,
                "connections": options.connections, "calls": len(latencies), "lost": self.begun - len(latencies), "wrong": self.wrong,
                "seconds": seconds, "calls_per_second": len(latencies) / seconds, "latency_ns": at}


async def measure(options):
    return await Client(options).measure()  # the channels belong to the loop that makes them


def main():
    parser = argparse.ArgumentParser(description="gRPC in Python, making the calls that copyrpc-perf makes")
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--size", type=int, default=32, help="bytes of a request, which the server echoes")
    parser.add_argument("--depth", type=int, default=1, help="calls open on each connection")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--time", type=float, default=1, help="seconds to measure")
    parser.add_argument("--calls", type=int, default=0, help="how many calls to measure, instead of a time")
    parser.add_argument("--warmup", type=float, default=0.1, help="seconds of calls before the measurement")
    options = parser.parse_args()
    if options.role == "server":
        asyncio.run(serve(options))
        return 0
    try:
        result = asyncio.run(measure(options))
    except grpc.aio.AioRpcError as error:
        print(f"gRPC: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0 if result["wrong"] == result["lost"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
