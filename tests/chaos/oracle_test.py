#!/usr/bin/env python3
"""oracle_test.py: that the oracle notices each kind of wrong, and nothing where all is right. Journals are written by hand."""
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from journal import Journal, Kind, Record, Type
from leaks import Holdings, holdings_of, leaks
from oracle import Life, Oracle

sys.path.append(str(Path(__file__).resolve().parents[1]))
from checks import Checks

CLIENT, SERVER = 1, 2
TIMEOUT, DISCONNECTED, CLOSED, DROPPED, PROTOCOL, NOT_STARTED = -11, -14, -15, -20, -19, -31


def begin(kind: Type, op: int, a: int = 0, b: int = 0) -> Record:
    return Record(Kind.BEGIN, kind, op, a, b)


def ended(op: int, status: int = 0, a: int = 0, b: int = 0) -> Record:
    return Record(Kind.ENDED, status, op, a, b)


def executed(op: int, verdict: int = 0, dropped: int = 0) -> Record:
    return Record(Kind.EXECUTED, verdict, op, dropped)


def of(life: int, number: int) -> int:
    return life << 32 | number


CALL = of(CLIENT, 1)
DONE = Record(Kind.DONE)


class World:
    """A client and a server, and what the oracle says of their journals."""

    def __init__(self) -> None:
        self.oracle = Oracle(hung_s=60.0)
        self.client = self.oracle.born(CLIENT, "client")
        self.server = self.oracle.born(SERVER, "server")

    def tell(self, life: Life, *records: Record) -> None:
        self.oracle.take(life, records)
        self.oracle.end_round()
        self.oracle.end_round()

    def wrong(self) -> list[str]:
        return [what for what, texts in self.oracle.wrongs.items() if texts]

    def call(self, *ends: Record) -> None:
        self.tell(self.client, begin(Type.CALL, CALL))
        self.tell(self.server, executed(CALL))
        self.tell(self.client, *ends)


def what_is_right() -> list[str]:
    world = World()
    world.call(ended(CALL), begin(Type.CALL, CALL + 1), Record(Kind.REFUSED, -4, CALL + 1), DONE)
    world.oracle.ended(world.client, 0, killed=False)
    return world.wrong()


def an_op_that_never_ends() -> list[str]:
    world = World()
    world.call(DONE)
    world.oracle.ended(world.client, 0, killed=False)
    return world.wrong()


def an_op_that_ends_with_its_process() -> list[str]:
    world = World()
    world.call()
    world.oracle.ended(world.client, -9, killed=True)
    return world.wrong()


def an_op_that_ends_twice() -> list[str]:
    world = World()
    world.call(ended(CALL), ended(CALL))
    return world.wrong()


def an_op_that_was_refused_and_ends() -> list[str]:
    world = World()
    world.tell(world.client, begin(Type.CALL, CALL), Record(Kind.REFUSED, -4, CALL), ended(CALL, TIMEOUT))
    return world.wrong()


def a_request_that_is_executed_twice() -> list[str]:
    world = World()
    world.call(ended(CALL))
    world.tell(world.server, executed(CALL))
    return world.wrong()


def a_request_that_was_refused_and_is_executed() -> list[str]:
    world = World()
    world.tell(world.client, begin(Type.CALL, CALL), Record(Kind.REFUSED, -4, CALL))
    world.tell(world.server, executed(CALL))
    return world.wrong()


def a_reply_with_wrong_bytes() -> list[str]:
    world = World()
    world.call(ended(CALL, 0, 3))
    return world.wrong()


def a_request_with_wrong_bytes() -> list[str]:
    world = World()
    world.tell(world.client, begin(Type.CALL, CALL))
    world.tell(world.server, executed(CALL, 3))
    return world.wrong()


def a_reply_that_nobody_gave() -> list[str]:
    world = World()
    world.tell(world.client, begin(Type.CALL, CALL), ended(CALL))
    return world.wrong()


def a_call_that_is_said_to_be_dropped() -> list[str]:
    world = World()
    world.call(ended(CALL, DROPPED))
    return world.wrong()


def dropped_by_a_server_that_ends(ends: bool, executed_before: bool) -> list[str]:
    world = World()
    world.client.server, world.server.drops = world.server, ends
    if executed_before:
        world.call(ended(CALL, DROPPED))
    else:
        world.tell(world.client, begin(Type.CALL, CALL), ended(CALL, DROPPED))
    return world.wrong()


def not_started(executed_before: bool) -> list[str]:
    world = World()
    if executed_before:
        world.call(ended(CALL, NOT_STARTED))
    else:
        world.tell(world.client, begin(Type.CALL, CALL), ended(CALL, NOT_STARTED))
    return world.wrong()


def a_status_that_must_not_be() -> list[str]:
    world = World()
    world.call(ended(CALL, PROTOCOL))
    return world.wrong()


def an_op_that_hangs() -> list[str]:
    world = World()
    world.call()
    world.client.waiting[CALL].begun -= 61
    world.oracle.look_for_hung()
    return world.wrong()


def a_process_that_dies() -> list[str]:
    world = World()
    world.oracle.ended(world.client, -11, killed=False)
    return world.wrong()


def send(op: int, connection: int, tag: int = 0) -> Record:
    return begin(Type.SEND, op, connection, tag)


def receive(op: int, connection: int, tag: int = 0, place: int = 0, count: int = 1) -> Record:
    return begin(Type.RECEIVE, op, connection, tag | place << 8 | count << 16)


def channel(received: list[tuple[int, int]], sent: int = 3, end: int = 0, other_end: int | None = None, tags: str = "000", number: int = -1) -> list[str]:
    """The client sends, and the server gets (number, which send); both ends have this status. `number` is the client's of all it sent."""
    world = World()
    connect, here, there = of(CLIENT, 100), of(CLIENT, 101), of(SERVER, 101)
    world.tell(world.client, begin(Type.CONNECTION, here, connect, 0), *(send(of(CLIENT, 1 + n), here, int(tags[n])) for n in range(sent)))
    world.tell(world.server, begin(Type.CONNECTION, there, of(SERVER, 100), connect))
    for index, (message, which) in enumerate(received):
        op = of(SERVER, 1 + index)
        world.tell(world.server, receive(op, there, int(tags[which - 1]) if which <= 3 else 0), ended(op, 0, message << 8, of(CLIENT, which)))
    known = number << 8 | 1 if number >= 0 else 0
    world.tell(world.client, *(ended(of(CLIENT, 1 + n), 0, known) for n in range(sent)), ended(here, end if other_end is None else other_end))
    world.tell(world.server, ended(there, end))
    return world.wrong()


def group(*ends: Record, tags: str = "012", there_tags: str = "012", after: float = 0.0) -> list[str]:
    """The client sends three, with these tags, and the server receives them as a group, whose ends are told."""
    world = World()
    connect, here, there = of(CLIENT, 100), of(CLIENT, 101), of(SERVER, 101)
    world.tell(world.client, begin(Type.CONNECTION, here, connect, 0), *(send(of(CLIENT, 1 + n), here, int(tags[n])) for n in range(3)))
    world.tell(world.server, begin(Type.CONNECTION, there, of(SERVER, 100), connect))
    world.tell(world.server, *(receive(of(SERVER, 1 + n), there, int(there_tags[n]), n, 3) for n in range(3)))
    world.tell(world.server, *ends)
    if after:
        for op in world.server.waiting.values():
            op.begun -= after
        world.oracle.look_for_hung()
        return world.wrong()
    world.tell(world.client, ended(here, DISCONNECTED))
    world.tell(world.server, ended(there, DISCONNECTED))
    return world.wrong()


def came(place: int, which: int, number: int = 0, status: int = 0) -> Record:
    return ended(of(SERVER, 1 + place), status, number << 8, of(CLIENT, which) if status == 0 else 0)


def refused(place: int) -> Record:
    return Record(Kind.REFUSED, -4, of(SERVER, 1 + place))


def over_another_channel() -> list[str]:
    world = World()
    here, other, there = of(CLIENT, 101), of(CLIENT, 103), of(SERVER, 101)
    world.tell(world.client, begin(Type.CONNECTION, here, of(CLIENT, 100)), begin(Type.CONNECTION, other, of(CLIENT, 102)), send(CALL, other))
    world.tell(world.server, begin(Type.CONNECTION, there, of(SERVER, 100), of(CLIENT, 100)), receive(of(SERVER, 1), there))
    world.tell(world.server, ended(of(SERVER, 1), 0, 0, CALL), ended(there, DISCONNECTED))
    return world.wrong()


GRANTS = ("windows", "receives")
HELD = Holdings(10, 1 << 20, 0, 100, 100, 3, 2, 5, 0, 2, 2)


def leak(**change: int) -> list[str]:
    return ["leaked"] if leaks(HELD, Holdings(**{**vars(HELD), **change}), 1 << 20) else []


def ring_of_records() -> list[str]:
    """A journal is read in order, also over its end."""
    with tempfile.TemporaryDirectory() as folder:
        journal, number = Journal(Path(folder) / "journal", room=8), 0
        read: list[Record] = []
        for count in (5, 8, 1, 8, 0, 3):
            for _ in range(count):
                number += 1
                journal.put(begin(Type.CALL, number))
            read += journal.take()
        journal.close()
    return [] if [record.id for record in read] == list(range(1, number + 1)) else ["wrong"]


REFUSED, OPEN = "refused", "open"
FLUSHED = -29
W, A, S = Type.WRITE, Type.ADD, Type.QUEUE_SEND


def queue(
    *ops: tuple[Type, int | str], found: int = 0, verdict: int = 0, counter: int = 0, came: tuple[int, ...] = (), end: int = DISCONNECTED, killed: bool = False
) -> list[str]:
    """A client's ops with how they end, numbers 1, 2, ...; and what the server found, and received."""
    world = World()
    here, there, connect = of(CLIENT, 200), of(SERVER, 200), of(CLIENT, 100)
    world.tell(world.client, begin(Type.CONNECT, connect), ended(connect), begin(Type.CONNECTION, here, connect))
    world.tell(world.server, begin(Type.CONNECTION, there, of(SERVER, 199), connect))
    for number, (kind, status) in enumerate(ops, 1):
        op = of(CLIENT, number)
        ends = [] if status == OPEN else [Record(Kind.REFUSED, -4, op)] if status == REFUSED else [ended(op, int(status))]
        world.tell(world.client, begin(kind, op, here), *ends)
    for index, number in enumerate(came):
        receive = of(SERVER, 300 + index)
        world.tell(world.server, begin(Type.QUEUE_RECEIVE, receive, there), ended(receive, 0, 0, of(CLIENT, number)))
    left = [Record(Kind.FOUND, 0, there, found and of(CLIENT, found), verdict), Record(Kind.FOUND, -1, there, counter)]
    world.tell(world.server, *left, ended(there, end))
    if killed:
        world.oracle.ended(world.client, -9, killed=True)
    else:
        world.tell(world.client, ended(here, DISCONNECTED))
    world.oracle.end_round()
    world.oracle.end_round()
    return world.wrong()


def one_that_died_just_now() -> list[str]:
    """Its state was told; then it ended, and nobody has waited for it yet."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    held = holdings_of(pid, {0: DONE, 1: DONE}, {"objects": dict.fromkeys(vars(HELD), 0)})
    os.waitpid(pid, 0)
    return [] if held is None else ["died"]


CASES: list[tuple[str, Callable[[], list[str]], list[str]]] = [
    ("nothing is said of what is right", what_is_right, []),
    ("an op that never ends is lost", an_op_that_never_ends, ["lost"]),
    ("an op may end with its process", an_op_that_ends_with_its_process, []),
    ("an op that ends twice is noticed", an_op_that_ends_twice, ["doubled"]),
    ("the end of an op that was refused is noticed", an_op_that_was_refused_and_ends, ["doubled"]),
    ("a request that is executed twice is noticed", a_request_that_is_executed_twice, ["doubled"]),
    ("a request that was refused and is executed is noticed", a_request_that_was_refused_and_is_executed, ["wrong"]),
    ("a reply with wrong bytes is noticed", a_reply_with_wrong_bytes, ["wrong"]),
    ("a request with wrong bytes is noticed", a_request_with_wrong_bytes, ["wrong"]),
    ("a reply that nobody gave is noticed", a_reply_that_nobody_gave, ["wrong"]),
    ("a call that is said to be dropped and was not is noticed", a_call_that_is_said_to_be_dropped, ["wrong"]),
    ("a server that ends may drop what it has executed", lambda: dropped_by_a_server_that_ends(ends=True, executed_before=True), []),
    ("a server that ends may drop what it has not executed", lambda: dropped_by_a_server_that_ends(ends=True, executed_before=False), []),
    ("a server that does not end and drops is noticed", lambda: dropped_by_a_server_that_ends(ends=False, executed_before=False), ["wrong"]),
    ("a call that was not started is no harm", lambda: not_started(executed_before=False), []),
    ("one that was executed all the same is noticed", lambda: not_started(executed_before=True), ["wrong"]),
    ("a status that must not be is noticed", a_status_that_must_not_be, ["wrong"]),
    ("an op that hangs is noticed", an_op_that_hangs, ["hung"]),
    ("a process that dies is noticed", a_process_that_dies, ["died"]),
    ("messages that come once and in order are right", lambda: channel([(0, 1), (1, 2), (2, 3)]), []),
    ("messages may be reported out of order", lambda: channel([(1, 2), (0, 1), (2, 3)]), []),
    ("a message that comes twice is noticed", lambda: channel([(0, 1), (1, 2), (2, 2)], end=DISCONNECTED), ["doubled"]),
    ("two messages of one number are noticed", lambda: channel([(0, 1), (0, 2)], end=DISCONNECTED), ["doubled"]),
    ("messages in another order are noticed", lambda: channel([(0, 1), (1, 3), (2, 2)]), ["wrong"]),
    ("a message that was sent and never came is noticed", lambda: channel([(0, 1), (1, 2)]), ["lost"]),
    ("a number that is missing is noticed", lambda: channel([(0, 1), (2, 3), (3, 2)], end=0), ["lost", "wrong"]),
    ("a message that was sent may be lost with its connection", lambda: channel([(0, 1), (1, 2)], end=DISCONNECTED), []),
    ("a message that was sent is lost too if only its sender's end is bad", lambda: channel([(0, 1), (1, 2)], other_end=DISCONNECTED), ["lost"]),
    ("messages of several tags may come in another order", lambda: channel([(0, 2), (1, 1), (2, 3)], tags="010"), []),
    ("messages of a tag in another order are noticed", lambda: channel([(0, 3), (1, 2), (2, 1)], tags="010"), ["wrong"]),
    ("a number that both sides know is the same", lambda: channel([(4, 1)], sent=1, end=DISCONNECTED, number=4), []),
    ("a number that the sides do not agree on is noticed", lambda: channel([(4, 1)], sent=1, end=DISCONNECTED, number=5), ["wrong"]),
    ("a group that ends together is right", lambda: group(came(0, 1), came(1, 2), came(2, 3)), []),
    ("a group of one tag may be filled in any order", lambda: group(came(0, 2), came(1, 1), came(2, 3), tags="000", there_tags="000"), []),
    ("a group may be closed while it is told", lambda: group(came(0, 1), came(1, 0, 0, CLOSED), came(2, 0, 0, CLOSED)), []),
    ("a group that is over in part is noticed", lambda: group(came(0, 1), came(1, 2), came(2, 0, 0, DISCONNECTED)), ["wrong"]),
    ("a group of two messages is noticed", lambda: group(came(0, 1), came(1, 2), came(2, 3, 1)), ["wrong"]),
    ("a group of which a part hangs is noticed", lambda: group(came(0, 1), came(1, 2), after=61), ["hung"]),
    ("a group that is refused is right", lambda: group(refused(0), refused(1), refused(2)), []),
    ("a group of which a part is refused is noticed", lambda: group(came(0, 1), refused(1), refused(2)), ["wrong"]),
    ("a message in a buffer with another tag is noticed", lambda: group(came(0, 1), came(1, 2), came(2, 3), tags="011"), ["wrong"]),
    ("a message of nobody is noticed", lambda: channel([(0, 77)], end=DISCONNECTED), ["wrong"]),
    ("a message of another channel is noticed", over_another_channel, ["wrong"]),
    ("a queue that did what it said is right", lambda: queue((W, 0), (W, 0), (A, 0), (S, 0), found=2, counter=1, came=(4,)), []),
    ("a queue that did nothing is right", queue, []),
    ("a WRITE that ended well and is not there is noticed", lambda: queue((W, 0), (W, 0), found=1), ["lost"]),
    ("a WRITE that ended well where nothing is is noticed", lambda: queue((W, 0)), ["wrong"]),
    ("a WRITE that was refused and is there is noticed", lambda: queue((W, 0), (W, REFUSED), found=2), ["wrong"]),
    ("a WRITE that was flushed may be there", lambda: queue((W, 0), (W, FLUSHED), found=2), []),
    ("a WRITE that was flushed need not be there", lambda: queue((W, 0), (W, FLUSHED), found=1), []),
    ("a WRITE that was flushed may be there in part", lambda: queue((W, 0), (W, FLUSHED), found=77, verdict=3), []),
    ("a WRITE that was open when its process was killed may be there", lambda: queue((W, 0), (W, OPEN), found=2, killed=True), []),
    ("a WRITE that ended well with wrong bytes is noticed", lambda: queue((W, 0), found=1, verdict=3), ["wrong"]),
    ("an addition that ended well and was not made is noticed", lambda: queue((A, 0), (A, 0), counter=1), ["lost"]),
    ("an addition that was refused and was made is noticed", lambda: queue((A, 0), (A, REFUSED), counter=2), ["doubled"]),
    ("an addition that was flushed may have been made", lambda: queue((A, 0), (A, FLUSHED), counter=2), []),
    ("an addition that was made twice is noticed", lambda: queue((A, 0), (A, FLUSHED), counter=3), ["doubled"]),
    ("a message over a queue that never came is noticed", lambda: queue((S, 0), (S, 0), came=(1,)), ["lost"]),
    ("a message over a queue may be lost with a close", lambda: queue((S, 0), (S, 0), came=(1,), end=CLOSED), []),
    ("a message over a queue that was flushed may have come", lambda: queue((S, 0), (S, FLUSHED), came=(1, 2)), []),
    ("a message over a queue that was refused and came is noticed", lambda: queue((S, 0), (S, REFUSED), came=(1, 2)), ["wrong"]),
    ("a message over a queue that comes twice is noticed", lambda: queue((S, 0), came=(1, 1)), ["doubled"]),
    ("messages over a queue in another order are noticed", lambda: queue((S, 0), (S, 0), came=(2, 1)), ["wrong"]),
    ("what is held as before is no leak", leak, []),
    ("memory may grow a little", lambda: leak(memory=3 << 19), []),
    *((f"more {name.replace('_', ' ')} are a leak", partial(leak, **{name: 9 << 20}), ["leaked"]) for name in vars(HELD) if name not in GRANTS),
    *((f"fewer {name} to be granted are a leak", partial(leak, **{name: 99}), ["leaked"]) for name in GRANTS),
    ("a journal is read in order, over its end", ring_of_records, []),
    ("one that has died just now holds nothing, and is no trouble", one_that_died_just_now, []),
]


def main() -> int:
    checks = Checks(len(CASES))
    for name, case, wanted in CASES:
        got = case()
        checks.check(got == wanted, name, f"{got}, not {wanted}")
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
