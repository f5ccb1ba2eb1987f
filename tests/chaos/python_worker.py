"""python_worker.py: the worker in Python: a client that makes calls and uses queues, or a server for both, in coroutines. c/main.c has its
options; channels are for the others alone."""
import argparse
import asyncio
import contextlib
import mmap
import random
import signal
import struct
import time
from pathlib import Path

from journal import HEAD, HEADER_BYTES, RECORD, TAIL, Kind, Record, Type
from python_queues import Queues

import copyrpc

MESSAGE_BYTES_MAX = 8192
MULTIPLIER, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
REPLY_BIT = 1 << 63
RIGHT, WRONG_LENGTH, WRONG_ID, WRONG_BYTES, WRONG_STATUS, TOO_EARLY = range(6)
HEADER = struct.Struct("<QQ")
CLOSED = -15
FAILURES_MAX = 3
LEAVE_S = 3.0


class Writer:
    """A worker's end of its journal, of which the orchestrator has made the file."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.room: int = struct.unpack_from("<II", self.map)[1]
        self.words = memoryview(self.map).cast("Q")

    def put(self, kind: Kind, status: int = 0, op: int = 0, a: int = 0, b: int = 0) -> None:
        head = self.words[HEAD]
        while head - self.words[TAIL] >= self.room:
            time.sleep(0.001)
        RECORD.pack_into(self.map, HEADER_BYTES + head % self.room * RECORD.size, *Record(kind, status, op, a, b))
        self.words[HEAD] = head + 1


class Work:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.journal = Writer(options.journal)
        self.table = options.content.read_bytes()
        self.dice = random.Random(options.seed)
        self.number = 0
        self.stopping = asyncio.Event()
        self.failures = 0

    # ---- Ops and bytes, as in C ----

    def new_id(self) -> int:
        self.number += 1
        return int(self.options.life) << 32 | self.number

    def begin(self, kind: Type, a: int = 0, b: int = 0) -> int:
        op = self.new_id()
        self.journal.put(Kind.BEGIN, kind, op, a, b)
        return op

    def content(self, size: int, op: int) -> bytes:
        begin = (op * MULTIPLIER & MASK) >> 48
        return HEADER.pack(op, size) + self.table[begin : begin + size - HEADER.size] if size >= HEADER.size else b""

    def check(self, data: bytes) -> tuple[int, int]:
        """A verdict, and the id."""
        if len(data) < HEADER.size:
            return WRONG_LENGTH, 0
        op, size = HEADER.unpack_from(data)
        return (WRONG_LENGTH if size != len(data) else RIGHT if data == self.content(size, op) else WRONG_BYTES), op

    @staticmethod
    def status(op: int) -> int:
        return (op * MULTIPLIER & MASK) >> 60

    # ---- Calls ----

    async def call(self, endpoint: copyrpc.Endpoint, connection: int) -> None:
        op = self.begin(Type.CALL, connection)
        timeout = self.dice.choice([None, 0.0001, 0.01, 5.0, 5.0, 5.0])
        most = self.dice.randrange(self.dice.choice([256, 256, 256, MESSAGE_BYTES_MAX]))
        size = self.dice.randrange(HEADER.size, self.dice.choice([256, 256, 256, MESSAGE_BYTES_MAX]))
        begun, verdict, data, status, left = time.monotonic(), RIGHT, b"", 0, 0.0
        try:
            data = await endpoint.acall(self.content(size, op), timeout=timeout, method=op & 0xFFFF, reply_bytes_max=most)
        except copyrpc.RemoteError as error:
            data, status = error.payload, error.status
        except copyrpc.CopyrpcError as error:
            status = error.status
            # The status of Disconnected is why the connection had ended, if it was over before the call.
            over = isinstance(error, copyrpc.Disconnected) and error.status_name != "CRPC_E_DISCONNECTED"
            if over or isinstance(error, (copyrpc.TooBig, copyrpc.NoRoom)) or error.status_name in ("CRPC_E_CLOSING", "CRPC_E_STATE"):
                self.journal.put(Kind.REFUSED, status, op)
                return
            if isinstance(error, copyrpc.Timeout) and timeout:
                left = max(timeout - (time.monotonic() - begun), 0.0)
                verdict = TOO_EARLY if left else RIGHT
        if status >= 0:
            verdict, answered = self.check(data)
            if most < HEADER.size:
                verdict = WRONG_LENGTH if data else RIGHT
            elif verdict == RIGHT and answered != op | REPLY_BIT:
                verdict = WRONG_ID
            if status != self.status(op):
                verdict = WRONG_STATUS
        self.journal.put(Kind.ENDED, status, op, verdict, int(left * 1e9))

    async def connection(self, context: copyrpc.Context) -> None:
        """One connection, from its connect to its end."""
        connect = self.begin(Type.CONNECT)
        options = copyrpc.EndpointOptions(call_only=True, ring_bytes=1 << self.dice.randrange(15, 20), calls_max=1 << self.dice.randrange(9))
        try:
            endpoint = await context.aconnect(self.options.connect, options)
        except copyrpc.CopyrpcError as error:
            self.journal.put(Kind.ENDED, error.status, connect)
            self.failures += not isinstance(error, copyrpc.Refused)
            return
        self.failures = 0
        self.journal.put(Kind.ENDED, 0, connect)
        connection, status = self.begin(Type.CONNECTION, connect), CLOSED
        try:
            while not self.stopping.is_set() and endpoint.error is None and self.dice.random() < 0.98:
                await asyncio.gather(*(self.call(endpoint, connection) for _ in range(self.dice.randrange(1, 16))))
                await asyncio.sleep(self.dice.uniform(0, 0.01))
            if self.stopping.is_set() or self.dice.random() < 0.6:
                await endpoint.adisconnect(LEAVE_S)
                status = 0
        except copyrpc.CopyrpcError as error:
            status = error.status
        endpoint.close()
        self.journal.put(Kind.ENDED, status, connection)

    async def connections(self, context: copyrpc.Context, queues: Queues) -> None:
        while not self.stopping.is_set() and self.failures < FAILURES_MAX:
            if self.options.queues and self.dice.random() < 0.5:
                await queues.connection()
            else:
                await self.connection(context)

    # ---- Answers ----

    async def answer(self, request: copyrpc.Request) -> bytes:
        verdict, op = self.check(bytes(request.payload))
        if verdict == RIGHT and request.method != op & 0xFFFF:
            verdict = WRONG_ID
        drop = self.dice.random() < 0.03
        self.journal.put(Kind.EXECUTED, verdict, op, int(drop))
        if self.dice.random() < 0.1:
            await asyncio.sleep(self.dice.uniform(0, 0.02))
        if drop:
            request.drop()
            return b""
        most = min(request.reply_bytes_max, MESSAGE_BYTES_MAX)
        payload = self.content(self.dice.randrange(HEADER.size, most + 1), op | REPLY_BIT) if most >= HEADER.size else b""
        if self.status(op):
            raise copyrpc.RemoteError(self.status(op), payload)
        return payload

    def tell_state(self, context: copyrpc.Context) -> None:
        info = context.info()
        self.journal.put(Kind.STATE, 0, 0, info.endpoints + info.queues, info.endpoints + info.queues)
        self.journal.put(Kind.STATE, 1, 0, info.batch_window_left, 0)

    async def serve(self, context: copyrpc.Context, queues: Queues) -> None:
        with context.listen(self.options.listen) as listener, context.listen_queues(self.options.listen) as doors:
            ports = [int(one.address.rsplit(":", 1)[1]) for one in (listener, doors)]
            self.journal.put(Kind.READY, 0, 0, ports[0], ports[1] << 32)
            serving = [asyncio.ensure_future(work) for work in (listener.aserve(self.answer), queues.serve(doors))]
            await asyncio.wait([*serving, asyncio.ensure_future(self.stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
            listener.stop()
            doors.close()
            await asyncio.gather(*serving)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with copyrpc.Context(self.options.device, queues=True) as context:
            queues = Queues(self, context)
            loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
            loop.add_signal_handler(signal.SIGUSR1, self.tell_state, context)
            if self.options.listen:
                await self.serve(context, queues)
            else:
                await asyncio.gather(*(self.connections(context, queues) for _ in range(self.options.connections)))
        self.journal.put(Kind.DONE)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--device", "--listen", "--connect", "--channels", "--queues", "--mistake"):
        parser.add_argument(name, default="")
    for name in ("--journal", "--content"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--life", "--seed", "--connections"):
        parser.add_argument(name, type=int, default=1)
    with contextlib.suppress(copyrpc.NoDevice):  # its port is down
        asyncio.run(Work(parser.parse_args()).run())
        return 0
    return 3


if __name__ == "__main__":
    raise SystemExit(main())
