"""arrays.py: the form `arrays`: calls, and answers to them, are submitted in arrays of ops, and what comes of them and of the peer is read
from arrays of completions. Connections are made and end as ever."""
import itertools
import time
from collections import deque

from words import ERRORS, event, payload, status_of, told

import copyrpc
from copyrpc.errors import error_of

# What they cannot do: room is reserved, and a service is ended gracefully, by objects, of which arrays have none; ops of lanes are
# coroutines here, so that arrays are not behind them.
LACKS = ["reserve", "commit", "abort", "listen.service", "stop", "call.after", "reply.after"]
OPS = 256  # in an array
TRACE_BYTES = 32  # of a crpc_trace, of which a command has the part that is not reserved


class Op:
    """An op on its way into the library, which may have no room for it. `data` is bytes or a part of a region; `trace` is in hexadecimal."""

    def __init__(self, opcode, data=b"", timeout=None, trace=None, **fields):
        self.data, self.trace = data, trace
        self.due = time.monotonic_ns() + int(timeout * 1e9) if timeout else 0
        self.fields = {"opcode": opcode, "payload_bytes": len(data), **fields}
        self.is_call = opcode == copyrpc.OP_CALL
        self.error = None

    def fields_for(self, endpoint, payloads):
        """What the array is told. A payload that lies in no region is put behind the others."""
        fields = {**self.fields, "endpoint": endpoint.bits, "payload_offset": len(payloads)}
        if isinstance(self.data, copyrpc.RegionSlice):
            region = self.data.region
            flags = fields.get("flags", 0) & ~copyrpc.OP_QUIET | copyrpc.OP_REGION
            fields.update(flags=flags, region=region.bits, payload_offset=self.data.address - region.address)
        else:
            payloads += self.data
        if self.trace is not None:
            fields.update(flags=fields["flags"] | copyrpc.OP_TRACED, token=len(payloads))
            payloads += bytes.fromhex(self.trace).ljust(TRACE_BYTES, b"\0")
        if self.due:
            fields["timeout_ns"] = max(self.due - time.monotonic_ns(), 1)
        return fields

    def refuse(self, error):
        """It is over before the library has had it."""
        self.error = error
        if self.is_call:
            event("response", id=self.fields["user_data"], status=status_of(error), **told(b""))


class ArrayRequest:
    """A request that an array has told of. A Runner does with it what it does with the package's own."""

    def __init__(self, runner, done, data, trace):
        self.runner, self.bits, self.token, self.address = runner, done.endpoint, done.token, done.payload
        self.method, self.reply_bytes_max, self.bytes, self.data = done.method, done.reply_bytes_max, done.payload_bytes, data
        self.deadline = time.monotonic() + done.user_data / 1e9 if done.user_data else None
        self.abandoned, self.trace = False, trace
        self.is_placed = bool(done.flags & copyrpc.COMPLETION_PLACED)

    @property
    def endpoint(self):
        return self.runner.array_endpoints[self.bits]

    @property
    def place(self):
        """Where the payload lies in an arena; None: it does not."""
        if not self.is_placed:
            return None
        arena, _ = self.runner.arenas[self.endpoint.user_data]
        first = self.address - arena.address
        return arena[first : first + self.bytes]

    @property
    def payload(self):
        return bytes(self.place.memory) if self.is_placed else self.data

    def answer(self, opcode, data=b"", **fields):
        op = Op(opcode, data, token=self.token, flags=copyrpc.OP_QUIET, **fields)
        self.runner.post_ops(self.endpoint, [op])
        if op.error is not None:
            raise op.error

    def reply(self, data=b"", status=0):
        self.answer(copyrpc.OP_REPLY, data, status=status)

    async def areply(self, data, status):
        self.reply(data, status)

    def drop(self, not_started=False):
        self.answer(copyrpc.OP_DROP, status=ERRORS["CRPC_E_NOT_STARTED"].status if not_started else 0)

    def release(self):
        if self.is_placed:
            self.runner.give_back(self.endpoint, self.address)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, RuntimeError):  # as a handler has it that raises
            self.reply(b"", copyrpc.Status.UNKNOWN)
        self.release()


class Arrays:
    """What a Runner has of them. `waiting` has the ops that are not submitted yet, in their order, of each endpoint: its calls, and what
    else it has, as answers wait for no calls. `array_endpoints` are those whose requests may be told of, by their bits, and `early`
    has the requests of others."""

    def post_calls(self, endpoint, id, count, length, seed, region, offset, trace, how):
        fields = {"method": how["method"], "reply_bytes_max": how["reply_bytes_max"],
                  "flags": copyrpc.OP_IDEMPOTENT if how["idempotent"] else 0}
        self.post_ops(endpoint, [
            Op(copyrpc.OP_CALL, self.sent(region, offset + index * length, payload(length, seed + index)), how["timeout"],
               trace, user_data=id + index, **fields)
            for index in range(count)
        ])

    def cancel_call_of_array(self, endpoint, id):
        """What waits for room is canceled here, as the library has not seen it."""
        calls = self.waiting.get((endpoint, True), deque())
        for op in [op for op in calls if op.fields["user_data"] == id]:
            calls.remove(op)
            op.refuse(ERRORS["CRPC_E_CANCELED"])
        cancel = Op(copyrpc.OP_CANCEL, token=id)
        self.post_ops(endpoint, [cancel])
        if cancel.error is not None:
            raise cancel.error

    # ---- Ops ----

    def post_ops(self, endpoint, ops):
        """Ops of one kind. What comes of an array of completions is submitted when that was taken."""
        self.waiting.setdefault((endpoint, ops[0].is_call), deque()).extend(ops)
        if not self.taking:
            self.submit_waiting()

    def submit_waiting(self):
        """Submits what there is room for."""
        for (endpoint, is_call), ops in list(self.waiting.items()):
            self.refuse_late(endpoint, ops)
            while ops and self.submit_some(endpoint, ops):
                pass
            if not ops:
                del self.waiting[endpoint, is_call]

    @staticmethod
    def refuse_late(endpoint, ops):
        """What cannot be submitted any more. The handle of an endpoint that has ended is stale, and tells no reason."""
        now, ended = time.monotonic_ns(), endpoint.error
        if ended is not None and not isinstance(ended, (copyrpc.Closed, copyrpc.ProtocolError)):
            ended = ERRORS["CRPC_E_DISCONNECTED"]
        for op in [op for op in ops if ended is not None or op.due and op.due <= now]:
            ops.remove(op)
            op.refuse(ended or ERRORS["CRPC_E_TIMEOUT"])

    def submit_some(self, endpoint, ops):
        """One array of them. False: there is no room for the next."""
        some, payloads, first = list(itertools.islice(ops, OPS)), bytearray(), 0
        for index, op in enumerate(some):
            self.ops.set(index, **op.fields_for(endpoint, payloads))
        while first < len(some):
            try:
                taken = self.context.submit(self.ops, len(some) - first, payloads, first)
            except copyrpc.CopyrpcError as error:
                some[first].refuse(error)
                taken = 1
            if taken == 0:
                return False
            for _ in range(taken):
                ops.popleft()
            first += taken
        return True

    # ---- Completions ----

    def take_calls(self, done):
        """What a poll has brought."""
        payloads = done.gather() if len(done) else b""
        self.taking = True
        for index, one in enumerate(done):
            if one.kind == copyrpc.COMPLETION_RESPONSE:
                data = payloads[done.offsets[index] : done.offsets[index] + one.payload_bytes]
                event("response", id=one.user_data, status="CRPC_OK" if one.status == 0 else status_of(error_of(one.status)), **told(data))
                if one.flags & copyrpc.COMPLETION_PLACED:
                    self.give_back(self.array_endpoints[one.endpoint], one.payload)
            elif one.kind == copyrpc.COMPLETION_REQUEST:
                data = bytearray(one.payload_bytes)
                done.retain(index, data)
                request = self.array_requests[one.endpoint, one.token] = ArrayRequest(self, one, data, done.trace(index))
                self.take_early(request)
            elif one.kind == copyrpc.COMPLETION_ABANDONED:
                self.array_requests[one.endpoint, one.token].abandoned = True
        self.taking = False
        self.submit_waiting()

    @staticmethod
    def give_back(endpoint, address):
        """The arena of an endpoint that has ended is nobody's to give back."""
        if endpoint.error is None:
            endpoint.give_back(address)

    def take_early(self, request):
        """It may have come before accept() gave us the endpoint."""
        if request.bits in self.array_endpoints:
            self.take_request(request, request.endpoint.user_data)
        else:
            self.early.append(request)

    async def outlast(self, source):
        """Returns when it has ended: its requests come in arrays, and not here."""
        if isinstance(source, copyrpc.Endpoint):
            self.array_endpoints[source.bits] = source
            early, self.early = self.early, []
            for request in early:
                self.take_early(request)
        if await source.areceive() is not None:
            raise AssertionError("a request has come to an endpoint whose requests go to arrays")
