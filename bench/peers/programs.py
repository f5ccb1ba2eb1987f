"""programs.py: the peers of ./dev bench peers: the programs of each, and what one measurement of it says.

A measurement is a server and a client, each kept on a processor of its own. A Peer whose programs take the command line of peer.h needs no
more than its commands; copyrpc-perf and perftest have their own words and reports."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

SOURCE = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1"
LIMIT_SECONDS = 60  # of one measurement
CONNECT = ["--timeout", "50"]  # of copyrpc-perf: what a busy machine may take for it
# Of copyrpc-perf. Larger rings did not pay: with 64 MiB, 32 open calls of 1 MiB each were no faster, and no cache holds that.
RING_BYTES_MIN, RING_BYTES_MAX = 1 << 20, 16 << 20
OPEN_BYTES_MAX = 256 << 20  # of the requests that are open in all


class Failed(Exception):
    """Why there is no result."""


@dataclass(frozen=True)
class Cell:
    """What is measured: `depth` calls open on each connection, of requests and replies of `size` bytes."""
    size: int
    depth: int
    connections: int

    def too_much(self):
        return self.size * self.depth * self.connections > OPEN_BYTES_MAX


@dataclass
class Result:
    calls_per_second: float
    p50_ns: Optional[float]  # None: the program does not say
    p99_ns: Optional[float]
    version: str = ""


@dataclass
class Peer:
    name: str
    title: str
    programs: list[str]  # all that it needs; the first is run
    settings: str  # for people
    packages: str  # that bring what is missing
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)  # between the program and its role
    simnic: bool = True
    counts: str = ""  # why its instructions cannot be counted; empty: they can

    def missing(self):
        absent = [program for program in self.programs if not shutil.which(program)]
        return f"{', '.join(Path(program).name for program in absent)} not found (needs {self.packages})" if absent else ""

    def variables(self, cell):
        """What is in the environment of both sides."""
        return self.environment

    def words(self, role, port, cell, seconds, warmup):
        return [self.programs[0], *self.arguments, role, ADDRESS, str(port), "--size", str(cell.size), "--depth", str(cell.depth),
                "--connections", str(cell.connections), *timing(seconds, warmup)]

    def ready(self, port, line):
        """Whether a client may come, by the line that the server has printed."""
        return line.startswith("listening")

    def result(self, output, cell):
        report = json.loads(output.splitlines()[-1])
        return Result(report["calls_per_second"], report["latency_ns"]["p50"], report["latency_ns"]["p99"], report["version"])

    def server_ends(self):
        """Whether the server ends by itself when its client has."""
        return False


def timing(seconds, warmup):
    return ["--time", str(seconds), "--warmup", str(warmup)]


class Copyrpc(Peer):
    def words(self, role, port, cell, seconds, warmup):
        address = f"{ADDRESS}:{port}"
        ring = RING_BYTES_MIN
        while ring < min(2 * cell.depth * (cell.size + 64), RING_BYTES_MAX) or ring < 8 * (cell.size + 64):
            ring *= 2
        if role == "server":
            return [self.programs[0], "server", address, *CONNECT, "--ring", str(ring)]
        return [self.programs[0], "client", address, "--json", *CONNECT, "--ring", str(ring), "-s", str(cell.size), "-q", str(cell.depth),
                "-e", str(cell.connections), *timing(seconds, warmup)]

    def result(self, output, cell):
        report = json.loads(output)
        return Result(report["calls_per_second"], report["latency_ns"]["p50"], report["latency_ns"]["p99"], "this checkout")


class Rxm(Peer):
    """Its queues have buffers for each connection: with many, as few as by default, or connecting takes the time to fill 1 GiB."""

    def variables(self, cell):
        queue = "512" if cell.connections <= 8 else "128"
        return dict(self.environment, FI_OFI_RXM_MSG_TX_SIZE=queue, FI_OFI_RXM_MSG_RX_SIZE=queue, FI_UNIVERSE_SIZE=str(cell.connections))


class Perftest(Peer):
    """A call is a message each way: of ib_*_lat a round trip, of ib_*_bw -b half of the messages that both sides send, which do not wait for
    each other and say nothing of how long one takes."""

    def words(self, role, port, cell, seconds, warmup):
        latency = cell.depth == cell.connections == 1
        messages = max(min(int(100_000 * seconds), (256 << 20) // cell.size), 200)
        words = [self.programs[not latency], "-F", "-d", "mlx5_0", "-x", "3", "-p", str(port), "-s", str(cell.size)]
        if latency:
            words += ["-n", str(max(messages // 10, 50))]
        else:
            together = min(cell.depth, 32)
            each = -(-messages // cell.connections // together) * together  # a multiple of what is posted at once
            words += ["-b", "-t", str(cell.depth), "-q", str(cell.connections), "-n", str(max(each, cell.depth)), "-l", str(together)]
        return words + ([ADDRESS] if role == "client" else [])

    def ready(self, port, line):
        with open("/proc/net/tcp", encoding="ascii") as sockets:
            return any(re.match(rf" *\d+: [0-9A-F]+:{port:04X} 0+:0000 0A ", row) for row in sockets)

    def result(self, output, cell):
        row = re.search(r"#bytes.*\n\s*\d+\s+\d+\s+(.*)", output)
        columns = [float(column) for column in row.group(1).split()] if row else []
        if not columns or not all(math.isfinite(column) for column in columns[:6]):
            raise Failed("its report has no numbers")
        version = re.search(r"^Version: (\S+)", self.banner(), re.MULTILINE)
        known = version.group(1) if version else ""
        if cell.depth == cell.connections == 1:
            return Result(1e6 / (2 * columns[3]), 2000 * columns[2], 2000 * columns[5], known)
        return Result(columns[2] * 1e6 / 2, None, None, known)

    def banner(self):
        return subprocess.run([self.programs[0], "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def server_ends(self):
        return True


def all_peers(build, python, go_program):
    """Those that there are, copyrpc first. The first has what all others are compared with."""
    folder = Path(build) / "bench/peers"
    peers_folder = SOURCE / "bench/peers"
    only_bound = "perftest spins as it waits, and tells nobody how often"
    ucx_settings = "active messages, one endpoint for each connection, addresses exchanged over TCP as in ucx_perftest; UCX_TLS="
    return [
        Copyrpc("copyrpc", "copyrpc", [str(Path(build) / "tools/copyrpc-perf")], "echo, --ring for all open calls, up to 16 MiB; else as it is",
                "./dev build release"),
        Peer("ucx_rc_x", "UCX rc_x", [str(folder / "peer_ucx")], ucx_settings + "rc_x", "libucx-dev",
             {"UCX_TLS": "rc_x", "UCX_NET_DEVICES": "mlx5_0:1"}),
        Peer("ucx_rc_v", "UCX rc_v", [str(folder / "peer_ucx")], ucx_settings + "rc_v", "libucx-dev",
             {"UCX_TLS": "rc_v", "UCX_NET_DEVICES": "mlx5_0:1"}),
        Peer("libfabric_verbs", "libfabric verbs", [str(folder / "peer_libfabric")],
             "FI_EP_MSG, one registered region, selective completions, inject where it fits, queues as deep as the calls", "libfabric-dev",
             {"PEER_ENDPOINT": "msg", "FI_VERBS_CQREAD_BUNCH_SIZE": "64"}),
        Rxm("libfabric_rxm", "libfabric rxm", [str(folder / "peer_libfabric")],
             "FI_EP_RDM of verbs;ofi_rxm, manual progress, FI_OFI_RXM_TX_SIZE and RX_SIZE 4096, MSG_TX_SIZE and MSG_RX_SIZE 512 "
             "(128 for more than 8 connections), COMP_PER_PROGRESS 64, FI_UNIVERSE_SIZE as connections", "libfabric-dev",
             {"PEER_ENDPOINT": "rdm", "FI_OFI_RXM_TX_SIZE": "4096", "FI_OFI_RXM_RX_SIZE": "4096",
              "FI_OFI_RXM_COMP_PER_PROGRESS": "64", "FI_VERBS_CQREAD_BUNCH_SIZE": "64"}),
        Peer("rsockets", "rsockets", [str(folder / "peer_rsockets")],
             "sockets that do not block, looked at in turn, TCP_NODELAY, buffers of up to 4 MiB, 64 requests a rsendmsg", "librdmacm-dev"),
        Perftest("ib_send", "ib_send", ["ib_send_lat", "ib_send_bw"], "depth 1: ib_send_lat; else ib_send_bw -b, -l up to 32", "perftest",
                 counts=only_bound),
        Perftest("ib_write", "ib_write", ["ib_write_lat", "ib_write_bw"], "depth 1: ib_write_lat; else ib_write_bw -b, -l up to 32", "perftest",
                 counts=only_bound),
        Peer("grpc_go", "gRPC Go", [go_program], "TCP, no protobuf, windows of 4 and 64 MiB, NumStreamWorkers",
             "Go 1.21, and google.golang.org/grpc by the Go proxy", simnic=False,
             counts="valgrind cannot run Go, and no thread is the application's"),
        Peer("grpc_python", "gRPC Python", [python], "TCP, no protobuf, asyncio, windows of 4 MiB", "grpcio from PyPI",
             arguments=[str(peers_folder / "grpc_peer.py")], simnic=False,
             counts="its work is spread over the threads of gRPC's core, beside the interpreter's"),
    ]


def environment_of(peer, cell):
    """Without simnic's library for who does not use it: it would stand between the program and the kernel."""
    changed = dict(os.environ, **peer.variables(cell))
    if not peer.simnic:
        for name in ("LD_PRELOAD", "SYSFS_PATH", "SIMNIC_SESSION"):
            changed.pop(name, None)
    return changed


def end(process):
    """Ends a server, at once if it does not want to."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def text_of(file):
    """What a program has written so far. It has the same file open, and writes where it is: so nobody here moves."""
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


def last_words(file):
    """What a program has said of a failure, or said last, for the reason."""
    lines = [line.strip() for line in text_of(file).splitlines() if line.strip()]
    complaints = [line for line in lines if re.search(r"error|fail|refuse|cannot", line, re.IGNORECASE)]
    return [*lines, *complaints][-1][:300] if lines else "it failed, and said nothing"


def on(processor, words):
    return words if processor is None else ["taskset", "-c", str(processor), *words]


def measure(peer, cell, port, processors, seconds, warmup, client_prefix=(), client_words=None, server_words=None, limit=LIMIT_SECONDS):
    """One measurement. Raises Failed with the reason if there is no result. `client_prefix` is what runs the client, valgrind for one."""
    environment = environment_of(peer, cell)
    serving = server_words or peer.words("server", port, cell, seconds, warmup)
    calling = client_words or peer.words("client", port, cell, seconds, warmup)
    with tempfile.TemporaryFile("w+") as served, tempfile.TemporaryFile("w+") as complaints:
        try:
            server = subprocess.Popen(on(processors[0], serving), stdin=subprocess.DEVNULL, stdout=served, stderr=served, env=environment)
        except OSError as what:
            raise Failed(str(what)) from None
        try:
            wait_until_ready(peer, server, served, port, limit)
            try:
                client = subprocess.run(on(processors[1], [*client_prefix, *calling]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=complaints, text=True, env=environment, timeout=limit)
            except subprocess.TimeoutExpired:
                raise Failed(f"the client did not end within {limit} s") from None
            if client.returncode != 0:
                raise Failed(last_words(complaints))
            if peer.server_ends():
                server.wait(10)
        except subprocess.TimeoutExpired:
            raise Failed("the server did not end") from None
        except OSError as what:
            raise Failed(str(what)) from None
        finally:
            end(server)
        try:
            return peer.result(client.stdout, cell)
        except (ValueError, LookupError) as what:
            raise Failed(f"its report cannot be read: {what}") from None


def wait_until_ready(peer, server, served, port, limit):
    until = time.monotonic() + limit
    while True:
        if server.poll() is not None:
            raise Failed(last_words(served))
        if any(peer.ready(port, line) for line in text_of(served).splitlines() or [""]):
            return
        if time.monotonic() > until:
            raise Failed(f"the server did not listen within {limit} s")
        time.sleep(0.005)
