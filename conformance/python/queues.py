"""queues.py: the verbs of queues. In a context that is opened with `arrays`, ops are posted in arrays, and Context.poll has their
completions; otherwise each is a coroutine."""
import asyncio
import contextlib
import zlib

from datagrams import sent_from
from dynamic import one_of_dci
from words import ACCESSES, big, event, payload, picked, status_of

import copyrpc

OPCODES = {name: getattr(copyrpc, f"QUEUE_{name.upper()}") for name in (
    "send", "send_immediate", "send_invalidate", "write", "write_immediate", "read", "compare_swap", "fetch_add", "nop", "receive",
    "tag_add", "tag_remove", "tag_sync")}
EVENTS = {"receive": "taken", "tag_add": "matched"}
INDEX_BITS = 20  # of user_data: the index of an op in its line; above it, which line


QUEUE = ("state kind sends send_pieces inline_bytes receives receive_pieces sends_open receives_open queues streams streams_failed tags "
         "tags_open")


def text_of(data):
    """Private data. The network may have added zeros."""
    return data.split(b"\0")[0].decode()


class Post:
    """The ops of a line."""

    def __init__(self, opcode, id, region, offset, length, lengths, offsets, count=1, step=None, summary=0, seed=None):
        self.opcode, self.id, self.region, self.count, self.summary = opcode, id, region, count, summary
        sizes, starts = list(lengths or [length]), list(offsets or [offset])
        self.in_pieces = bool(lengths)
        self.places = list(zip(starts + [0] * len(sizes), sizes))
        self.length = sum(sizes)
        self.step = length if step is None else step
        self.ended, self.status, self.bytes, self.checksum = 0, "CRPC_OK", 0, 0
        self.data = [payload(self.length, seed + index) for index in range(count)] if seed is not None else []
        for index, data in enumerate(self.data if region is not None else []):
            for part in self.slices(index):
                part.memory[:], data = data[: len(part)], data[len(part) :]

    def slices(self, index):
        moved = index * self.step
        return [self.region[start + moved : start + moved + size] for start, size in self.places] if self.region is not None else []

    def named(self, index):
        """The payload of an op, as the package takes it."""
        if self.region is None:
            return self.data[index] if self.data else b""
        return self.slices(index) if self.in_pieces else self.slices(index)[0]

    def tell(self, index, status, fields, size=None):
        """`size` of a receive is what came; of a datagram, which has a source, and of what is unexpected, with its header."""
        data = b""
        if status == "CRPC_OK" and self.opcode in ("read", *EVENTS):
            header = copyrpc.HEADER_BYTES if "source" in fields else copyrpc.TAG_HEADER_BYTES if "unexpected" in fields else 0
            data = b"".join(bytes(part.memory) for part in self.slices(index))[header:size]
            fields = {"length": len(data), "checksum": zlib.crc32(data), **fields}
        kind = EVENTS.get(self.opcode, "completed")
        fields.pop("unexpected", None)
        fields.update({key: big(fields[key]) for key in ("tag", "before") if key in fields})
        if not self.summary:
            event(kind, id=self.id + index, status=status, **(fields if status == "CRPC_OK" else {}))
            return
        self.ended += 1
        self.bytes += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        self.status = self.status if self.status != "CRPC_OK" else status
        if self.ended == self.count:
            event(kind, id=self.id, status=self.status, ended=self.ended, length=self.bytes, checksum=self.checksum)


class Queues:
    """What a Runner has of them."""

    def queue_options(self, sparse=0, shared=None, private="", **options):
        shared = self.things[shared] if shared is not None else None
        return copyrpc.QueueOptions(sparse=bool(sparse), receive_queue=shared, private_data=private.encode(), **options)

    # ---- Connecting ----

    def do_queue_open(self, name, receives, receive_pieces=0):
        self.name_queue(name, self.context.queue_open(copyrpc.QueueOptions(receives=receives, receive_pieces=receive_pieces)))

    def name_queue(self, name, queue):
        self.things[name] = self.queue_names[queue.bits] = queue  # which its completions call by its bits
        queue.user_data = name

    def do_queue_connect(self, name, address, **options):
        self.begin(self.queue_life(name, None, self.context.aqueue_connect(address, self.queue_options(**options))))

    def do_queue_accept(self, connection, name, **options):
        self.begin(self.queue_life(name, None, connection.aaccept(self.queue_options(**options))))

    def do_queue_reject(self, connection, private=""):
        connection.reject(private.encode())

    def do_queue_blob(self, name, **options):
        queue, blob = self.context.queue_blob(self.queue_options(**options))
        self.name_queue(name, queue)
        return {"blob": blob.hex()}

    def do_queue_join(self, queue, blob):
        self.begin(self.queue_life(queue.user_data, queue, queue.ajoin(bytes.fromhex(blob))))

    def do_queue_address(self, queue):
        return self.address_fields(queue.address())

    @staticmethod
    def address_fields(address):
        fields = {**vars(address), "gid": address.gid.hex()}
        del fields["grh_required"]  # no runner hands it on
        return fields

    def do_queue_join_address(self, queue, gid, **numbers):
        address = copyrpc.QueueAddress(gid=bytes.fromhex(gid), **numbers)
        joining = asyncio.get_running_loop().run_in_executor(None, queue.join_address, address)
        self.begin(self.queue_life(queue.user_data, queue, joining))

    async def queue_life(self, name, queue, connecting):
        try:
            queue = await connecting or queue
        except (Exception, asyncio.CancelledError) as error:
            event("connected", endpoint=name, status=status_of(error))
            return
        self.name_queue(name, queue)
        event("connected", endpoint=name, status="CRPC_OK")
        while queue.error is None:
            await asyncio.sleep(0.002)
        if not isinstance(queue.error, copyrpc.Closed):
            event("disconnected", endpoint=name, status="CRPC_OK" if queue.error.status == 0 else status_of(queue.error))

    def do_queue_modify(self, queue, **changes):
        if "access" in changes:
            changes["access"] = [right for bit, right in enumerate(ACCESSES) if changes["access"] >> bit & 1]
        queue.modify(**changes)

    async def do_run_low(self, queue, limit):
        """Returns when the limit counts. It is another one than that of before."""
        low = self.begin(self.low(queue, limit))
        while not low.done() and queue.info().srq_limit != limit:
            await asyncio.sleep(0.001)
        if low.done():
            low.result()  # it was refused

    async def low(self, queue, limit):
        await queue.arun_low(limit)
        event("low", endpoint=queue.user_data, status="CRPC_OK")

    def do_queue_fail(self, queue):
        queue.fail()

    def do_queue_drain(self, queue, timeout=None):
        self.begin(queue.adrain(timeout))

    def do_queue_close(self, queue):
        queue.close()

    def do_queue_info(self, queue):
        info = queue.info()
        return {**picked(info, QUEUE), "private": text_of(info.private_data)}

    def do_queue_stats(self, queue):
        return picked(queue.stats(), "sends receives signaled_wqes doorbells")

    # ---- Ops ----

    def do_post(self, queue, id, opcode, count=1, length=0, seed=None, region=None, offset=0, step=None, lengths=(), offsets=(), inline=0,
                fence=0, solicited=0, signal=0, summary=0, immediate=0, invalidate=0, remote=0, remote_key=0, remote_step=None, compare=0,
                operand=None, target=None, stream=0):
        post = Post(opcode, id, region, offset, length, lengths, offsets, count, step, summary, seed)
        if remote_step is None:
            remote_step = post.step if remote and operand is None else 0  # atomics are all of one place
        words = {"immediate": immediate or invalidate, "operand": operand or 0, "compare": compare, "remote_key": remote_key, "target": target,
                 "stream": stream}
        flags = {"inline": inline, "fence": fence, "solicited": solicited, "signal": signal}
        numbered = opcode in ("send_immediate", "write_immediate")
        each = [{**words, "immediate": words["immediate"] + index * numbered, "remote": remote + index * remote_step}
                for index in range(count)]
        if self.arrays:
            return self.submit(queue, post, each, flags)
        for index, words in enumerate(each):
            self.begin(self.working(post, index, self.one(queue, post.named(index), opcode, words, flags)))

    def do_post_receive(self, queue, id, count=1, length=0, region=None, offset=0, step=None, lengths=(), offsets=(), summary=0):
        post = Post("receive", id, region, offset, length, lengths, offsets, count, step, summary)
        if self.arrays:
            return self.submit(queue, post, [{}] * count, {})
        for index in range(count):
            self.begin(self.working(post, index, queue.areceive(post.named(index))))

    @staticmethod
    def one(queue, places, opcode, words, flags):
        """The coroutine of one op."""
        fence, solicited = bool(flags["fence"]), bool(flags["solicited"])
        if isinstance(queue, copyrpc.DatagramQueue):
            return queue.asend(places, words["target"], immediate=words["immediate"] if opcode == "send_immediate" else None, solicited=solicited)
        if isinstance(queue, copyrpc.DCIQueue):
            return one_of_dci(queue, places, opcode, words, flags)
        remote = copyrpc.Remote(words["remote"], words["remote_key"])
        immediate = words["immediate"] if opcode.endswith("_immediate") else None
        if opcode.startswith("send"):
            invalidate = words["immediate"] if opcode == "send_invalidate" else None
            return queue.asend(places, immediate=immediate, invalidate=invalidate, solicited=solicited, fence=fence)
        if opcode.startswith("write"):
            return queue.awrite(places, remote, immediate=immediate, solicited=solicited, fence=fence)
        if opcode == "read":
            return queue.aread(places, remote, fence=fence)
        if opcode == "compare_swap":
            return queue.acompare_swap(remote, words["compare"], words["operand"], fence=fence)
        return queue.afetch_add(remote, words["operand"], fence=fence)

    async def working(self, post, index, work):
        status, fields, size = "CRPC_OK", {}, None
        try:
            result = await work
            if post.opcode == "receive":
                size = result.size
                over = result.queue.user_data if result.queue is not None else ""
                fields = {"queue": over, "written": result.written, "immediate": result.immediate, "invalidated": result.invalidated}
                if isinstance(result.queue, copyrpc.DatagramQueue):
                    fields["source"], self.letter = result.source.queue_pair_number, (result.queue, result)
                if result.unexpected:
                    fields.update(self.unexpected_fields(post, index))
                fields = {key: value for key, value in fields.items() if value is not None}
            elif post.opcode == "tag_add":
                size, over = result.size, result.queue
                fields = {"tag": result.tag, "context": result.context, "queue": over.user_data if over is not None else ""}
            elif post.opcode in ("compare_swap", "fetch_add"):
                fields = {"before": result}
        except (Exception, asyncio.CancelledError) as error:
            status = status_of(error)
        post.tell(index, status, fields, size)

    # ---- Arrays ----

    def submit(self, queue, post, each, flags):
        import numpy

        word = sum(getattr(copyrpc, f"QUEUE_{flag.upper()}") for flag, wanted in flags.items() if wanted)
        ops = copyrpc.QueueOpArray(post.count)
        pieces = numpy.zeros(post.count * len(post.places) if post.in_pieces else 0, copyrpc.piece_dtype)
        inline = numpy.frombuffer(bytearray(b"".join(post.data)) or bytearray(1), "u1")
        region = post.region.bits if post.region is not None else 0
        for index, words in enumerate(each):
            place = {}
            if post.in_pieces:
                first = index * len(post.places)
                for number, part in enumerate(post.slices(index)):
                    pieces[first + number] = (region, part.address, len(part), 0)
                place = {"address": first, "bytes": len(post.places)}
            elif post.region is not None and post.length:
                place = {"region": region, "address": post.slices(index)[0].address, "bytes": post.length}
            elif post.length:
                place = {"address": inline.ctypes.data + index * post.length, "bytes": post.length}
            if words.get("compare"):
                place["address"] = words["compare"]
            ops.set(index, opcode=OPCODES[post.opcode], flags=word | (copyrpc.QUEUE_PIECES if post.in_pieces else 0),
                    immediate=words.get("immediate", 0), user_data=len(self.posts) << INDEX_BITS | index,
                    remote_key=words.get("remote_key", 0), remote_address=words.get("remote", 0), operand=words.get("operand", 0),
                    target=words["target"].bits if words.get("target") is not None else 0, stream=words.get("stream", 0), **place)
        self.posts.append(post)
        accepted = 0
        with contextlib.suppress(copyrpc.NoRoom):
            accepted = queue.submit(ops, pieces=pieces if post.in_pieces else None)
        inline[:] = 0xEE  # it was copied
        post.count = accepted
        return {"accepted": accepted}

    async def poll_arrays(self, take):
        done = copyrpc.CompletionArray(256)
        with contextlib.suppress(copyrpc.Closed):
            while True:
                count = self.context.poll(done)
                take(done)
                await asyncio.sleep(0 if count else 0.001)

    def take_works(self, done):
        for completion in done:
            self.take(completion)

    def take(self, done):
        post, index = self.posts[done.user_data >> INDEX_BITS], done.user_data & (1 << INDEX_BITS) - 1
        fields = {"opcode": done.method}
        if post.opcode == "receive":
            over = self.queue_names.get(done.endpoint)
            source = sent_from(done)
            written = done.token >> 32 if done.flags & copyrpc.COMPLETION_OF_DCT else done.token if source is None else 0
            fields.update(written=written, queue=over.user_data if over is not None else "")
            if source is not None:
                fields["source"], self.letter = source, (over, done, post.slices(index)[0])
            if done.flags & copyrpc.COMPLETION_SYNC:
                fields.update(self.unexpected_fields(post, index))
            if done.flags & copyrpc.COMPLETION_IMMEDIATE:
                fields["immediate"] = done.reply_bytes_max
            elif done.flags & copyrpc.COMPLETION_INVALIDATED:
                fields["invalidated"] = done.reply_bytes_max
        elif post.opcode == "tag_add":
            over = self.queue_names.get(done.endpoint)
            fields.update(tag=done.token, context=done.view & 0xFFFFFFFF, queue=over.user_data if over is not None else "")
        elif post.opcode in ("compare_swap", "fetch_add"):
            fields["before"] = done.token
        status = copyrpc.CopyrpcError("", done.status).status_name
        post.tell(index, status, fields, done.payload_bytes if post.opcode in EVENTS else None)

    # ---- Memory ----

    def do_memory(self, region, offset=0, length=8, seed=None, value=None):
        memory = self.dmabufs[region.bits] if region.bits in self.dmabufs else region.memory
        if seed is not None:
            memory[offset : offset + length] = payload(length, seed)
        elif value is not None:
            memory[offset : offset + 8] = value.to_bytes(8, "little")
        data = bytes(memory[offset : offset + length])
        return {"length": length, "checksum": zlib.crc32(data), "value": big(int.from_bytes(memory[offset : offset + 8], "little"))}
