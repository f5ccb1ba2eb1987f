"""tensor_mover.py: reads rows of another program's tensors by RDMA, as a KV cache or a checkpoint is moved.

    tensor_mover.py serve [ADDRESS] [--file CHECKPOINT.npz | --tensors N --rows N --columns N]
    tensor_mover.py list ADDRESS
    tensor_mover.py read ADDRESS [--tensor NAME]... [--rows N] [--batch N] [--block N] [--seed N] [--quiet]

The server holds named arrays of numpy: those of a file, or random ones, which stand for the keys and values of N layers. A client asks what
there is, chooses rows here and there, and asks for the blocks that they are in. The server grants these, to this client alone. The client
reads its rows straight into arrays of its own, many with one call of the library, while the server's processor does nothing for it. Then it
compares each row with the checksum that the server has for it, gives the grants back, and tells how fast it was:

    $ tensor_mover.py serve 192.0.2.1:7474 --tensors 4 --rows 10000 &
    $ tensor_mover.py read 192.0.2.1:7474 --rows 40000
    40000 rows of 8 tensors, 81.9 MB in 1.036 s: 79 MB/s, 38610 rows/s; all of them are right

(That was on simnic, on a machine with other work to do.)

Status 1: a row is not what the server says, or something else went wrong. Both sides need numpy, and a device that can grant (docs/lanes.md)
at the server's."""
import argparse
import json
import random
import signal
import sys
import time
import zlib

import numpy

import copyrpc

LIST, GRANT, SUMS, RELEASE = 1, 2, 3, 4  # methods of the server
BAD_REQUEST = copyrpc.Status.INVALID_ARGUMENT
BLOCKS_MAX = 1000  # that a client asks for at once: a lane has 1024 grants
SUMS_MAX = 4096  # rows whose checksums it asks for at once
REPLY_BYTES = 1 << 16
LANE = copyrpc.EndpointOptions(lane=True, reply_bytes_max=REPLY_BYTES)


class MoverError(Exception):
    pass


# ---- The server ----


class Tensor:
    """Rows of equal length, in the server's memory."""

    def __init__(self, name, array, arena, start):
        self.name, self.dtype, self.shape = name, array.dtype.str, array.shape
        self.count = array.shape[0] if array.ndim > 1 else 1
        self.row_bytes = array.nbytes // self.count
        self.start = start
        self.rows = arena[start : start + array.nbytes].reshape(self.count, self.row_bytes)
        self.rows[:] = numpy.ascontiguousarray(array).reshape(-1).view("u1").reshape(self.rows.shape)
        self.sums = numpy.array([zlib.crc32(row) for row in self.rows], "<u4")

    def describe(self):
        return {"name": self.name, "dtype": self.dtype, "shape": self.shape, "rows": self.count, "row_bytes": self.row_bytes}


class Server:
    def __init__(self, context, arrays):
        starts, size = [], 0
        for array in arrays.values():
            starts.append(size)
            size += array.nbytes + 63 & ~63
        self.arena = numpy.zeros(max(size, 1), "u1")
        self.tensors = {name: Tensor(name, array, self.arena, start) for (name, array), start in zip(arrays.items(), starts)}
        self.region = context.register(self.arena)  # nobody may touch it unless it is granted
        self.given = {}  # grants by endpoint, until they are released; they end with it anyway

    def place(self, block):
        """A block of rows, as a client names it."""
        if not isinstance(block, list) or len(block) != 3 or not all(isinstance(row, int) for row in block[1:]):
            raise copyrpc.RemoteError(BAD_REQUEST, b"a block is [name, first row, row behind the last]")
        name, first, last = block
        tensor = self.tensors.get(name) if isinstance(name, str) else None
        if tensor is None:
            raise copyrpc.RemoteError(BAD_REQUEST, f"there is no tensor {name!r}".encode())
        if not 0 <= first < last <= tensor.count:
            raise copyrpc.RemoteError(BAD_REQUEST, f"{name} has {tensor.count} rows, and none from {first} to {last}".encode())
        return tensor, first, last

    def grant(self, endpoint, blocks):
        if not isinstance(blocks, list) or len(blocks) > BLOCKS_MAX:
            raise copyrpc.RemoteError(BAD_REQUEST, b"a list of at most %d blocks" % BLOCKS_MAX)
        places = [self.place(block) for block in blocks]
        self.given = {one: grants for one, grants in self.given.items() if one.connected}
        grants = self.given.setdefault(endpoint, [])
        answer = b""
        for tensor, first, last in places:
            begin = tensor.start + first * tensor.row_bytes
            grants.append(endpoint.grant(self.region[begin : begin + (last - first) * tensor.row_bytes], "r"))
            answer += bytes(grants[-1])
        return answer

    def sums(self, asked):
        name, rows = asked if isinstance(asked, list) and len(asked) == 2 else (None, None)
        tensor = self.tensors.get(name) if isinstance(name, str) else None
        if tensor is None or not isinstance(rows, list) or len(rows) > SUMS_MAX:
            raise copyrpc.RemoteError(BAD_REQUEST, b"rows are [name of a tensor, [row...]], %d at most" % SUMS_MAX)
        if not all(isinstance(row, int) and 0 <= row < tensor.count for row in rows):
            raise copyrpc.RemoteError(BAD_REQUEST, f"{name} has {tensor.count} rows, and not all of these".encode())
        return tensor.sums[numpy.array(rows, "u8")].tobytes()

    def release(self, endpoint):
        for work in [endpoint.post_revoke(grant, timeout=1.0) for grant in self.given.pop(endpoint, []) if not grant.over]:
            work.wait()

    def answer(self, request):
        if request.method == LIST:
            return json.dumps([tensor.describe() for tensor in self.tensors.values()]).encode()
        if request.method == RELEASE:
            return self.release(request.endpoint)
        try:
            asked = json.loads(bytes(request.payload))
        except ValueError:
            raise copyrpc.RemoteError(BAD_REQUEST, b"the request is no JSON") from None
        if request.method == GRANT:
            return self.grant(request.endpoint, asked)
        if request.method == SUMS:
            return self.sums(asked)
        raise copyrpc.RemoteError(copyrpc.Status.UNIMPLEMENTED, b"there is no such method")


def arrays_of(options):
    if options.file:
        with numpy.load(options.file, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if file[name].nbytes}
        if not arrays:
            raise MoverError(f"{options.file}: there is nothing in it")
        return arrays
    random_of = numpy.random.default_rng(0)
    shape = options.rows, options.columns
    names = [f"layer{layer}.{part}" for layer in range(options.tensors) for part in ("keys", "values")]
    return {name: random_of.integers(0, 1 << 16, shape, "u2") for name in names}


def serve(options):
    with copyrpc.Context() as context:
        server = Server(context, arrays_of(options))
        for name in options.damage:  # behind the checksums
            server.tensors[name].rows[0, 0] ^= 1
        with context.listen(options.address, LANE) as listener:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: listener.stop())
            print(f"listening on {listener.address}", flush=True)
            listener.serve(server.answer)


# ---- The client ----


class Wanted:
    """Rows of one tensor, as the client chose them, and an array for them."""

    def __init__(self, context, description, count, block_rows, chooser):
        self.name, self.row_bytes = description["name"], description["row_bytes"]
        self.rows = numpy.array(sorted(chooser.sample(range(description["rows"]), min(count, description["rows"]))), "u8")
        self.block_rows = block_rows
        self.blocks = [
            [self.name, int(block) * block_rows, min((int(block) + 1) * block_rows, description["rows"])]
            for block in numpy.unique(self.rows // block_rows)
        ]
        self.array = numpy.zeros((len(self.rows), self.row_bytes), "u1")
        self.region = context.register(self.array, "local_write")

    def ops(self, grants):
        """A READ for each row. `grants` are those of the blocks."""
        ops = copyrpc.lane_ops(len(self.rows))
        block = numpy.searchsorted([first for _, first, _ in self.blocks], self.rows, "right") - 1
        firsts = numpy.array([first for _, first, _ in self.blocks], "u8")
        ops["opcode"], ops["bytes"], ops["region"] = copyrpc.LANE_READ, self.row_bytes, self.region.bits
        ops["address"] = self.region.address + numpy.arange(len(self.rows), dtype="u8") * self.row_bytes
        ops["grant"] = numpy.array([grant.bits for grant in grants], "u8")[block]
        ops["offset"] = (self.rows - firsts[block]) * self.row_bytes
        return ops

    def wrong_rows(self, endpoint):
        """Asks for the checksums, and returns those rows that have another."""
        requests = [json.dumps([self.name, self.rows[at : at + SUMS_MAX].tolist()]).encode() for at in range(0, len(self.rows), SUMS_MAX)]
        sums = numpy.frombuffer(b"".join(endpoint.call_many(requests, method=SUMS)), "<u4")
        if len(sums) != len(self.rows):
            raise MoverError(f"the server gave {len(sums)} checksums for {len(self.rows)} rows")
        return [int(row) for row, data, there in zip(self.rows, self.array, sums) if zlib.crc32(data) != there]


class Progress:
    """A line that is written again and again, for people who wait."""

    def __init__(self, rows, quiet):
        self.total, self.quiet = rows, quiet
        self.begin = self.next = time.monotonic()

    def seconds(self):
        return max(time.monotonic() - self.begin, 1e-9)

    def show(self, rows, size):
        if not self.quiet and (time.monotonic() >= self.next or rows == self.total):
            self.next = time.monotonic() + 0.5
            print(f"\r{rows} of {self.total} rows, {size / self.seconds() / 1e6:.0f} MB/s ", end="", file=sys.stderr, flush=True)
            if rows == self.total:
                print(file=sys.stderr)


def ask(endpoint, method, what=None):
    return endpoint.call(json.dumps(what).encode() if what is not None else b"", method=method)


def chosen(context, options, listed):
    known = {description["name"]: description for description in listed}
    for name in options.tensor:
        if name not in known:
            raise MoverError(f"the server has no tensor {name!r}: see `tensor_mover.py list`")
    descriptions = [known[name] for name in dict.fromkeys(options.tensor)] if options.tensor else listed
    if not descriptions:
        raise MoverError("the server has no tensors")
    chooser = random.Random(options.seed)
    most = max(description["rows"] for description in descriptions)
    least = -(-most * len(descriptions) // BLOCKS_MAX)  # rows of a block: not more blocks than there may be grants
    wanted = []
    for index, description in enumerate(descriptions):
        count = options.rows // len(descriptions) + (index < options.rows % len(descriptions))
        if count:
            wanted.append(Wanted(context, description, count, max(options.block, least), chooser))
    return wanted


def read_all(endpoint, ops, batch, progress):
    """Reads what the ops say, `batch` of them with each call of the library. Returns how many bytes that were."""
    size = 0
    for first in range(0, len(ops), batch):
        part = ops[first : first + batch]
        done = endpoint.submit_and_wait(part)
        if done["status"].any():
            raise copyrpc.errors.error_of(int(done["status"][done["status"] != 0][0]), "reading a row")
        size += int(part["bytes"].sum())
        progress.show(min(first + batch, len(ops)), size)
    return size


def read(options):
    with copyrpc.Context() as context, context.connect(options.address, LANE) as endpoint:
        if not endpoint.info().lane:
            raise MoverError("the server gives no lane")
        wanted = chosen(context, options, json.loads(ask(endpoint, LIST)))
        blocks = [block for tensor in wanted for block in tensor.blocks]
        answer = ask(endpoint, GRANT, blocks)
        grants = [endpoint.open_grant(answer[at : at + copyrpc.GRANT_BYTES]) for at in range(0, len(answer), copyrpc.GRANT_BYTES)]
        if len(grants) != len(blocks):
            raise MoverError(f"the server gave {len(grants)} grants for {len(blocks)} blocks")
        ops, at = [], 0
        for tensor in wanted:
            ops.append(tensor.ops(grants[at : at + len(tensor.blocks)]))
            at += len(tensor.blocks)
        scattered = numpy.random.default_rng(options.seed).permutation(numpy.concatenate(ops))
        progress = Progress(len(scattered), options.quiet)
        size = read_all(endpoint, scattered, options.batch, progress)
        seconds = progress.seconds()
        ask(endpoint, RELEASE)
        wrong = [f"row {row} of {tensor.name}" for tensor in wanted for row in tensor.wrong_rows(endpoint)]
    if wrong:
        raise MoverError(f"{len(wrong)} of {len(scattered)} rows are not what the server says: {', '.join(wrong[:5])}{', ...' * (len(wrong) > 5)}")
    rate = f"{size / seconds / 1e6:.0f} MB/s, {len(scattered) / seconds:.0f} rows/s"
    print(f"{len(scattered)} rows of {len(wanted)} tensors, {size / 1e6:.1f} MB in {seconds:.3f} s: {rate}; all of them are right")


def show_list(options):
    with copyrpc.Context() as context, context.connect(options.address, LANE) as endpoint:
        for description in json.loads(ask(endpoint, LIST)):
            shape = " x ".join(map(str, description["shape"])) or "1"
            print(f"{description['name']}: {shape} of {description['dtype']}, {description['rows']} rows of {description['row_bytes']} bytes")


# ---- The program ----


def natural(text):
    if not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def main():
    parser = argparse.ArgumentParser("tensor_mover.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="serve | list | read")
    command = commands.add_parser("serve", help="hold tensors, and grant parts of them")
    command.add_argument("address", nargs="?", default="*:7474")
    command.add_argument("--file", help="a checkpoint, as numpy.savez writes it; otherwise the tensors are random")
    command.add_argument("--tensors", type=natural, default=4, help="layers; each has keys and values")
    command.add_argument("--rows", type=natural, default=4096)
    command.add_argument("--columns", type=natural, default=1024, help="numbers of 16 bits in a row")
    command.add_argument("--damage", action="append", default=[], metavar="NAME", help="for tests: the first row of this tensor changes")
    command.set_defaults(run=serve)
    command = commands.add_parser("list", help="tell what tensors a server has")
    command.add_argument("address")
    command.set_defaults(run=show_list)
    command = commands.add_parser("read", help="read rows of a server's tensors, and compare them")
    command.add_argument("address")
    command.add_argument("--tensor", action="append", default=[], metavar="NAME", help="of this one; again for others; otherwise of all")
    command.add_argument("--rows", type=natural, default=10000, help="how many, of all tensors together")
    command.add_argument("--batch", type=natural, default=4096, help="rows for each call of the library")
    command.add_argument("--block", type=natural, default=256, help="rows of a grant, at least")
    command.add_argument("--seed", type=natural, default=1, help="which rows, and in which order")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.set_defaults(run=read)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    try:
        main()
    except copyrpc.RemoteError as error:
        sys.exit(f"tensor_mover: the server refused: {error.payload.decode('utf-8', 'replace') or error}")
    except (copyrpc.CopyrpcError, MoverError, OSError, ValueError) as error:
        sys.exit(f"tensor_mover: {error}")
