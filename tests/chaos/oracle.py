"""oracle.py: knows each op of all workers, from their journals, and says what is wrong.

A *life* is a worker from its start to its end. An op's id is its life << 32 | its number. What one worker did because of another may
be read before its cause is, since journals are read one after the other: such checks wait for the round after."""
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from journal import Kind, Record, Type

NUMBER = 0xFFFFFFFF
BEGUN, REFUSED, ENDED, EXECUTED, RECEIVED, DROPPED = 1, 2, 4, 8, 16, 32

STATUS = {
    -1: "INVALID", -2: "UNSUPPORTED", -3: "STALE", -4: "AGAIN", -5: "TOO_BIG", -6: "NO_MEMORY", -7: "NO_DEVICE", -8: "NO_RESOURCE", -9: "MEMLOCK",
    -10: "SYSTEM", -11: "TIMEOUT", -12: "CANCELED", -13: "CLOSING", -14: "DISCONNECTED", -15: "CLOSED", -16: "REFUSED", -17: "UNREACHABLE",
    -18: "VERSION", -19: "PROTOCOL", -20: "DROPPED", -21: "BUSY", -22: "NOT_FOUND", -23: "INTERRUPTED", -24: "STATE", -25: "TRUNCATED", -26: "KEY",
    -27: "ACCESS", -28: "NOT_READY", -29: "FLUSHED", -30: "DEVICE", -31: "NOT_STARTED",
}
# How ops may end that no peer has lied about, and no program has misused.
MAY_END = {
    Type.CALL: {"OK", "TIMEOUT", "CANCELED", "DISCONNECTED", "CLOSED", "DROPPED", "NOT_STARTED"},
    Type.REPLY: {"OK", "DISCONNECTED", "CLOSED"},
    Type.CANCEL: {"OK", "NOT_FOUND", "DISCONNECTED", "CLOSED"},
    Type.SEND: {"OK", "TIMEOUT", "CANCELED", "DISCONNECTED", "CLOSED"},
    Type.RECEIVE: {"OK", "DISCONNECTED", "CLOSED"},
    Type.CONNECT: {"OK", "TIMEOUT", "REFUSED", "UNREACHABLE", "DISCONNECTED", "CLOSED", "NO_DEVICE", "SYSTEM"},  # NO_DEVICE: its port is down
    Type.CONNECTION: {"OK", "TIMEOUT", "DISCONNECTED", "CLOSED", "SYSTEM"},  # SYSTEM, here and above: its queue pair was killed
    **dict.fromkeys((Type.QUEUE_SEND, Type.QUEUE_RECEIVE, Type.WRITE, Type.READ, Type.ADD), {"OK", "FLUSHED", "DISCONNECTED", "CLOSED"}),
}
# These end when the peer does something, which may be never.
STANDING = {Type.RECEIVE, Type.QUEUE_RECEIVE, Type.CONNECTION}
# Ops of queues of which the peer keeps what they did.
OF_QUEUES = {Type.QUEUE_SEND, Type.WRITE, Type.ADD}
# Their ends have a verdict.
JUDGED = {Type.CALL, Type.RECEIVE, Type.QUEUE_RECEIVE, Type.READ, Type.ADD}
VERDICTS = ["", "of the wrong length", "of another op", "with wrong bytes", "with the wrong status", "timed out before its deadline"]
WRONGS = ("lost", "doubled", "wrong", "hung", "died", "leaked")


def place_of(receive: int) -> int:
    """In its group, of the b of a RECEIVE."""
    return receive >> 8 & 0xFF


def name_of(status: int) -> str:
    return "OK" if status >= 0 else STATUS.get(status, str(status))


@dataclass
class Op:
    type: Type
    begun: float
    connection: int
    other: int


@dataclass
class Group:
    """The receives of one message, by their places."""

    count: int
    ends: dict[int, tuple[str, int]] = field(default_factory=dict)  # status, number of the message


@dataclass
class Connection:
    pair: int  # the id of the connect, which both sides of a channel know
    ended: str = ""  # how
    posted: dict[int, int] = field(default_factory=dict)  # id of a send -> tag
    sent: dict[int, int] = field(default_factory=dict)  # of those that ended well -> number of the message, -1: not known
    groups: dict[int, Group] = field(default_factory=dict)  # that have not ended, by the id of their first receive
    received: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # number of the message, place -> id of its send, tag
    # Of a queue:
    peer: "tuple[Life, Connection] | None" = None
    ops: dict[tuple[Type, int], list[int]] = field(default_factory=dict)  # WRITEs of each slot, additions, sends: ids that were not refused
    good: set[int] = field(default_factory=set)  # those of them that ended well
    last_send: int = 0  # the newest that was received
    found: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot -> id of a WRITE, verdict; -1 -> counter


@dataclass
class Life:
    number: int
    what: str  # for people
    flags: bytearray = field(default_factory=bytearray)
    waiting: dict[int, Op] = field(default_factory=dict)  # the oldest first
    standing: dict[int, Op] = field(default_factory=dict)
    connections: dict[int, Connection] = field(default_factory=dict)
    done: bool = False
    over: float = 0.0  # when it ended
    server: "Life | None" = None  # of a client
    drops: bool = False  # of a server: it ends, and drops the requests that it has not answered yet

    def flag(self, op: int) -> int:
        number = op & NUMBER
        return self.flags[number] if number < len(self.flags) else 0

    def mark(self, op: int, flag: int) -> None:
        number = op & NUMBER
        if number >= len(self.flags):
            self.flags.extend(bytes(max(1024, number - len(self.flags) + 1)))
        self.flags[number] |= flag


class Oracle:
    def __init__(self, hung_s: float = 180.0) -> None:
        self.hung_s = hung_s
        self.lives: dict[int, Life] = {}
        self.wrongs: dict[str, list[str]] = {what: [] for what in WRONGS}
        self.ops: Counter[str] = Counter()
        self.ends: Counter[tuple[str, str]] = Counter()
        self.with_process = 0  # ops that were open when their process was killed
        self.executed = 0
        self.later: list[tuple[int, str, int, int]] = []  # checks: (round, which, life or 0, op)
        self.pairs: dict[int, list[tuple[Life, Connection]]] = {}  # the two sides of a channel, by the id of its connect
        self.round = 0

    # ---- What is told to it ----

    def born(self, number: int, what: str) -> Life:
        self.lives[number] = life = Life(number, what)
        return life

    def wrong(self, what: str, text: str) -> None:
        self.wrongs[what].append(text)

    def take(self, life: Life, records: Iterable[Record]) -> None:
        now = time.monotonic()
        for record in records:
            if record.kind == Kind.BEGIN:
                self.begin(life, record, now)
            elif record.kind == Kind.ENDED:
                self.end(life, record)
            elif record.kind == Kind.REFUSED:
                self.refuse(life, record)
            elif record.kind == Kind.EXECUTED:
                self.execute(life, record)
            elif record.kind == Kind.FOUND:
                self.find(life, record)
            elif record.kind == Kind.DONE:
                life.done = True
            elif record.kind == Kind.TROUBLE:
                self.wrong("wrong", f"{life.what}: trouble at line {record.a}, status {name_of(record.status)}")

    def begin(self, life: Life, record: Record, now: float) -> None:
        kind = Type(record.status)
        life.mark(record.id, BEGUN)
        (life.standing if kind in STANDING else life.waiting)[record.id] = Op(kind, now, record.a, record.b)
        self.ops[kind.name] += 1
        if kind == Type.SEND and record.a in life.connections:
            life.connections[record.a].posted[record.id] = record.b
        elif kind == Type.RECEIVE and record.a in life.connections:
            life.connections[record.a].groups.setdefault(record.id - place_of(record.b), Group(record.b >> 16))
        elif kind == Type.CONNECTION:
            life.connections[record.id] = connection = Connection(record.b or record.a)
            pair = self.pairs.setdefault(connection.pair, [])
            pair.append((life, connection))
            if len(pair) == 2:
                pair[0][1].peer, pair[1][1].peer = pair[1], pair[0]
        elif kind in OF_QUEUES and record.a in life.connections:
            life.connections[record.a].ops.setdefault((kind, record.b), []).append(record.id)

    def refuse(self, life: Life, record: Record) -> None:
        op = life.waiting.pop(record.id, None) or life.standing.pop(record.id, None)
        if op is None:
            self.wrong("wrong", f"{life.what}: op {record.id:#x} was refused, but not open")
            return
        life.mark(record.id, REFUSED)
        self.ops[op.type.name] -= 1
        if op.type == Type.RECEIVE and op.connection in life.connections:
            group = life.connections[op.connection].groups.pop(record.id - place_of(op.other), None)
            if group and group.ends:
                self.wrong("wrong", f"{life.what}: of a group, receive {record.id:#x} was refused, and others were not")
        elif op.type in OF_QUEUES and op.connection in life.connections:
            life.connections[op.connection].ops[op.type, op.other].remove(record.id)
        if life.flag(record.id) & (EXECUTED | RECEIVED):
            self.wrong("wrong", f"{life.what}: op {record.id:#x} was refused, and yet executed")

    def end(self, life: Life, record: Record) -> None:
        op = life.waiting.pop(record.id, None) or life.standing.pop(record.id, None)
        if op is None:
            self.wrong("doubled", f"{life.what}: op {record.id:#x} ended with {name_of(record.status)} while it was not open")
            return
        life.mark(record.id, ENDED)
        status = name_of(record.status)
        self.ends[op.type.name, status] += 1
        if status not in MAY_END[op.type]:
            self.wrong("wrong", f"{life.what}: {op.type.name} {record.id:#x} ended with {status}")
        if op.type in JUDGED and record.a & 0xFF:
            early = f" by {record.b / 1e6:.3f} ms" if op.type == Type.CALL and record.b else ""
            self.wrong("wrong", f"{life.what}: {op.type.name} {record.id:#x} was {VERDICTS[record.a & 0xFF]}{early}")
        if op.type == Type.CALL and (status in ("OK", "DROPPED", "NOT_STARTED")):
            self.later.append((self.round, status, life.number, record.id))
        elif op.type == Type.SEND and status == "OK" and op.connection in life.connections:
            life.connections[op.connection].sent[record.id] = record.a >> 8 if record.a & 1 else -1
        elif op.type == Type.RECEIVE:
            self.end_of_group(life, op, record, status)
            if status == "OK":
                self.receive(life, op, record)
        elif op.type in OF_QUEUES and status == "OK" and op.connection in life.connections:
            life.connections[op.connection].good.add(record.id)
        elif op.type == Type.QUEUE_RECEIVE and status == "OK":
            self.receive_of_queue(life, op, record)
        elif op.type == Type.CONNECTION:
            life.connections[record.id].ended = status
            self.later.append((self.round, "connection", life.number, record.id))

    def execute(self, life: Life, record: Record) -> None:
        self.executed += 1
        caller = self.lives.get(record.id >> 32)
        if record.status or caller is None:
            self.wrong("wrong", f"{life.what}: got a request {VERDICTS[record.status] or 'of nobody'} ({record.id:#x})")
            return
        flags = caller.flag(record.id)
        if flags & EXECUTED:
            self.wrong("doubled", f"{life.what}: call {record.id:#x} of {caller.what} was executed twice")
        if flags & REFUSED:
            self.wrong("wrong", f"{life.what}: call {record.id:#x} of {caller.what} was executed, but had been refused")
        caller.mark(record.id, EXECUTED | (DROPPED if record.a else 0))
        if not flags & BEGUN:
            self.later.append((self.round, "begun", life.number, record.id))

    def end_of_group(self, life: Life, op: Op, record: Record, status: str) -> None:
        """The receives of a group end together."""
        connection, place = life.connections.get(op.connection), place_of(op.other)
        first = record.id - place
        group = connection.groups.get(first) if connection else None
        if not connection or not group:
            return
        if not group.ends:  # the others follow at once
            for other in range(first, first + group.count):
                if other in life.standing:
                    life.waiting[other] = life.standing.pop(other)
                    life.waiting[other].begun = time.monotonic()
        group.ends[place] = (status, record.a >> 8)
        if len(group.ends) < group.count:
            return
        del connection.groups[first]
        ends = set(group.ends.values())
        # A close ends what has not been told yet, too.
        if len({number for end, number in ends if end != "CLOSED"}) > 1 or len({end for end, _ in ends} - {"CLOSED"}) > 1:
            self.wrong("wrong", f"{life.what}: the group of receive {first:#x} did not end together: {sorted(ends)}")

    def receive(self, life: Life, op: Op, record: Record) -> None:
        number, send = record.a >> 8, record.b
        sender = self.lives.get(send >> 32)
        if sender is None:
            self.wrong("wrong", f"{life.what}: got a message of nobody ({send:#x})")
            return
        if sender.flag(send) & RECEIVED:
            self.wrong("doubled", f"{life.what}: message {send:#x} of {sender.what} came twice")
        sender.mark(send, RECEIVED)
        connection = life.connections.get(op.connection)
        if connection is None:
            self.wrong("wrong", f"{life.what}: got message {send:#x} over no channel")
            return
        place = (number, place_of(op.other))
        if place in connection.received:
            self.wrong("doubled", f"{life.what}: two messages of a channel are number {number}")
        connection.received[place] = (send, op.other & 0xFF)
        self.later.append((self.round, "begun", life.number, send))

    def receive_of_queue(self, life: Life, op: Op, record: Record) -> None:
        """Of an SRQ, the end says over which connection, unless that is closed."""
        sender, connection = self.lives.get(record.b >> 32), life.connections.get(op.connection or record.a >> 8)
        if sender is None or (connection is None and op.connection):
            self.wrong("wrong", f"{life.what}: got a message of nobody, or over no queue ({record.b:#x})")
            return
        if sender.flag(record.b) & RECEIVED:
            self.wrong("doubled", f"{life.what}: message {record.b:#x} of {sender.what} came twice over a queue")
        elif connection and record.b < connection.last_send:
            self.wrong("wrong", f"{life.what}: messages of a queue came in another order than they were sent")
        sender.mark(record.b, RECEIVED)
        if connection:
            connection.last_send = record.b
        self.later.append((self.round, "begun", life.number, record.b))

    def find(self, life: Life, record: Record) -> None:
        connection = life.connections.get(record.id)
        if connection is None:
            self.wrong("wrong", f"{life.what}: found something of no connection ({record.id:#x})")
            return
        connection.found[record.status] = (record.a, record.b)
        if record.status == -1:  # the last
            self.later.append((self.round, "found", life.number, record.id))

    # ---- What it finds ----

    def end_round(self) -> None:
        """All journals have been read once more."""
        ready = [check for check in self.later if check[0] < self.round]
        self.later = [check for check in self.later if check[0] >= self.round]
        self.round += 1
        for _, which, number, op in ready:
            life = self.lives[number]
            if which == "connection":
                self.connection_ended(life, op)
            elif which == "found":
                self.judge_found(life, op)
            elif which == "begun":
                sender = self.lives[op >> 32]
                if not sender.flag(op) & BEGUN or sender.flag(op) & REFUSED:
                    self.wrong("wrong", f"{life.what}: got op {op:#x} of {sender.what}, which it never sent")
            elif which == "DROPPED" and life.server and life.server.drops:
                continue
            elif which == "NOT_STARTED":  # a server that ends says so, and the call may be made again: so it must be true
                if life.flag(op) & EXECUTED:
                    self.wrong("wrong", f"{life.what}: call {op:#x} ended with {which}, and somebody had executed it")
            elif not life.flag(op) & EXECUTED:
                self.wrong("wrong", f"{life.what}: call {op:#x} ended with {which}, and nobody had executed it")
            elif (which == "DROPPED") != bool(life.flag(op) & DROPPED):
                self.wrong("wrong", f"{life.what}: call {op:#x} ended with {which}, which is not what its server did")

    def connection_ended(self, life: Life, op: int) -> None:
        connection = life.connections.get(op)
        if connection is None:
            return
        last: dict[int, tuple[int, int]] = {}  # tag -> number of the message, the newest of the sends before it
        newest: dict[int, int] = {}
        for (number, _), (send, tag) in sorted(connection.received.items()):
            if tag not in last or last[tag][0] != number:
                last[tag] = (number, newest.get(tag, 0))
            if send < last[tag][1]:
                self.wrong("wrong", f"{life.what}: messages of a channel came in another order than they were sent")
            newest[tag] = max(newest.get(tag, 0), send)
        numbers = sorted({number for number, _ in connection.received})
        if connection.ended == "OK" and numbers != list(range(len(numbers))):
            self.wrong("lost", f"{life.what}: of a channel that ended well, message {next(i for i, n in enumerate(numbers) if i != n)} is missing")
        pair = self.pairs.get(connection.pair, [])
        for sender, side in pair:
            if side is connection:
                continue
            for send, tag in connection.received.values():
                if send not in side.posted:
                    self.wrong("wrong", f"{life.what}: a channel brought a message of {sender.what} that was sent over another one")
                elif side.posted[send] != tag:
                    self.wrong("wrong", f"{life.what}: message {send:#x} of {sender.what} with tag {side.posted[send]} came into a buffer with {tag}")
        if len(pair) == 2 and all(side.ended for _, side in pair):
            del self.pairs[connection.pair]
            self.compare(pair[0], pair[1])
            self.compare(pair[1], pair[0])

    def judge_found(self, life: Life, op: int) -> None:
        """What the peer of a queue has left, against the ops that it knows: when all of these are known."""
        connection = life.connections.get(op)
        if connection is None or connection.peer is None:
            return  # the peer never heard that it was connected, or it is long ago
        peer_life, peer = connection.peer
        if not peer.ended and not peer_life.over:
            self.later.append((self.round, "found", life.number, op))
            return
        for slot, (found, verdict) in connection.found.items():
            if slot >= 0:
                self.judge_slot(life, peer_life, peer, slot, found, verdict)
        count, adds = connection.found[-1][0], peer.ops.get((Type.ADD, 0), [])
        least = sum(add in peer.good for add in adds)
        if count < least:
            self.wrong("lost", f"{life.what}: {least} additions of {peer_life.what} ended well, and the counter is {count}")
        elif count > len(adds):
            self.wrong("doubled", f"{life.what}: {peer_life.what} made {len(adds)} additions, and the counter is {count}")
        if connection.ended == "CLOSED":
            return  # what came after the last poll is the close's
        for send in peer.ops.get((Type.QUEUE_SEND, 0), []):
            if send in peer.good and not peer_life.flag(send) & RECEIVED:
                self.wrong("lost", f"{life.what}: message {send:#x} of {peer_life.what} was sent over a queue, and never came")

    def judge_slot(self, life: Life, peer_life: Life, peer: Connection, slot: int, found: int, verdict: int) -> None:
        writes = peer.ops.get((Type.WRITE, slot), [])
        last = max((write for write in writes if write in peer.good), default=0)
        unknown = [write for write in writes if write > last]  # done, half done, or not: their ends do not say
        if unknown and (verdict or found in unknown):
            return
        if verdict:
            self.wrong("wrong", f"{life.what}: what {peer_life.what} wrote ({last:#x}) is {VERDICTS[verdict]}")
        elif found in writes and found < last:
            self.wrong("lost", f"{life.what}: WRITE {last:#x} of {peer_life.what} ended well, and {found:#x} is there")
        elif found != last:
            refused = " which was refused," if peer_life.flag(found) & REFUSED else ""
            self.wrong("wrong", f"{life.what}: WRITE {found:#x} of {peer_life.what} is there,{refused} and not {last:#x}")

    def compare(self, sender: tuple[Life, Connection], receiver: tuple[Life, Connection]) -> None:
        """Who ended well has all that was sent, whatever came of the other side after that."""
        came = {send: number for (number, _), (send, _) in receiver[1].received.items()}
        for send, number in sorted(sender[1].sent.items()):
            if send not in came and receiver[1].ended == "OK":
                self.wrong("lost", f"message {send:#x} of {sender[0].what} was sent, and {receiver[0].what} never got it")
            elif send in came and number not in (-1, came[send]):
                self.wrong("wrong", f"message {send:#x} is number {number} to {sender[0].what}, and number {came[send]} to {receiver[0].what}")

    def ended(self, life: Life, status: int | None, killed: bool) -> None:
        """The process is gone, and its journal has been read. `status` is as of Popen.returncode."""
        life.over = time.monotonic()
        left = {**life.waiting, **life.standing}
        if killed:
            self.with_process += len(left)
        elif status != 0 or not life.done:
            self.wrong("died", f"{life.what} ended with status {status}")
        else:
            for number, op in left.items():
                self.wrong("lost", f"{life.what}: {op.type.name} {number:#x} never ended")
        life.waiting, life.standing = {}, {}

    def look_for_hung(self) -> None:
        now = time.monotonic()
        for life in self.lives.values():
            for number, op in list(life.waiting.items()):
                if now - op.begun < self.hung_s:
                    break
                self.wrong("hung", f"{life.what}: {op.type.name} {number:#x} has not ended within {self.hung_s:.0f} s")
                del life.waiting[number]
                life.standing[number] = op

    def forget(self) -> None:
        """Ends what is kept of connections that have been over for long."""
        now = time.monotonic()
        gone = {life.number for life in self.lives.values() if life.over and now - life.over > 60}
        self.pairs = {pair: sides for pair, sides in self.pairs.items() if any(not side.ended and life.number not in gone for life, side in sides)}
        for life in self.lives.values():
            if life.number in gone:
                life.connections.clear()
            over = [op for op, connection in life.connections.items() if connection.ended]
            for op in over[:-64]:  # those of late may have checks to come
                del life.connections[op]

    @property
    def bad(self) -> int:
        return sum(len(texts) for texts in self.wrongs.values())
