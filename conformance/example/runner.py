"""A runner of the smallest useful kind, to read before you write one: docs/conformance.md, "Writing a runner". It is in Python, and makes,
serves and answers calls; run.py leaves out what it does not know. Its argument is the schema of commands, commands.json."""
import asyncio
import json
import sys
import zlib

import jsonschema

import copyrpc

NOT_HERE = ["call.after", "call.region", "call.offset", "reply.after", "reply.region", "reply.offset", "open.arrays", "open.form", "open.initiators",
            "open.traffic_class", "open.service_level",
            "open.queues", "open.queues_max", "open.rails", "open.channels_max", "listen.channels", "listen.queues", "connect.lane", "accept.lane",
            "connect.reconnect", "connect.reconnect_pause_ms", "connect.reconnect_pause_max_ms", "call.idempotent"]


def say(**line):
    print(json.dumps(line), flush=True)


def payload(length, seed):
    return bytes(((seed * 40503 + i % 4093) * 2654435761 & 0xFFFFFFFF) >> 24 for i in range(length))


def told(data):
    return {"length": len(data), "checksum": zlib.crc32(data)}


def status_of(error):
    if isinstance(error, copyrpc.RemoteError):
        return error.status  # the application's own: a number
    if isinstance(error, asyncio.CancelledError):
        return "CRPC_E_CANCELED"
    return getattr(error, "status_name", "CRPC_E_INVALID")


def seconds(milliseconds):
    return None if milliseconds is None else milliseconds / 1000


class Runner:
    """Each verb is a method do_VERB. What takes a while is a task, and its end an event."""

    def __init__(self):
        self.context, self.things, self.calls, self.tasks = None, {}, {}, set()

    def begin(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        return task

    def number(self, thing):
        """The name of what the peer has made."""
        name = str(len(self.things) + 1000000)
        self.things[name] = thing
        return name

    async def do_open(self, device, driver, **sizes):
        self.context = copyrpc.Context(device, driver=driver, **sizes)
        return await self.do_context()

    async def do_context(self):
        info = self.context.info()
        return {"device": info.device, "driver_name": info.driver_name, "endpoints": info.endpoints}

    async def do_reset(self):
        for task in self.tasks:
            task.cancel()
        if self.context:
            self.context.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.__init__()

    async def do_listen(self, name, address, backlog=0):
        listener = self.things[name] = self.context.listen(address, backlog=backlog, auto_accept=False)
        self.begin(self.connections(name, listener))
        self.begin(self.requests(listener))
        return {"address": listener.address}

    async def connections(self, name, listener):
        while request := await listener.anext_connection():
            say(event="connect_request", listener=name, connection=self.number(request), token=request.token.decode())

    async def do_connect(self, name, address, **options):
        self.begin(self.life(name, self.context.aconnect(address, self.options(**options))))

    async def do_accept(self, name, connection, **options):
        self.begin(self.life(name, self.things[connection].aaccept(self.options(**options))))

    @staticmethod
    def options(token="", key="", connect_timeout_ms=None, keepalive_ms=None, **others):
        times = {"connect_timeout": seconds(connect_timeout_ms), "keepalive": seconds(keepalive_ms)}
        others.update({name: value for name, value in times.items() if value is not None})
        return copyrpc.EndpointOptions(token=token.encode(), key=key.encode(), **others)

    async def life(self, name, connecting):
        try:
            endpoint = self.things[name] = await connecting
        except Exception as error:
            say(event="connected", endpoint=name, status=status_of(error))
            return
        endpoint.user_data = name
        say(event="connected", endpoint=name, status="CRPC_OK")
        await self.requests(endpoint)
        if not isinstance(endpoint.error, copyrpc.Closed):
            say(event="disconnected", endpoint=name, status=status_of(endpoint.error))

    async def requests(self, source):
        async for request in source:
            while request.endpoint.user_data is None:  # it came before the endpoint had its name
                await asyncio.sleep(0.001)
            say(event="request", endpoint=request.endpoint.user_data, request=self.number(request), method=request.method,
                reply_max=request.reply_bytes_max, placed=-1, **told(request.payload))

    async def do_call(self, endpoint, id, count=1, length=0, seed=0, method=0, reply_max=0, timeout_ms=None):
        for number in range(count):
            call = self.things[endpoint].acall(payload(length, seed + number), timeout=seconds(timeout_ms), method=method, reply_bytes_max=reply_max)
            self.calls[id + number] = self.begin(self.calling(id + number, call))

    async def calling(self, id, call):
        status, answer = "CRPC_OK", b""
        try:
            answer = await call
        except (Exception, asyncio.CancelledError) as error:
            status, answer = status_of(error), getattr(error, "payload", b"")
        say(event="response", id=id, status=status, **told(answer))

    async def do_cancel(self, endpoint, id):
        self.calls[id].cancel()

    async def do_reply(self, request, length=0, seed=0, status=0, echo=False):
        request = self.things[request]
        request.reply(request.payload if echo else payload(length, seed), status)

    async def do_drop(self, request):
        self.things[request].drop()

    async def do_disconnect(self, endpoint, timeout_ms=None):
        self.begin(self.things[endpoint].adisconnect(seconds(timeout_ms)))

    async def do_close(self, endpoint):
        self.things[endpoint].close()


class Lines:
    def __init__(self, path):
        with open(path) as file:
            schemas = json.load(file)["definitions"]
        self.verbs = [verb for verb in schemas if verb == "hello" or hasattr(Runner, f"do_{verb}")]
        self.validators = {verb: jsonschema.Draft7Validator(schemas[verb]) for verb in self.verbs}

    def refusal(self, command):
        """How a command is refused; None if it is good."""
        if not isinstance(command, dict) or not isinstance(command.get("do"), str):
            return {"done": "NO_COMMAND"}
        if command["do"] not in self.validators:
            return {"done": "UNKNOWN_VERB"}
        for member in command:
            if f"{command['do']}.{member}" in NOT_HERE:
                return {"done": "UNKNOWN_MEMBER", "member": member}
        for error in self.validators[command["do"]].iter_errors(command):
            if error.validator == "required":
                missing = [member for member in error.validator_value if member not in command]
                return {"done": "MISSING_MEMBER", "member": missing[0]}
            if error.validator == "additionalProperties":
                unknown = [member for member in command if member not in error.schema["properties"]]
                return {"done": "UNKNOWN_MEMBER", "member": unknown[0]}
            return {"done": "WRONG_TYPE", "member": error.absolute_path[0]}
        return None

    async def obey(self, runner, line):
        """The answer to a line."""
        try:
            command = json.loads(line)
        except ValueError:
            return {"done": "NO_COMMAND"}
        refusal = self.refusal(command)
        if refusal:
            return refusal
        verb = command.pop("do")
        if verb == "hello":
            return {"done": "CRPC_OK", "protocol": 1, "name": "example", "language": "Python", "verbs": self.verbs, "lacks": NOT_HERE,
                    "capabilities": [], "forms": {}}
        try:
            return {"done": "CRPC_OK", **(await getattr(runner, f"do_{verb}")(**command) or {})}
        except KeyError:
            return {"done": "UNKNOWN_NAME"}
        except Exception as error:
            return {"done": status_of(error)}


async def main():
    lines, runner, reader = Lines(sys.argv[1]), Runner(), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        say(**await lines.obey(runner, line))
    await runner.do_reset()


asyncio.run(main())
