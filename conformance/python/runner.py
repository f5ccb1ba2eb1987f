"""runner.py: does in Python what run.py says on stdin, one line a step, and tells on stdout what comes of it. docs/conformance.md
has the words. It decides nothing: what is right, only run.py knows.

Calls and connections are coroutines; only what the package has no coroutine for, accepting, runs in a thread."""
import asyncio
import functools
import sys
import zlib

import copyrpc

PERIOD = 4093


@functools.lru_cache(4096)
def payload(length, seed):
    value = (seed * 2654435761 + 1) & 0xFFFFFFFF
    head = bytearray()
    for _ in range(min(length, PERIOD)):
        value = (value * 1664525 + 1013904223) & 0xFFFFFFFF
        head.append(value >> 24)
    return (bytes(head) * (length // PERIOD + 1))[:length]


def tell(word, **fields):
    sys.stdout.write(" ".join([word, *(f"{key}={value}" for key, value in fields.items())]) + "\n")
    sys.stdout.flush()


def told(data):
    return {"length": len(data), "checksum": zlib.crc32(data)}


def status_of(error):
    if isinstance(error, copyrpc.RemoteError):
        return str(error.status)
    if isinstance(error, copyrpc.CopyrpcError):
        return error.status_name
    if isinstance(error, asyncio.CancelledError):
        return "CRPC_E_CANCELED"
    if isinstance(error, (TypeError, ValueError)):  # what Python says of arguments of a wrong kind
        return "CRPC_E_INVALID"
    return type(error).__name__


class UnknownName(Exception):
    pass


class Names(dict):
    def __missing__(self, name):
        raise UnknownName(name)


class Runner:
    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.context = None
        self.clear()

    def clear(self):
        self.endpoints, self.listeners, self.connections, self.requests = Names(), Names(), Names(), Names()
        self.calls, self.modes, self.numbered, self.tasks = {}, {}, 0, set()

    def begin(self, coroutine):
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def number(self, table, thing):
        self.numbered += 1
        table[str(self.numbered)] = thing
        return self.numbered

    @staticmethod
    def options(words):
        fields = {key: int(words[key]) for key in ("ring_bytes", "request_bytes", "calls_max", "batch_window") if key in words}
        fields.update({key: words[key] == "1" for key in ("call_only", "serve_only") if key in words})
        fields.update({key[:-3]: int(words[key]) / 1000 for key in ("connect_timeout_ms", "keepalive_ms") if key in words})
        return copyrpc.EndpointOptions(token=words.get("token", "").encode(), **fields)

    # ---- Contexts and connections ----

    def open(self, words):
        numbers = {key: int(words[key]) for key in ("endpoints_max", "receive_depth") if key in words}
        self.context = copyrpc.Context(words["device"], driver=words["driver"], **numbers)
        return self.tell_context(words)

    async def reset(self, words):
        for task in self.tasks:
            task.cancel()
        if self.context is not None:
            self.context.close()
            self.context = None
        await asyncio.gather(*self.tasks, return_exceptions=True)  # what they still tell is of the scenario that ends
        self.clear()

    def tell_context(self, words):
        info = self.context.info()
        return {"device": info.device, "driver": info.driver_name, "endpoints": info.endpoints}

    def listen(self, words):
        listener = self.context.listen(words["address"], backlog=int(words.get("backlog", 0)), auto_accept=False)
        self.listeners[words["listener"]] = listener
        self.begin(self.watch_listener(words["listener"], listener))
        self.begin(self.take_requests(listener))
        return self.tell_listener(words)

    def tell_listener(self, words):
        listener = self.listeners[words["listener"]]
        requests, refused = listener.counts()
        return {"address": listener.address, "requests": requests, "refused": refused}

    async def watch_listener(self, name, listener):
        while True:
            try:
                connection = await asyncio.to_thread(listener.next_connection)
            except copyrpc.CopyrpcError:  # the context was closed
                return
            if connection is None:
                return
            number = self.number(self.connections, connection)
            tell("event", kind="connect_request", listener=name, connection=number, token=connection.token.decode())

    def connect(self, words):
        self.begin(self.connecting(words["endpoint"], self.context.aconnect(words["address"], self.options(words))))

    def accept(self, words):
        connection = self.connections[words["connection"]]
        self.begin(self.connecting(words["endpoint"], asyncio.to_thread(connection.accept, self.options(words))))

    async def connecting(self, name, awaitable):
        try:
            endpoint = await awaitable
        except (Exception, asyncio.CancelledError) as error:
            tell("event", kind="connected", endpoint=name, status=status_of(error))
            return
        endpoint.user_data = name
        self.endpoints[name] = endpoint
        tell("event", kind="connected", endpoint=name, status="CRPC_OK")
        await self.take_requests(endpoint)  # an accepted one's come to the listener; this ends when the connection does
        if not isinstance(endpoint.error, copyrpc.Closed):
            tell("event", kind="disconnected", endpoint=name, status=status_of(endpoint.error))

    def reject(self, words):
        self.connections[words["connection"]].reject(int(words.get("reason", 0)))

    def disconnect(self, words):
        timeout = int(words["timeout_ms"]) / 1000 if "timeout_ms" in words else None
        self.begin(self.endpoints[words["endpoint"]].adisconnect(timeout))

    def close(self, words):
        self.endpoints[words["endpoint"]].close()

    def close_listener(self, words):
        self.listeners[words["listener"]].close()

    # ---- Calls ----

    def call(self, words):
        endpoint = self.endpoints[words["endpoint"]]
        for index in range(int(words.get("count", 1))):
            number = int(words["id"]) + index
            data = payload(int(words.get("length", 0)), int(words.get("seed", 0)) + index)
            self.calls[number] = self.begin(self.calling(endpoint, number, data, words))

    async def calling(self, endpoint, number, data, words):
        timeout = int(words["timeout_ms"]) / 1000 if "timeout_ms" in words else None
        status, answer = "CRPC_OK", b""
        try:
            answer = await endpoint.acall(
                data, timeout=timeout, method=int(words.get("method", 0)), reply_bytes_max=int(words.get("reply_max", 0))
            )
        except (Exception, asyncio.CancelledError) as error:
            status, answer = status_of(error), getattr(error, "payload", b"")
        tell("event", kind="response", id=number, status=status, **told(answer))

    def cancel(self, words):
        self.calls[int(words["id"])].cancel()

    # ---- Requests ----

    async def take_requests(self, source):
        try:
            async for request in source:
                while request.endpoint.user_data is None:  # it came before accept() gave us the endpoint
                    await asyncio.sleep(0.001)
                self.take_request(request)
        except copyrpc.Closed:  # the context
            pass

    def take_request(self, request):
        name = request.endpoint.user_data
        mode = self.modes.get(name)
        if mode is None:
            tell(
                "event", kind="request", endpoint=name, request=self.number(self.requests, request), method=request.method,
                **told(request.payload), reply_max=request.reply_bytes_max,
            )
            return
        try:
            with request:
                if mode == "fail":
                    raise RuntimeError("as it was told to")
                if mode == "drop":
                    request.drop()
                else:
                    request.reply(request.payload)
        except (RuntimeError, copyrpc.Disconnected):
            pass

    def serve(self, words):
        self.modes[words["endpoint"]] = words["mode"]

    def reply(self, words):
        request = self.requests[words["request"]]
        data = payload(int(words.get("length", 0)), int(words.get("seed", 0)))
        request.reply(request.payload if words.get("echo") == "1" else data, int(words.get("status", 0)))

    def drop(self, words):
        self.requests[words["request"]].drop()

    def tell_payload(self, words):
        return told(self.requests[words["request"]].payload)

    # ---- Looking ----

    def info(self, words):
        info = self.endpoints[words["endpoint"]].info()
        names = ("request_bytes_max", "reply_bytes_max", "calls_max", "calls_open", "requests_open")
        return {name: getattr(info, name) for name in names}

    def stats(self, words):
        of = self.endpoints[words["endpoint"]] if "endpoint" in words else self.context
        return vars(of.stats())

    verbs = {"open": open, "reset": reset, "context": tell_context, "listen": listen, "listener": tell_listener, "connect": connect,
             "accept": accept, "reject": reject, "disconnect": disconnect, "close": close, "close_listener": close_listener,
             "call": call, "cancel": cancel, "serve": serve, "reply": reply, "drop": drop, "payload": tell_payload, "info": info,
             "stats": stats}

    async def obey(self, line):
        verb, *pairs = line.split()
        if verb not in self.verbs:
            tell("done", status="UNKNOWN_VERB")
            return
        try:
            fields = self.verbs[verb](self, dict(pair.split("=", 1) for pair in pairs))
            if asyncio.iscoroutine(fields):
                fields = await fields
            tell("done", status="CRPC_OK", **fields or {})
        except UnknownName:
            tell("done", status="UNKNOWN_NAME")
        except Exception as error:
            tell("done", status=status_of(error))


async def main():
    runner = Runner()
    reader = asyncio.StreamReader()
    await runner.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode():
        await runner.obey(line)
    await runner.reset({})


asyncio.run(main())
