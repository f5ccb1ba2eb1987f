"""journal.py: the orchestrator's end of a journal: c/journal.h has the format, README.md what each record means."""
import enum
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

MAGIC = 0x736F6163
ROOM = 1 << 14  # records
HEADER_BYTES = 4096
RECORD = struct.Struct("<IiQQQ")
HEAD, TAIL = 64 // 8, 128 // 8  # in words of 8 bytes


class Kind(enum.IntEnum):
    READY = 1
    BEGIN = 2
    REFUSED = 3
    ENDED = 4
    EXECUTED = 5
    STATE = 6
    DONE = 7
    TROUBLE = 8
    MISTAKE = 9
    FOUND = 10


class Type(enum.IntEnum):
    CALL = 1
    REPLY = 2
    CANCEL = 3
    SEND = 4
    RECEIVE = 5
    CONNECT = 6
    CONNECTION = 7
    QUEUE_SEND = 8
    QUEUE_RECEIVE = 9
    WRITE = 10
    READ = 11
    ADD = 12


class Record(NamedTuple):
    kind: int
    status: int = 0
    id: int = 0
    a: int = 0
    b: int = 0


class Journal:
    """A new journal in this file. What a killed worker has written stays readable."""

    def __init__(self, path: Path, room: int = ROOM) -> None:
        self.path, self.room = path, room
        with path.open("w+b") as file:
            file.truncate(HEADER_BYTES + room * RECORD.size)
            self.map = mmap.mmap(file.fileno(), 0)
        self.map[0:8] = struct.pack("<II", MAGIC, room)
        self.words = memoryview(self.map).cast("Q")  # stores of whole words, unlike struct's
        self.read = 0

    def take(self) -> list[Record]:
        """All that has been written since the last time, in order."""
        head, records = self.words[HEAD], list[Record]()
        while self.read < head:
            begin = self.read % self.room
            count = min(head - self.read, self.room - begin)
            offset = HEADER_BYTES + begin * RECORD.size
            records += map(Record._make, RECORD.iter_unpack(self.map[offset : offset + count * RECORD.size]))
            self.read += count
        self.words[TAIL] = self.read
        return records

    def put(self, record: Record) -> None:
        """As a worker does."""
        head = self.words[HEAD]
        RECORD.pack_into(self.map, HEADER_BYTES + head % self.room * RECORD.size, *record)
        self.words[HEAD] = head + 1

    def close(self) -> None:
        self.words.release()
        self.map.close()
        self.path.unlink(missing_ok=True)
