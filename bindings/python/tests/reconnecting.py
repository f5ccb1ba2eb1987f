"""reconnecting.py: what tests of endpoints that reconnect have in common: a server that is a process, which is killed and started."""
import signal
import subprocess
import sys
import threading
import time

from conftest import HOST, _ports

HOLD, ASK = 1, 2  # methods; others echo

# Writes the payload of each request to a file before it answers. SIGTERM ends it gracefully.
SERVER = """
import copyrpc, signal, sys
HOLD, ASK = 1, 2
done = open(sys.argv[2], "ab", buffering=0)
held = []
with copyrpc.listen(sys.argv[1], copyrpc.EndpointOptions(connect_timeout=60)) as listener:
    signal.signal(signal.SIGTERM, lambda *_: listener.stop())
    print("listening", flush=True)
    while (request := listener.receive()) is not None:
        done.write(bytes(request.payload) + b"\\n")
        if request.method == HOLD:
            held.append(request)
        elif request.method == ASK:
            held.append(request.endpoint.start(bytes(request.payload)))
            request.reply()
        else:
            request.reply(request.payload)
    listener.stop(0.1)
    for request in held:  # what was begun ends
        if isinstance(request, copyrpc.Request):
            request.reply(request.payload)
    listener.serve(lambda request: request.drop(not_started=True))
"""

OPTIONS = dict(reconnect=True, reconnect_pause=0.002, reconnect_pause_max=0.02, keepalive=0.2)


class Process:
    """A server that runs, or does not."""

    def __init__(self, folder):
        self.address = f"{HOST}:{next(_ports)}"
        self.file = folder / f"done{self.address.rpartition(':')[2]}"
        self.file.touch()
        self.process = None

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, self.address, str(self.file)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "listening\n"

    def end(self, how=signal.SIGKILL):
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process.stdout.close()
            self.process = None

    def done(self):
        """What it has begun, of all its lives."""
        return self.file.read_bytes().split(b"\n")[:-1]

    def wait_for(self, *payloads):
        deadline = time.monotonic() + 60
        while not set(payloads) <= set(self.done()):
            assert time.monotonic() < deadline, f"{self.done()} and not {payloads}"
            time.sleep(0.002)


def in_thread(function, *arguments, **options):
    """Runs it, and returns what gives its result, or its exception."""
    result = []

    def run():
        try:
            result.append(function(*arguments, **options))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def joined():
        thread.join(60)
        assert not thread.is_alive()
        return result[0]

    return joined
