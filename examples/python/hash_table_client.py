"""hash_table_client.py: looks up, inserts and updates in the memory of hash_table_server (examples/c).

    hash_table_client.py ADDRESS get KEY           prints the value; status 2 if it is not there
    hash_table_client.py ADDRESS put KEY VALUE
    hash_table_client.py ADDRESS add KEY NUMBER    to the number that is its value; prints the sum
    hash_table_client.py ADDRESS storm NAME ROUNDS [OTHER...]

It uses READ, WRITE and compare-and-swap alone; the server's processor does nothing for it. hash_table.h in examples/c has the layout, and
says why it is right, whatever other clients do. A storm is for tests: many puts, adds and gets at once with those of others, each checked."""
import struct
import sys
import time
import zlib

import copyrpc

HELLO = struct.Struct("<QQIIII")  # magic, address, key, slots, entries, bytes of an entry
MAGIC = int.from_bytes(b"CRPCHT01", "little")
HEAD_BYTES, BUCKET_SLOTS, PROBES, ENTRIES_MAX = 64, 8, 16, (1 << 24) - 1
ENTRY = struct.Struct("<QIHH108s")  # word, slot, bytes of the key, of the value, both; the checksum follows
ENTRY_BYTES, DATA_BYTES = ENTRY.size + 4, 108
LOOKS_MAX = 100  # at an entry that is not what its slot says, while the slot stays as it is
BUCKET, FOUND, WRITTEN, WORD = slice(0, 64), slice(64, 192), slice(192, 320), slice(320, 328)  # in the client's region


class TableError(Exception):
    pass


class Table:
    def __init__(self, context, address):
        self.queue = context.queue_connect(address)
        hello = self.queue.info().private_data.ljust(HELLO.size, b"\0")
        magic, start, key, self.slots, self.entries, entry_bytes = HELLO.unpack_from(hello)
        if magic != MAGIC or entry_bytes != ENTRY_BYTES or self.slots < BUCKET_SLOTS or self.slots & (self.slots - 1) or self.entries > ENTRIES_MAX:
            raise TableError("the server has no hash table of this kind")
        self.region = context.register(bytearray(WORD.stop), "local_write")
        self.head = copyrpc.Remote(start, key)
        self.spare = 0  # number of the entry that this client owns

    def slot_at(self, slot):
        return self.head.at(HEAD_BYTES + 8 * slot)

    def entry_at(self, number):
        if not 0 < number <= self.entries:
            raise TableError("the table is damaged")
        return self.slot_at(self.slots).at((number - 1) * ENTRY_BYTES)

    def read(self, part, remote):
        self.queue.read(self.region[part], remote)
        return self.region.memory[part]

    def write_and_swap(self, part, data, entry, remote, before, after):
        """Writes to an entry, and then swaps a word that names it; both leave at once, and are done in this order."""
        self.region.memory[part] = data
        write = self.queue.post_write(self.region[part], entry)
        swapped = self.queue.compare_swap(remote, before, after) == before
        write.wait()
        return swapped

    # ---- Free entries ----

    def take_entry(self):
        while not self.spare:
            head = int.from_bytes(self.read(WORD, self.head), "little")
            number = head & ENTRIES_MAX
            if not number:
                raise TableError("the table is full")
            below = int.from_bytes(self.read(WORD, self.entry_at(number)), "little") & ENTRIES_MAX
            if self.queue.compare_swap(self.head, head, next_head(head, below)) == head:
                self.spare = number

    def give_entry(self):
        while self.spare:
            head = int.from_bytes(self.read(WORD, self.head), "little")
            below = (head & ENTRIES_MAX).to_bytes(8, "little")
            if self.write_and_swap(WORD, below, self.entry_at(self.spare), self.head, head, next_head(head, self.spare)):
                self.spare = 0

    # ---- Searching ----

    def find(self, key):
        """Returns the slot that the key has or can have, its word (0: it is free), and the value (None: it is not there)."""
        hash = zlib.crc32(key)
        first = hash * BUCKET_SLOTS & (self.slots - 1)
        for probe in range(min(PROBES, self.slots // BUCKET_SLOTS)):
            bucket = first + probe * BUCKET_SLOTS & (self.slots - 1)
            place = self.find_in_bucket(key, hash, bucket)
            if place:
                return place
        return None

    def find_in_bucket(self, key, hash, bucket):
        begin, last, looks = 0, None, 0
        while True:
            words = struct.unpack("<8Q", self.read(BUCKET, self.slot_at(bucket)))
            for index in range(begin, BUCKET_SLOTS):
                slot, word = bucket + index, words[index]
                if not word:
                    return slot, 0, None
                if word >> 56 != hash >> 24:
                    continue
                entry = self.read_entry(slot, word)
                if entry is None:  # it was an entry of another time: the slot has changed
                    begin = index
                    break
                if entry[0] == key:
                    return slot, word, entry[1]
            else:
                return None
            looks = looks + 1 if word == last else 0
            last = word
            if looks == LOOKS_MAX:
                raise TableError("the table is damaged")

    def read_entry(self, slot, word):
        entry = bytes(self.read(FOUND, self.entry_at(word & ENTRIES_MAX)))
        its_word, its_slot, key_bytes, value_bytes, data = ENTRY.unpack_from(entry)
        checksum = int.from_bytes(entry[ENTRY.size :], "little")
        if (its_word, its_slot) != (word, slot) or key_bytes + value_bytes > DATA_BYTES or checksum != zlib.crc32(entry[: ENTRY.size]):
            return None
        return data[:key_bytes], data[key_bytes : key_bytes + value_bytes]

    # ---- Writing ----

    def change(self, key, make):
        """Gives the key the value that make() makes of the one before; again, if another client was quicker."""
        while True:
            place = self.find(key)
            if place is None:
                raise TableError("the table is full")
            slot, word, before = place
            value = make(before)
            if not key or len(key) + len(value) > DATA_BYTES:
                raise TableError(f"a key has a byte at least, and with its value {DATA_BYTES} at most")
            self.take_entry()
            after = (zlib.crc32(key) >> 24) << 56 | ((word >> 24) + 1 & 0xFFFFFFFF) << 24 | self.spare
            entry = ENTRY.pack(after, slot, len(key), len(value), key + value)
            entry += zlib.crc32(entry).to_bytes(4, "little")
            if self.write_and_swap(WRITTEN, entry, self.entry_at(self.spare), self.slot_at(slot), word, after):
                self.spare = word & ENTRIES_MAX  # what the slot has named before is this client's now
                return value

    def get(self, key):
        place = self.find(key)
        return place and place[2]

    def put(self, key, value):
        self.change(key, lambda before: value)

    def add(self, key, number):
        def sum_of(before):
            if before is not None and not before.isdigit():
                raise TableError("its value is no number")
            return b"%d" % (int(before or 0) + number)

        return int(self.change(key, sum_of))


def next_head(head, number):
    return ((head >> 24) + 1 & (1 << 40) - 1) << 24 | number


# ---- A storm ----


def value_of(key, number):
    """Bytes of another round would be noticed."""
    return b"%s %d " % (key, number) + bytes([ord("a") + number % 26]) * (number * 7 % 40)


def round_in(table, key):
    value = table.get(key)
    if value is None:
        return 0
    number = int(value.split()[1])
    if value != value_of(key, number):
        raise TableError(f"{key.decode()}: its value is not whole")
    return number


def storm(table, name, rounds, others):
    seen = {}
    for number in range(1, rounds + 1):
        table.add(b"counter-%d" % (number % 4), 1)
        own = b"%s-%d" % (name, number % 8)
        table.put(own, value_of(own, number))
        if round_in(table, own) != number:
            raise TableError(f"{own.decode()}: it is not what this client has put there")
        for other in others:
            key = b"%s-%d" % (other, number % 8)
            found = round_in(table, key)
            if found < seen.get(key, 0):
                raise TableError(f"{key.decode()}: its value is older than what was there before")
            seen[key] = found
        while number == 1 and not all(round_in(table, b"%s-1" % other) for other in others):
            time.sleep(0.001)  # until each of them has begun, so that they meet
    return f"{name.decode()}: {rounds} rounds"


# ---- The program ----


def run(table, command, words):
    """Returns what to print, or None."""
    if command == "get":
        value = table.get(words[0])
        if value is None:
            print(f"hash_table_client: {words[0].decode()}: it is not there", file=sys.stderr)
            sys.exit(2)
        return value.decode()
    if command == "put":
        return table.put(*words)
    if command == "add":
        return table.add(words[0], int(words[1]))
    return storm(table, words[0], int(words[1]), words[2:])


def main():
    least = {"get": 1, "put": 2, "add": 2, "storm": 2}
    words = [word.encode() for word in sys.argv[3:]]
    command = sys.argv[2] if len(sys.argv) > 2 else ""
    fits = command in least and (len(words) == least[command] or command == "storm" and len(words) > 2)
    if not fits or command in ("add", "storm") and not words[1].isdigit():
        sys.exit("usage: hash_table_client.py ADDRESS get KEY | put KEY VALUE | add KEY NUMBER | storm NAME ROUNDS [OTHER...]")
    with copyrpc.Context(queues=True) as context:
        table = Table(context, sys.argv[1])
        try:
            answer = run(table, command, words)
        finally:
            table.give_entry()
        table.queue.drain(1.0)
    if answer is not None:
        print(answer)


if __name__ == "__main__":
    try:
        main()
    except (copyrpc.CopyrpcError, TableError) as error:
        sys.exit(f"hash_table_client: {error}")
