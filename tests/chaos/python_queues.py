"""python_queues.py: the queues of the worker in Python, in coroutines. c/queues.c says what both sides do, and what is told of it."""
import asyncio
import contextlib
import mmap
import struct
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from journal import Kind, Type

import copyrpc

if TYPE_CHECKING:
    from python_worker import Work

ROOMS = 16
SLOTS = 4  # that the peer writes
BUFFERS = 8  # for receives
SLOT_BYTES = 8192
COUNTER_BYTES = 64
SHARED_BYTES = COUNTER_BYTES + SLOTS * SLOT_BYTES  # of which the peer is told
AREA_BYTES = SHARED_BYTES + (BUFFERS + SLOTS + 1) * SLOT_BYTES  # also: receives, copies of slots, what is sent
INLINE_BYTES = 60
GREETING = struct.Struct("<QQQ")  # the id of a connect, address and key of an area
HEADER = struct.Struct("<QQ")
RIGHT, WRONG_LENGTH, WRONG_ID, WRONG_BYTES = range(4)
CLOSED = -15
# Of ops that the library has not seen: their queue leaves, or was over before; then this is why.
NEVER_TAKEN = ("CRPC_E_CLOSING", "CRPC_E_STATE", "CRPC_E_STALE", "CRPC_E_TIMEOUT", "CRPC_E_SYSTEM")
LEAVE_S = 3.0


class Lane:
    """A queue at work, with its area of the memory, and that of the peer."""

    def __init__(self, queues: "Queues", queue: copyrpc.Queue, room: int, there: copyrpc.Remote, connection: int, accepted: bool) -> None:
        self.queues, self.work, self.queue, self.there, self.connection = queues, queues.work, queue, there, connection
        self.base = room * AREA_BYTES
        self.pause_s = 0.02 if accepted else 0.005

    def place(self, index: int, size: int = SLOT_BYTES) -> Any:
        """Of this side's own buffers."""
        begin = self.base + SHARED_BYTES + index * SLOT_BYTES
        return self.queues.region[begin : begin + size]

    def bytes_of(self, index: int, size: int) -> bytes:
        begin = self.base + SHARED_BYTES + index * SLOT_BYTES
        return bytes(self.queues.region.memory[begin : begin + size])

    def payload(self, index: int, op: int) -> tuple[Any, int]:
        """The content of an op in a buffer, or by itself, to be copied; and its length."""
        dice = self.work.dice
        size = dice.randrange(HEADER.size, dice.choice([INLINE_BYTES, 1000, SLOT_BYTES]) + 1)
        data = self.work.content(size, op)
        if size <= INLINE_BYTES and dice.random() < 0.5:
            return data, size
        begin = self.base + SHARED_BYTES + index * SLOT_BYTES
        self.queues.region.memory[begin : begin + size] = data
        return self.place(index, size), size

    async def goes_on(self) -> bool:
        await asyncio.sleep(self.work.dice.uniform(0, self.pause_s))
        return self.queue.error is None

    def failed(self, op: int, error: copyrpc.CopyrpcError) -> None:
        self.work.journal.put(Kind.REFUSED if error.status_name in NEVER_TAKEN else Kind.ENDED, error.status, op)

    def ended(self, op: int, verdict: int = RIGHT, other: int = 0) -> None:
        self.work.journal.put(Kind.ENDED, 0, op, verdict, other)

    async def receives(self, index: int) -> None:
        while self.queue.error is None:
            op = self.work.begin(Type.QUEUE_RECEIVE, self.connection)
            try:
                got = await self.queue.areceive(self.place(index))
            except copyrpc.CopyrpcError as error:
                self.failed(op, error)
                return
            verdict, sender = self.work.check(self.bytes_of(index, got.size))
            if got.immediate is not None and got.immediate != sender & 0xFFFFFFFF:
                verdict = WRONG_ID
            self.ended(op, verdict, sender)

    async def sends(self) -> None:
        while await self.goes_on():
            op = self.work.begin(Type.QUEUE_SEND, self.connection)
            place, _ = self.payload(BUFFERS + SLOTS, op)
            try:
                await self.queue.asend(place, immediate=op & 0xFFFFFFFF if self.work.dice.random() < 0.3 else None)
            except copyrpc.CopyrpcError as error:
                self.failed(op, error)
                return
            self.ended(op)

    async def accesses(self, slot: int) -> None:
        """Writes a slot of the peer, and reads it again."""
        remote = copyrpc.Remote(self.there.address + COUNTER_BYTES + slot * SLOT_BYTES, self.there.key)
        last = size = 0
        while await self.goes_on():
            reads = bool(last) and self.work.dice.random() < 0.5
            op = self.work.begin(Type.READ if reads else Type.WRITE, self.connection, slot)
            verdict = RIGHT
            try:
                if reads:
                    await self.queue.aread(self.place(BUFFERS + slot, size), remote)
                    verdict, found = self.work.check(self.bytes_of(BUFFERS + slot, size))
                    verdict = WRONG_ID if verdict == RIGHT and found != last else verdict
                else:
                    place, size = self.payload(BUFFERS + slot, op)
                    await self.queue.awrite(place, remote)
                    last = op
            except copyrpc.CopyrpcError as error:
                self.failed(op, error)
                return
            self.ended(op, verdict)

    async def adds(self) -> None:
        count = 0
        while await self.goes_on():
            op = self.work.begin(Type.ADD, self.connection)
            try:
                before = await self.queue.afetch_add(self.there, 1)
            except copyrpc.CopyrpcError as error:
                self.failed(op, error)
                return
            self.ended(op, RIGHT if before == count else WRONG_BYTES)
            count += 1

    def tell_found(self) -> None:
        """What the peer has left, now that it reaches the area no more."""
        memory = self.queues.region.memory
        for slot in range(SLOTS):
            begin = self.base + COUNTER_BYTES + slot * SLOT_BYTES
            op, size = HEADER.unpack_from(memory, begin)
            verdict = WRONG_LENGTH if size > SLOT_BYTES else RIGHT
            if (op or size) and verdict == RIGHT:
                verdict, op = self.work.check(bytes(memory[begin : begin + size]))
            self.work.journal.put(Kind.FOUND, slot, self.connection, op, verdict)
        self.work.journal.put(Kind.FOUND, -1, self.connection, int.from_bytes(memory[self.base : self.base + 8], "little"))


class Queues:
    def __init__(self, work: "Work", context: copyrpc.Context) -> None:
        self.work, self.context = work, context
        self.region = context.register(mmap.mmap(-1, ROOMS * AREA_BYTES), "local_write", "remote_write", "remote_read", "remote_atomic")
        self.rooms = list(range(ROOMS))

    @contextlib.asynccontextmanager
    async def room(self) -> AsyncIterator[int]:
        room = self.rooms.pop()
        begin = room * AREA_BYTES
        self.region.memory[begin : begin + SHARED_BYTES] = bytes(SHARED_BYTES)
        try:
            yield room
        finally:
            self.rooms.append(room)

    def options(self, connect: int, room: int) -> copyrpc.QueueOptions:
        greeting = GREETING.pack(connect, self.region.address + room * AREA_BYTES, self.region.remote.key)
        dice = self.work.dice
        return copyrpc.QueueOptions(sends=4 << dice.randrange(4), receives=4 << dice.randrange(2), private_data=greeting)

    @staticmethod
    def greeted(data: bytes) -> tuple[int, copyrpc.Remote]:
        """The id of the peer's connect, and where its area is."""
        connect, address, key = GREETING.unpack_from(data) if len(data) >= GREETING.size else (0, 0, 0)
        return connect, copyrpc.Remote(address, key & 0xFFFFFFFF)

    async def connection(self) -> None:
        """One connection, from its connect to its end."""
        async with self.room() as room:
            connect = self.work.begin(Type.CONNECT, 2)
            try:
                queue = await self.context.aqueue_connect(self.work.options.queues, self.options(connect, room))
            except copyrpc.CopyrpcError as error:
                self.work.journal.put(Kind.ENDED, error.status, connect)
                self.work.failures += not isinstance(error, copyrpc.Refused)
                return
            self.work.failures = 0
            self.work.journal.put(Kind.ENDED, 0, connect)
            try:
                _, there = self.greeted(queue.info().private_data)
            except copyrpc.CopyrpcError:  # it is over already
                there = copyrpc.Remote(0, 0)
            await self.life(queue, room, there, connect, 0)

    async def accepted(self, asking: Any) -> None:
        async with self.room() as room:
            connect = self.work.begin(Type.CONNECT, 2)
            peer, there = self.greeted(asking.private_data)
            try:
                queue = await asking.aaccept(self.options(connect, room))
            except copyrpc.CopyrpcError as error:
                never = error.status_name in ("CRPC_E_STATE", "CRPC_E_STALE", "CRPC_E_NO_RESOURCE")
                self.work.journal.put(Kind.REFUSED if never else Kind.ENDED, error.status, connect)
                return
            self.work.journal.put(Kind.ENDED, 0, connect)
            await self.life(queue, room, there, connect, peer)

    async def life(self, queue: copyrpc.Queue, room: int, there: copyrpc.Remote, connect: int, peer: int) -> None:
        connection, status = self.work.begin(Type.CONNECTION, connect, peer), CLOSED
        lane = Lane(self, queue, room, there, connection, bool(peer))
        tasks = []
        if there.address:
            works = [lane.sends(), lane.adds(), *map(lane.accesses, range(SLOTS)), *map(lane.receives, range(BUFFERS))]
            tasks = [asyncio.ensure_future(work) for work in works]
        rarity = 0.002 if peer else 0.02
        while queue.error is None and self.work.dice.random() > rarity:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.work.stopping.wait(), self.work.dice.uniform(0, 0.01))
                break
        try:
            if self.work.stopping.is_set() or self.work.dice.random() < 0.6:
                await queue.adrain(LEAVE_S)
                status = 0
        except copyrpc.CopyrpcError as error:
            status = error.status
        queue.close()
        await asyncio.gather(*tasks)
        lane.tell_found()
        self.work.journal.put(Kind.ENDED, status, connection)

    async def serve(self, listener: copyrpc.QueueListener) -> None:
        """Until the listener is closed, and all are gone."""
        peers: set[asyncio.Future[None]] = set()
        while True:
            asking = await listener.anext_connection()
            if asking is None:
                break
            if not self.rooms or self.work.dice.random() < 0.02:
                with contextlib.suppress(copyrpc.CopyrpcError):  # it has given up
                    asking.reject()
                continue
            peer = asyncio.ensure_future(self.accepted(asking))
            peers.add(peer)
            peer.add_done_callback(peers.discard)
            await asyncio.sleep(0)  # it takes its room
        await asyncio.gather(*peers)
