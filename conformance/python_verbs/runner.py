"""runner.py: a peer of queues that has pyverbs alone, and nothing of copyrpc: as c/foreign.c, in Python. It does what run.py says, as far as
scenarios need it whose queues know each other by addresses. docs/conformance.md has the verbs."""
import select
import struct
import sys
import zlib
from collections import deque
from pathlib import Path

from verbs import HEADER_BYTES, INFINIBAND, QUEUE_KEY, Address, Device, Piece, QueuePair, Target, source_of

sys.path.append(str(Path(__file__).resolve().parent.parent))
from runner_lines import Commands, Refused, big, event, payload, say, told

POLL_SECONDS = 0.001  # while ops are open: old versions of pyverbs do not tell the descriptor of a completion channel
RESULTS = 4096  # of atomics
SCRATCH_BYTES = 65536  # for payloads that are inline


class Post:
    """The ops of one line."""

    def __init__(self, queue, opcode, region, words):
        self.queue = queue
        self.opcode = opcode
        self.region = region
        self.words = words
        self.count = words.get("count", 1)
        self.submitted = self.ended = self.bytes = self.checksum = 0
        self.status = "CRPC_OK"
        if "lengths" in words:
            self.places = list(zip(words["offsets"], words["lengths"]))
        else:
            self.places = [(words.get("offset", 0), words.get("length", 0))]
        self.length = sum(length for _, length in self.places)
        self.step = words.get("step", words.get("length", 0))
        moves = "remote" in words and not self.atomic
        self.remote_step = words.get("remote_step", self.step if moves else 0)
        for index in range(self.count if "seed" in words and region else 0):
            self.scatter(index, payload(self.length, words["seed"] + index))

    @property
    def atomic(self):
        return self.opcode in ("compare_swap", "fetch_add")

    def pieces(self, index):
        return [Piece(self.region, offset + index * self.step, length) for offset, length in self.places if length]

    def scatter(self, index, data):
        for piece in self.pieces(index):
            piece.region.write(data[: piece.bytes], piece.bytes, piece.offset)
            data = data[piece.bytes :]

    def gather(self, index, size):
        data = b"".join(piece.region.read(piece.bytes, piece.offset) for piece in self.pieces(index))
        return data[:size]


class Queue:
    """Of one for datagrams, `key` is its queue key."""

    def __init__(self, name, pair, words, key=None):
        self.name = name
        self.pair = pair
        self.key = key
        self.room = {"receive": words.get("receives", 1), "send": words.get("sends", 256)}
        self.open = {"receive": 0, "send": 0}
        self.posted = {"receive": 0, "send": 0}
        self.waiting = {"receive": deque(), "send": deque()}
        self.connected, self.over, self.draining = key is not None, False, False
        self.status = "CRPC_OK"

    def idle(self):
        return not any(self.open.values()) and not any(self.waiting.values())


class Runner:
    def __init__(self):
        self.device = None
        self.commands = Commands(sys.argv[1], [name[3:] for name in dir(self) if name.startswith("do_")])
        self.clear()

    def clear(self):
        self.things = {}
        self.letter = None  # the datagram that came last: its queue, header, and the number of the queue pair it is from
        self.posts = {}  # by number: post, index, and where the result of an atomic lands
        self.number = 0

    def do_hello(self):
        return self.commands.hello("pyverbs", "Python")

    # ---- The device, memory ----

    def do_open(self, device, driver, **_):
        self.device = Device(device)
        self.scratch = self.device.register(SCRATCH_BYTES, 1)
        self.results = self.device.register(8 * RESULTS, 1)
        return {"device": device, "driver_name": driver}

    def do_reset(self):
        if self.device:
            self.device.close()
        self.device = None
        self.clear()

    def do_register(self, name, length, access):
        self.things[name] = self.device.register(length, access)

    def do_region(self, region):
        return {"address": big(region.buf), "remote_key": region.rkey}

    def do_memory(self, region, offset=0, length=8, seed=None, value=None):
        if seed is not None:
            region.write(payload(length, seed), length, offset)
        elif value is not None:
            region.write(struct.pack("<Q", value), 8, offset)
        fields = told(region.read(length, offset))
        if offset + 8 <= region.length:  # pyverbs does not look
            fields["value"] = big(struct.unpack("<Q", region.read(8, offset))[0])
        return fields

    # ---- Queues ----

    def make_queue(self, name, words, key=None):
        sizes = {key: words[key] for key in ("sends", "send_pieces", "receives", "receive_pieces", "inline_bytes") if words.get(key)}
        self.things[name] = Queue(name, QueuePair(self.device, queue_key=key, **sizes), words, key)

    def do_queue_blob(self, name, **words):
        """Nobody reads the blob: it is connected by its address."""
        self.make_queue(name, words)
        return {"blob": ""}

    def do_datagrams_open(self, name, queue_key=0, **words):
        self.make_queue(name, words, queue_key or QUEUE_KEY)

    @staticmethod
    def address_fields(address):
        return dict(address._asdict(), gid=address.gid.hex())

    def do_queue_address(self, queue):
        return self.address_fields(queue.pair.address())

    def do_queue_join_address(self, queue, gid, **numbers):
        queue.pair.connect(Address(gid=bytes.fromhex(gid), **numbers))
        queue.connected = True
        event("connected", endpoint=queue.name, status="CRPC_OK")

    def do_queue_info(self, queue):
        state = "connected" if queue.connected else "disconnected"
        return {"state": state, "sends_open": queue.open["send"], "receives_open": queue.open["receive"], "receives": queue.room["receive"]}

    def do_queue_stats(self, queue):
        return {"sends": queue.posted["send"], "receives": queue.posted["receive"]}

    def do_queue_fail(self, queue):
        self.end(queue, "CRPC_E_DISCONNECTED")

    def do_queue_drain(self, queue):
        queue.draining = True

    def do_queue_close(self, queue):
        queue.pair.close()
        queue.over, queue.connected = True, False

    def end(self, queue, status):
        """What is open is flushed. The first status is why."""
        if queue.status == "CRPC_OK":
            queue.status = status
        if queue.connected and not queue.over:
            queue.over = True
            queue.pair.fail()

    # ---- Targets ----

    def do_target_open(self, name, queue, gid, queue_key=0, **numbers):
        self.things[name] = Target(self.device, Address(gid=bytes.fromhex(gid), **numbers), queue_key or QUEUE_KEY)

    def do_target_of(self, name):
        queue, header, done = self.letter
        there = queue.pair.address()
        lid = done.lid if there.link == INFINIBAND else 0
        there = there._replace(queue_pair_number=done.source, packet_sequence_number=0, lid=lid, gid=source_of(header, there.link, done.grh))
        self.things[name] = Target(self.device, there, queue.key)

    def do_target_address(self, target):
        return self.address_fields(target.address)

    def do_target_close(self, target):
        target.close()

    # ---- Ops ----

    def do_post(self, queue, opcode, region=None, **words):
        queue.waiting["send"].append(Post(queue, opcode, region, words))

    def do_post_receive(self, queue, region=None, **words):
        queue.waiting["receive"].append(Post(queue, "receive", region, words))

    def submit(self, queue):
        """Posts what there is room for, in order. What a queue that is over has waiting, fails."""
        for kind, waiting in queue.waiting.items():
            while waiting and (queue.open[kind] < queue.room[kind] or queue.over):
                post = waiting[0]
                self.submit_one(post, kind, post.submitted)
                post.submitted += 1
                if post.submitted == post.count:
                    waiting.popleft()

    def submit_one(self, post, kind, index):
        if post.queue.over:
            self.tell_end(post, index, "CRPC_E_DISCONNECTED")
            return
        if kind == "send" and post.queue.key is not None and post.words["target"].closed:
            self.tell_end(post, index, "CRPC_E_CLOSED")
            return
        self.number += 1
        result = self.number % RESULTS * 8
        self.posts[self.number] = post, index, result
        post.queue.open[kind] += 1
        post.queue.posted[kind] += 1
        if kind == "receive":
            post.queue.pair.receive(self.number, post.pieces(index))
        else:
            self.send(post, index, result)

    def send(self, post, index, result):
        words = post.words
        pieces = post.pieces(index) if post.region else []
        if words.get("inline") and not post.region:
            self.scratch.write(payload(post.length, words.get("seed", 0) + index), post.length, 0)
            pieces = [Piece(self.scratch, 0, post.length)] if post.length else []
        if post.atomic:
            pieces = [Piece(self.results, result, 8)]
        post.queue.pair.post(
            self.number, post.opcode, pieces, remote=words.get("remote", 0) + index * post.remote_step, key=words.get("remote_key", 0),
            immediate=words.get("immediate", 0) + index, compare=words.get("compare", 0), operand=words.get("operand", 0),
            inline=bool(words.get("inline")), fence=bool(words.get("fence")), solicited=bool(words.get("solicited")),
            target=words.get("target"),
        )  # fmt: skip

    def take(self, done):
        post, index, result = self.posts.pop(done.number)
        post.queue.open["receive" if post.opcode == "receive" else "send"] -= 1
        if done.status != "CRPC_OK":
            self.tell_end(post, index, done.status)
            if done.status != "CRPC_E_FLUSHED":
                self.end(post.queue, done.status)
            return
        fields = {}
        if post.opcode in ("receive", "read"):
            # Of a READ, the device counts nothing on some drivers.
            size = 0 if done.written else done.bytes if post.opcode == "receive" else post.length
            data = post.gather(index, size) if size else b""
            if post.opcode == "receive" and post.queue.key is not None:
                self.letter = post.queue, data[:HEADER_BYTES], done
                data = data[HEADER_BYTES:]
            fields = {"length": len(data), "checksum": zlib.crc32(data), "data": data}
        if post.atomic:
            fields["before"] = big(struct.unpack("<Q", self.results.read(8, result))[0])
        if post.opcode == "receive":
            if done.immediate is not None:
                fields["immediate"] = done.immediate
            fields.update(written=done.bytes if done.written else 0, queue=post.queue.name)
            if post.queue.key is not None:
                fields["source"] = done.source
        self.tell_end(post, index, "CRPC_OK", **fields)

    def tell_end(self, post, index, status, data=b"", **fields):
        kind = "taken" if post.opcode == "receive" else "completed"
        if not post.words.get("summary"):
            event(kind, id=post.words["id"] + index, status=status, **fields, opcode=0)
            return
        post.status = status if post.status == "CRPC_OK" else post.status
        post.bytes += len(data)
        post.checksum = zlib.crc32(data, post.checksum)
        post.ended += 1
        if post.ended == post.count:
            event(kind, id=post.words["id"], status=post.status, ended=post.ended, length=post.bytes, checksum=post.checksum)

    # ---- Turns ----

    def queues(self):
        return [thing for thing in self.things.values() if isinstance(thing, Queue)]

    def look_after(self, queue):
        if queue.draining and not queue.over and not queue.open["send"] and not queue.waiting["send"]:
            self.end(queue, "CRPC_OK")
        if queue.connected and queue.over and queue.idle():
            queue.connected = False
            event("disconnected", endpoint=queue.name, status=queue.status)

    def turn(self):
        while self.device:
            for queue in self.queues():
                self.submit(queue)
            done = self.device.poll()
            if not done:
                break
            for one in done:
                self.take(one)
        for queue in self.queues():
            self.look_after(queue)

    def obey(self, line):
        """The answer to a line."""
        try:
            verb, words = self.commands.take(line)
            for key in ("queue", "region", "target"):
                if key in words and words[key] not in self.things:
                    return {"done": "UNKNOWN_NAME"}
                if key in words:
                    words[key] = self.things[words[key]]
            return {"done": "CRPC_OK", **(getattr(self, f"do_{verb}")(**words) or {})}
        except Refused as refused:
            return refused.answer()

    def run(self):
        source = sys.stdin.fileno()
        rest = b""
        while True:
            self.turn()
            waits = bool(self.posts)
            if not select.select([source], [], [], POLL_SECONDS if waits else None)[0]:
                continue
            got = sys.stdin.buffer.raw.read(65536)
            if not got:
                break
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                say(**self.obey(line.decode()))
        self.do_reset()


Runner().run()
