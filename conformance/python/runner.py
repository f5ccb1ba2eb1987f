"""runner.py: does in Python what run.py says on stdin, one line a step, and tells on stdout what comes of it. docs/conformance.md
has the verbs. It decides nothing: what is right, only run.py knows.

A verb is a method do_VERB, whose parameters are the members of the command. All that waits is a coroutine."""
import asyncio
import contextlib
import itertools
import sys
import time

from arenas import Arenas
from arrays import OPS, Arrays
from channels import Channels
from datagrams import Datagrams
from dynamic import Dynamic
from forms import FOREVER, FORMS, REQUESTS, Forms
from lanes import Lanes
from looks import Looks
from queues import Queues, text_of
from runner_lines import Commands, Refused, say
from tags import Tags
from words import ACCESSES, THINGS, big, event, members_of, options_of, payload, picked, status_of, told, told_trace, traced

import copyrpc

ENDPOINT = "state request_bytes_max reply_bytes_max calls_max calls_open requests_open calls_waiting address_index connections"
STATS = ("calls responses calls_failed requests replies late_responses batches_sent batches_received bytes_sent bytes_received "
         "protocol_errors")


class Runner(Channels, Queues, Datagrams, Dynamic, Lanes, Arenas, Tags, Looks, Forms, Arrays):
    """What a scenario has made: a context, and things under their names or numbers."""

    def __init__(self):
        self.context = None
        self.things, self.numbers, self.calls, self.modes, self.tasks = {}, itertools.count(1), {}, {}, set()
        self.arrays, self.posts, self.queue_names, self.letter, self.tag_works = False, [], {}, None, {}
        self.arenas, self.dmabufs = {}, {}
        self.form, self.threads, self.starters = "", None, {}
        self.ops, self.waiting, self.taking = copyrpc.OpArray(OPS), {}, False
        self.array_endpoints, self.array_requests, self.early = {}, {}, []

    def begin(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def number(self, thing):
        number = str(next(self.numbers))
        self.things[number] = thing
        return number

    # ---- Contexts and connections ----

    def do_open(self, device, driver, rails=False, queues=False, arrays=False, log=False, form="", **numbers):
        self.form = form
        self.context = copyrpc.Context(device, driver=driver, rails=rails, queues=queues, log_level="info" if log else "off", **numbers)
        self.arrays = arrays
        if arrays or form == "arrays":
            self.begin(self.poll_arrays(self.take_works if arrays else self.take_calls))
        return self.do_context()

    async def do_reset(self):
        for task in self.tasks:
            task.cancel()
        if self.context is not None:
            self.context.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)  # what they still tell is of the scenario that ends
        for threads in [*self.starters.values(), *([self.threads] if self.threads else [])]:
            threads.shutdown()
        self.__init__()

    def do_context(self):
        return picked(self.context.info(), "device driver_name endpoints traffic_class service_level")

    def do_listen(self, name, address, backlog=0, channels=0, queues=0, service=0):
        if service:
            listener = self.things[name] = self.context.listen(address, backlog=backlog)
            self.begin(self.serve_in_thread(name, listener) if self.form == "blocking" else self.serving(name, listener))
            return self.do_listener(listener)
        if channels or queues:
            listen = self.context.listen_channels if channels else self.context.listen_queues
            listener = listen(address, backlog=backlog)
        else:
            listener = self.context.listen(address, backlog=backlog, auto_accept=False, arrays=self.form == "arrays")
            self.begin(self.take_requests(listener))
        self.things[name] = listener
        self.begin(self.take_connections(name, listener))
        return self.do_listener(listener)

    async def serving(self, name, listener):
        """A service, as a program has one."""

        async def handle(request):
            self.tell_request(request, name)
            while not request.answered and request.endpoint.error is None:
                await asyncio.sleep(0.001)

        with contextlib.suppress(copyrpc.Closed):  # the context
            await listener.aserve(handle, requests_max=REQUESTS)
            event("stopped", listener=name, status="CRPC_OK")

    def do_stop(self, listener, timeout=None):
        listener.stop(grace=FOREVER if timeout is None else timeout)

    async def take_connections(self, name, listener):
        with contextlib.suppress(copyrpc.Closed):  # the context
            while connection := await listener.anext_connection():
                token, private = getattr(connection, "token", b""), getattr(connection, "private_data", b"")
                event("connect_request", listener=name, connection=self.number(connection), token=token.decode(),
                     private=text_of(private))

    def do_listener(self, listener):
        requests, refused = listener.counts()
        return {"address": listener.address, "requests": requests, "refused": refused}

    def do_close_listener(self, listener):
        listener.close()

    def do_connect(self, name, address, **options):
        connection = self.context.aconnect(address, options_of(**options), arrays=self.form == "arrays")
        self.begin(self.connecting(name, connection, reconnect="reconnect" in options))

    def do_accept(self, name, connection, **options):
        self.begin(self.connecting(name, connection.aaccept(options_of(**options))))

    def do_reject(self, connection, reason=0):
        connection.reject(reason)

    def do_blob(self, name, **options):
        endpoint, blob = self.context.blob(options_of(**options), arrays=self.form == "arrays")
        endpoint.user_data = name
        self.things[name] = endpoint
        return {"blob": blob.hex()}

    def do_join(self, endpoint, blob):
        self.begin(self.connecting(endpoint.user_data, endpoint.ajoin(bytes.fromhex(blob)), endpoint))

    async def connecting(self, name, connection, joined=None, reconnect=False):
        """The life of an endpoint."""
        try:
            endpoint = await connection or joined
        except (Exception, asyncio.CancelledError) as error:
            event("connected", endpoint=name, status=status_of(error))
            return
        endpoint.user_data = name
        self.things[name] = endpoint
        event("connected", endpoint=name, status="CRPC_OK")
        if reconnect:
            self.begin(self.tell_changes(name, endpoint))
        await self.take_requests(endpoint)  # an accepted one's come to the listener; this ends when the connection does
        if not isinstance(endpoint.error, copyrpc.Closed):
            event("disconnected", endpoint=name, status=status_of(endpoint.error))

    @staticmethod
    async def tell_changes(name, endpoint):
        """What becomes of the connections of an endpoint that reconnects: what is not told otherwise. How many attempts fail is a
        matter of time."""
        connections, connected = 0, False
        async for change in endpoint.aevents():
            connections += change.connected
            if change.connected and connections > 1:
                event("connected", endpoint=name, status="CRPC_OK")
            elif connected and not change.connected:
                event("reconnecting", endpoint=name, status=status_of(change.error))
            connected = change.connected

    def do_disconnect(self, endpoint, timeout=None):
        self.begin(endpoint.adisconnect(timeout))

    def do_close(self, endpoint):
        endpoint.close()

    # ---- Calls ----

    async def do_call(self, endpoint, id, count=1, length=0, seed=0, method=0, reply_max=0, timeout=None, after=0, idempotent=0, region=None,
                      offset=0, trace=None):
        how = {"timeout": timeout, "method": method, "reply_bytes_max": reply_max, "after": bool(after), "idempotent": bool(idempotent)}
        if self.form == "blocking":
            await self.start_calls(endpoint, id, count, length, seed, region, offset, trace, how)
            return
        if self.form == "arrays":
            self.post_calls(endpoint, id, count, length, seed, region, offset, trace, how)
            return
        for index in range(count):
            data = traced(self.sent(region, offset + index * length, payload(length, seed + index)), trace)
            self.calls[id + index] = self.begin(self.calling(id + index, endpoint.acall(data, **how)))

    @staticmethod
    def sent(region, offset, data):
        """The payload, or the part of a region where it was written."""
        if region is None:
            return data
        part = region[offset : offset + len(data)]
        part.memory[:] = data
        return part

    async def calling(self, number, call):
        status, answer = "CRPC_OK", b""
        try:
            answer = await call
        except (Exception, asyncio.CancelledError) as error:
            status, answer = status_of(error), getattr(error, "payload", b"")
        event("response", id=number, status=status, **told(answer))

    async def do_cancel(self, endpoint, id):
        if self.form == "blocking":
            await self.cancel_call(id)
        elif self.form == "arrays":
            self.cancel_call_of_array(endpoint, id)
        else:
            self.calls[id].cancel()

    # ---- Payloads written in place ----

    async def do_reserve(self, name, length, id=0, endpoint=None, request=None, status=0, method=0, reply_max=0, timeout=None):
        if request is not None:
            self.things[name] = request.reserve(length, status), None
        else:
            room = await endpoint.areserve(length, timeout=timeout, method=method, reply_bytes_max=reply_max)
            self.things[name] = room, id

    def do_commit(self, room, length, seed):
        room, number = room
        if number is None:
            room.memory[:length] = payload(length, seed)[: len(room)]
            room.commit(length)
        else:
            self.calls[number] = self.begin(self.calling(number, self.committing(room, length, seed)))

    async def committing(self, room, length, seed):
        room.memory[:length] = payload(length, seed)[: len(room)]
        return await room.acommit(length)

    def do_abort(self, room):
        room[0].abort()

    # ---- Requests ----

    def tell_request(self, request, name):
        event("request", endpoint=name, request=self.number(request), method=request.method,
             **told(request.payload), reply_max=request.reply_bytes_max, placed=self.placed(request))

    def take_request(self, request, name):
        mode = self.modes.get(name)
        if mode is None:
            self.tell_request(request, name)
            return
        with contextlib.suppress(RuntimeError, copyrpc.Disconnected), request:
            if mode == "fail":
                raise RuntimeError("as it was told to")
            request.drop() if mode == "drop" else request.reply(request.payload)

    def do_serve(self, endpoint, mode):
        self.modes[endpoint.user_data] = mode

    async def do_reply(self, request, length=0, seed=0, status=0, echo=0, after=0, region=None, offset=0):
        if region is not None:
            return await request.areply(self.sent(region, offset, payload(length, seed)), status)
        data = self.echoed(request) if echo else payload(length, seed)
        if not after:
            return request.reply(data, status)
        await asyncio.sleep(0)  # what was begun before is before it
        return await request.areply(data, status, after=True)

    @staticmethod
    def echoed(request):
        """The payload to send back. That of a request which was answered is gone as soon as its handler has ended; then the reply
        gives the reason."""
        with contextlib.suppress(copyrpc.Closed):
            return request.payload
        return b""

    def do_drop(self, request, not_started=0):
        request.drop(not_started=bool(not_started))

    def do_request(self, request):
        waits = 0 if request.deadline is None else max(int((request.deadline - time.monotonic()) * 1000), 1)
        return {"abandoned": int(request.abandoned), "waits_ms": waits, "trace": told_trace(request.trace)}

    def do_payload(self, request):
        return told(request.payload)

    # ---- Regions ----

    def do_register(self, name, length, access):
        words = [word for bit, word in enumerate(ACCESSES) if access >> bit & 1]
        self.things[name] = self.context.register(self.room(length), *words)

    def do_region(self, region):
        info = region.info()
        return {"bytes": info.bytes, "access": sum(1 << ACCESSES.index(word) for word in info.access), "address": big(region.address),
                "remote_key": info.remote_key}

    def do_deregister(self, region):
        region.close()

    # ---- Looking ----

    def do_info(self, endpoint):
        return picked(endpoint.info(), ENDPOINT)

    def do_stats(self, endpoint=None):
        return picked((endpoint or self.context).stats(), STATS)

    def hello(self, commands):
        return commands.hello("python", "Python", ["early_calls", "any_place", "early_cancel", "busy_rooms"], FORMS)

    async def obey(self, commands, line):
        """The answer to a line."""
        try:
            verb, command = commands.take(line)
            if verb == "hello":
                return {"done": "CRPC_OK", **self.hello(commands)}
            members = members_of(command)
            members.update({key: self.things[members[key]] for key in THINGS if key in members})
            fields = getattr(self, f"do_{verb}")(**members)
            if asyncio.iscoroutine(fields):
                fields = await fields
            return {"done": "CRPC_OK", **(fields or {})}
        except Refused as refused:
            return refused.answer()
        except KeyError:
            return {"done": "UNKNOWN_NAME"}
        except Exception as error:
            return {"done": status_of(error)}


async def main():
    commands = Commands(sys.argv[1], ["hello", *(name[3:] for name in dir(Runner) if name.startswith("do_"))])
    runner = Runner()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode():
        say(**await runner.obey(commands, line))
    await runner.do_reset()


asyncio.run(main())
