#!/usr/bin/env python3
"""chaos.py: kills, stops and cuts off programs that call each other, and checks what becomes of each op. `./dev chaos --help` tells of
it, and README.md how it works. Runs under `simnic run --private`."""
import argparse
import contextlib
import filecmp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fabric import Fabric
from leaks import Holdings, holdings_of, leaks
from oracle import WRONGS, Oracle
from report import show
from workers import Crew, Post, Worker

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "bindings/go"))
from go_folders import go_folders  # noqa: E402

TABLE_BYTES = 65536 + (256 << 10)  # as c/content.h says
ADDRESS = "127.0.0.1:0"
ROUND_S = 0.02
MISTAKE_S = 0.3  # goes on for so long after a mistake
MADE_AGAIN = ("wrong", "spoiled", "miscounted")  # each of them may go unnoticed, so the workers make them again and again
WRONGS_MAX = 20  # more tell nothing new
MET = 12  # connections to each steady server, before anybody looks what it keeps

CLIENTS = {"c": [Post("c", weight=6.0)] * 4, "python": [Post("python", weight=1.0)], "go": [Post("go", weight=3.0)] * 2}
SERVERS = {
    "c": [Post("c", server=True, steady=True), Post("c", server=True, weight=2.0)],
    "python": [Post("python", server=True, steady=True), Post("python", server=True, weight=0.3)],
    "go": [Post("go", server=True, steady=True), Post("go", server=True, weight=1.0)],
}


LANGUAGES = list(CLIENTS)


class Ended(Exception):
    """Chaos was told to end before it could say anything."""


# Signals that came. Only loops look, where nothing is half done: an exception from the handler could come between the reading of a
# journal and its oracle, which would miss these records.
told: list[str] = []


def end(number: int, frame: object) -> None:
    told.append(signal.Signals(number).name)


class Chaos:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.dice = random.Random(options.seed)
        self.oracle = Oracle(options.hung)
        self.fabric = Fabric(options.simnic)
        self.crew = Crew(folder, options.commands, self.oracle, self.fabric, options.mistake, options.by)
        self.counts = {"kills": 0, "stops": 0, "terminations": 0, "queue pairs killed": 0}
        self.seconds = 0.0
        self.borne = 0  # signals that ended no more than the faults
        (folder / "content").write_bytes(random.Random(1).randbytes(TABLE_BYTES))
        self.built = self.builds()

    # ---- Who there is ----

    def builds(self) -> dict[str, float]:
        """When what runs was built: a run whose programs change on the way says nothing."""
        return {path: os.stat(path).st_mtime for path in self.options.watched if os.path.exists(path)}

    def start(self, post: Post) -> Worker | None:
        """A client needs a server that listens; until then there is none."""
        seed = self.dice.randrange(1 << 62)
        if post.server:
            return self.crew.start(post, seed, ["--listen", ADDRESS])
        servers = [worker for worker in self.crew.workers if worker.post.server and worker.ports[0] and not worker.ending_since and not worker.killed]
        if not servers:
            return None
        server = self.dice.choice(servers)
        calls, channels, queues = server.ports
        arguments = ["--connect", f"127.0.0.1:{calls}", "--connections", str(self.dice.randrange(1, 5))]
        if channels and self.dice.random() < 0.7:
            arguments += ["--channels", f"127.0.0.1:{channels}"]
        if queues and self.dice.random() < 0.7:
            arguments += ["--queues", f"127.0.0.1:{queues}"]
        return self.crew.start(post, seed, arguments, server)

    def posts(self, servers: bool) -> list[Post]:
        table = SERVERS if servers else CLIENTS
        return [post for language in self.options.languages for post in table[language]]

    def fill_posts(self, posts: list[Post]) -> None:
        missing = list(posts)
        for worker in self.crew.workers:
            if worker.post in missing:
                missing.remove(worker.post)
        for post in missing:
            self.start(post)

    # ---- What is done to them ----

    def victim(self, steady: bool) -> Worker | None:
        """Most of the time one that has been at work."""
        workers = [worker for worker in self.crew.workers if (steady or not worker.post.steady) and not worker.killed]
        if self.dice.random() < 0.9:
            workers = [worker for worker in workers if len(worker.life.flags) or worker.ports[0]]
        return self.dice.choices(workers, [worker.post.weight for worker in workers])[0] if workers else None

    def kill(self) -> float:
        worker = self.victim(steady=False)
        if worker:
            worker.kill()
            self.counts["kills"] += 1
        return self.dice.expovariate(self.options.rate)

    def stop(self) -> float:
        worker = self.victim(steady=True)
        if worker and not worker.resume_at:
            worker.stop(10 ** self.dice.uniform(-2.5, 0.2))
            self.counts["stops"] += 1
        return self.dice.expovariate(1.0)

    def terminate(self) -> float:
        worker = self.victim(steady=False)
        if worker and not worker.ending_since:
            worker.end()
            self.counts["terminations"] += 1
        return self.dice.expovariate(0.5)

    def disturb(self) -> float:
        return self.fabric.disturb(self.dice)

    def kill_queue_pair(self) -> float:
        self.counts["queue pairs killed"] += self.fabric.kill_queue_pair(self.dice)
        return self.dice.expovariate(0.3)

    # ---- The course of it ----

    def watch(self, until: Callable[[], bool], limit_s: float = float("inf")) -> bool:
        """Reads journals until something is so. Gives whether it became so in time."""
        begun = time.monotonic()
        while not until():
            if len(told) > self.borne:
                raise Ended(told[-1])
            if time.monotonic() - begun > limit_s:
                return False
            time.sleep(ROUND_S)
            self.crew.listen()
            self.crew.overdue(self.options.hung)
        return True

    def steady(self) -> list[Worker]:
        return [worker for worker in self.crew.workers if worker.post.steady]

    def idle(self) -> bool:
        """Whether nobody is connected to the steady servers; they answer in the next rounds."""
        for worker in self.steady():
            worker.signal(signal.SIGUSR1)
        return all(len(worker.state) == 2 and worker.state[0].a == worker.state[0].b == 0 for worker in self.steady())

    def holdings(self) -> dict[str, Holdings]:
        for worker in self.steady():
            worker.state.clear()
        if not self.watch(self.idle, self.options.idle):
            for worker in self.steady():
                held = worker.state[0] if worker.state else None
                if not held or held.a or held.b:
                    self.oracle.wrong("leaked", f"{worker.life.what} still has {held.a if held else 'nobody knows how many'} connections, of nobody")
        processes = self.fabric.processes()
        # One that has just died has none, and its death is told by the crew.
        found = {worker.life.what: holdings_of(worker.pid, worker.state, processes[worker.pid])
                 for worker in self.steady() if len(worker.state) == 2 and worker.pid in processes}
        return {what: held for what, held in found.items() if held is not None}

    def end_others(self) -> None:
        """All but the steady servers."""
        self.fabric.set("none")
        for worker in self.crew.workers:
            worker.resume()
            if not worker.post.steady:
                worker.end()
        self.watch(lambda: all(worker.post.steady for worker in self.crew.workers))

    def warm_up(self) -> dict[str, Holdings]:
        """Each steady server meets some clients, so that it has what it will keep. Gives what that is."""
        servers = self.posts(servers=True)
        self.fill_posts(servers)
        ready = self.watch(lambda: len(self.crew.workers) < len(servers) or all(worker.ports[0] for worker in self.crew.workers), self.options.hung)
        if not ready or len(self.crew.workers) < len(servers):
            raise RuntimeError("the servers do not start")
        visits = [self.visit(worker) for worker in self.steady()]
        until = time.monotonic() + self.options.warm_up
        self.watch(lambda: time.monotonic() > until and all(self.met(clients) for clients in visits), self.options.hung)
        self.end_others()
        return self.holdings()

    def visit(self, server: Worker) -> list[Worker]:
        """Starts two clients of it."""
        calls, channels, queues = server.ports
        arguments = ["--connect", f"127.0.0.1:{calls}", "--connections", str(MET // 2)]
        for what, port in (("--channels", channels), ("--queues", queues)):
            arguments += [what, f"127.0.0.1:{port}"] if port else []
        return [self.crew.start(Post("c"), self.dice.randrange(1 << 62), arguments) for _ in range(2)]

    @staticmethod
    def met(clients: list[Worker]) -> bool:
        """Whether they have had as many connections as they make at first, or have ended. Clients tell of all; not each server does."""
        return sum(len(client.life.connections) for client in clients) >= MET or all(client.life.over for client in clients)

    def rage(self, seconds: float) -> None:
        """A signal ends it; what happened until then is looked at all the same."""
        begun = time.monotonic()
        deeds: list[tuple[Callable[[], float], float]] = [(deed, begun) for deed in (self.kill, self.stop, self.terminate, self.disturb, self.kill_queue_pair)]
        if self.options.mistake:
            deeds = []  # they could hide it
        again = self.options.mistake.startswith(MADE_AGAIN)
        shown, posts = begun, self.posts(servers=True) + self.posts(servers=False)
        while self.oracle.bad < WRONGS_MAX:
            now = time.monotonic()
            self.seconds = now - begun
            if told:
                self.borne = len(told)
                return
            if self.crew.mistaken and now - self.crew.mistaken > MISTAKE_S and (self.oracle.bad or not again):
                return
            if self.counts["kills"] >= self.options.kills if self.options.kills else self.seconds >= seconds:
                return
            self.fill_posts(posts)
            deeds = [(deed, now + deed() if now >= due else due) for deed, due in deeds]
            time.sleep(ROUND_S)
            self.crew.listen()
            self.crew.overdue(self.options.hung)
            if now - shown > 10:
                shown = now
                self.oracle.look_for_hung()
                self.oracle.forget()
                self.tell_progress()
                if self.builds() != self.built:
                    raise RuntimeError("a program was built anew while it was in use: this run says nothing")

    def tell_progress(self) -> None:
        ops = sum(self.oracle.ops.values())
        print(f"{time.strftime('%H:%M:%S')} {self.counts['kills']} kills, {ops} ops, {self.oracle.bad} wrong", flush=True)

    def run(self, seconds: float) -> None:
        before = self.warm_up()
        self.rage(seconds)
        self.end_others()
        self.oracle.look_for_hung()
        after = self.holdings()
        for what, held in after.items():
            for leak in leaks(before[what], held) if what in before else []:
                self.oracle.wrong("leaked", f"{what}: {leak}")
        for worker in self.steady():
            worker.end()
        self.watch(lambda: not self.crew.workers)
        for _ in range(2):
            self.oracle.end_round()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__.splitlines()[0])
    parser.add_argument("minutes", nargs="?", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="of an earlier run")
    parser.add_argument("--kills", type=int, default=0, help="end after so many kills, instead of after minutes")
    parser.add_argument("--rate", type=float, default=8.0, help="kills a second, if the machine is quick enough")
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="of the workers, with commas; c must be one")
    parser.add_argument("--go", help="the go command, to build the worker in Go with; without it, it is there already")
    parser.add_argument("--build", type=Path, required=True, help="the build folder, e.g. build/gcc")
    parser.add_argument("--hung", type=float, default=180.0, help="seconds after which an op is said to hang")
    parser.add_argument("--idle", type=float, default=180.0, help="seconds after which connections of nobody are a leak")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before the first fault")
    parser.add_argument("--mistake", default="", help="what a steady server does wrong, to test the oracle: WHAT:N")
    parser.add_argument("--by", choices=["c", "go"], default="c", help="the language of that server")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.languages = options.languages.split(",")
    options.seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    options.simnic = str(options.build / "simnic/simnic")
    options.commands = {
        "c": [str(options.build / "tests/chaos/chaos_worker")],
        "python": ["/usr/bin/python3", str(HERE / "python_worker.py")],
        "go": [str(options.build / "tests/chaos/go_worker")],
    }
    options.watched = [*(options.commands[language][0] for language in ("c", "go")), str(options.build / "capi/libcopyrpc.so"), options.simnic]
    return options


def build_go(go: str, build: Path, worker: str) -> None:
    """What is as it was stays in its place: another run may use it."""
    environment = dict(os.environ, GOFLAGS="-buildvcs=false", GOTOOLCHAIN="local", GOPROXY="off", PKG_CONFIG_PATH=str(build / "meson-uninstalled"))
    environment.update(go_folders(go, str(build)))
    new = Path(f"{worker}.{os.getpid()}")
    done = subprocess.run([go, "build", "-o", str(new), "."], cwd=HERE / "go", env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"the worker in Go does not build:\n{done.stdout}")
    if os.path.exists(worker) and filecmp.cmp(new, worker, shallow=False):
        new.unlink()
    else:
        new.replace(worker)


@contextlib.contextmanager
def folder_of_run() -> Iterator[Path]:
    """Of journals, in memory."""
    folder = Path(tempfile.mkdtemp(prefix="copyrpc-chaos-", dir="/dev/shm"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    options = parse()
    os.environ.update(LD_LIBRARY_PATH=str(options.build / "capi"), PYTHONPATH=str(options.build / "bindings/python"), PYTHONDONTWRITEBYTECODE="1")
    if options.go and "go" in options.languages:
        build_go(options.go, options.build, options.commands["go"][0])
    elif "go" in options.languages and not os.path.exists(options.commands["go"][0]):
        sys.exit("the worker in Go was not built yet: --go GO builds it, and --languages c,python does without")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    print(f"chaos: seed {options.seed}", flush=True)
    with folder_of_run() as folder:
        chaos = Chaos(options, folder)
        trouble = ""
        try:
            chaos.run(options.minutes * 60)
        except (Ended, RuntimeError) as error:
            trouble = f"not over: {error}"
        finally:
            chaos.crew.abandon()
        errors = chaos.crew.errors.read_text(errors="replace") if chaos.crew.errors.exists() else ""
        if chaos.borne:
            print(f"{told[0]} ended the faults early")
        show(options, LANGUAGES, chaos.oracle, chaos.counts, chaos.fabric.faults, chaos.seconds, trouble, errors)
    assert set(chaos.oracle.wrongs) == set(WRONGS)
    return 1 if chaos.oracle.bad or trouble else 0


if __name__ == "__main__":
    sys.exit(main())
