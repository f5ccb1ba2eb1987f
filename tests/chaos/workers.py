"""workers.py: the processes that make calls and send messages: their start, their signals and their end."""
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from fabric import Fabric
from journal import Journal, Kind, Record
from oracle import Life, Oracle

NOT_STARTED = 3  # the exit status of a worker that cannot use the device


@dataclass(frozen=True)
class Post:
    """What somebody is to do, again and again."""

    language: str
    server: bool = False
    steady: bool = False  # it may be stopped and cut off, but not ended: it is looked at for leaks
    weight: float = 1.0  # how often it is killed


@dataclass
class Worker:
    post: Post
    life: Life
    process: subprocess.Popen[bytes]
    journal: Journal
    born: float = field(default_factory=time.monotonic)
    ports: tuple[int, int, int] = (0, 0, 0)  # of a server that listens: for calls, channels, queues
    state: dict[int, Record] = field(default_factory=dict)  # its answer to SIGUSR1
    killed: bool = False
    ending_since: float = 0.0  # when it was told to end
    resume_at: float = 0.0  # it is stopped until then

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.killed = True
        self.signal(signal.SIGKILL)

    def stop(self, seconds: float) -> None:
        self.signal(signal.SIGSTOP)
        self.resume_at = time.monotonic() + seconds

    def resume(self) -> None:
        self.resume_at = 0.0
        self.signal(signal.SIGCONT)

    def end(self) -> None:
        if not self.ending_since:
            self.ending_since = time.monotonic()
            self.life.drops = self.post.language == "python"  # aserve cancels its handlers
            self.signal(signal.SIGTERM)
            self.resume()


class Crew:
    """All workers, and who stands in for whom."""

    def __init__(self, folder: Path, commands: dict[str, list[str]], oracle: Oracle, fabric: Fabric, mistake: str, by: str) -> None:
        self.folder, self.commands, self.oracle, self.mistake, self.by = folder, commands, oracle, mistake, by
        self.workers: list[Worker] = []
        self.fabric = fabric
        self.born = self.not_started = 0
        self.mistaken = 0.0  # when a worker did wrong for the first time, as it was told to
        self.environment = dict(os.environ)
        self.errors = folder / "errors"

    def start(self, post: Post, seed: int, arguments: list[str], server: Worker | None = None) -> Worker:
        self.born += 1
        role = "server" if post.server else "client"
        life = self.oracle.born(self.born, f"{post.language} {role} {self.born}")
        life.server = server.life if server else None
        journal = Journal(self.folder / f"journal-{self.born}")
        command = [
            *self.commands[post.language], "--life", str(self.born), "--journal", str(journal.path), "--content", str(self.folder / "content"),
            "--seed", str(seed), "--device", "mlx5_0", *arguments,
        ]
        if self.mistake and post.steady and post.language == self.by:
            command += ["--mistake", self.mistake]
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True)
        worker = Worker(post, life, process, journal)
        self.workers.append(worker)
        return worker

    def listen(self) -> None:
        """Reads all journals once. Those who have ended leave the crew."""
        for worker in list(self.workers):
            status = worker.process.poll()
            records = worker.journal.take()
            for record in records:
                if record.kind == Kind.READY:
                    worker.ports = (record.a, record.b & 0xFFFFFFFF, record.b >> 32)
                elif record.kind == Kind.STATE:
                    worker.state[record.status] = record
                elif record.kind == Kind.MISTAKE:
                    self.mistaken = self.mistaken or time.monotonic()
            self.oracle.take(worker.life, records)
            if status is not None:
                self.workers.remove(worker)
                worker.journal.close()
                # One that was told to end before it had a handler for that has begun nothing.
                if status == NOT_STARTED and self.fabric.was_cut(worker.born):
                    self.not_started += 1
                else:
                    early = status == -signal.SIGTERM and bool(worker.ending_since) and not worker.life.flags and not worker.ports[0]
                    self.oracle.ended(worker.life, status, worker.killed or early)
            elif worker.resume_at and time.monotonic() >= worker.resume_at:
                worker.resume()
        self.oracle.end_round()

    def overdue(self, limit_s: float) -> None:
        """Kills who was told to end long ago."""
        for worker in self.workers:
            if worker.ending_since and time.monotonic() - worker.ending_since > limit_s and not worker.killed:
                self.oracle.wrong("hung", f"{worker.life.what} did not end within {limit_s:.0f} s of SIGTERM")
                worker.kill()

    def abandon(self) -> None:
        """Nobody is left behind, whatever happened."""
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.process.wait()
