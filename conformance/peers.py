"""peers.py: runners: the processes that are peers, and what they have told."""
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

REPLY_SECONDS = 60  # ends a hang, and means nothing else


class Gone(Exception):
    """The process ended, or does not answer."""


def texts_of(line):
    """The members of a line as texts, as scenarios compare them: truths are 1 and 0, and lists have commas."""
    texts = {}
    for key, value in line.items():
        value = int(value) if isinstance(value, bool) else value
        texts[key] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return texts


class Runner:
    """`lines` checks what it says; with None, nobody does."""

    def __init__(self, name, command, environment, lines, verbose):
        self.name = name
        self.lines = lines
        self.verbose = verbose
        self.asked = None  # the verb that it has not answered yet
        self.wrong = ""  # what it said that no runner may
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.changed = threading.Condition()
        self.signals = threading.Lock()  # held while a disturber has the process stopped
        self.stopped = False  # by the scenario
        self.events = []  # that nothing was expected of yet: (when, fields)
        self.replies = []
        self.ended = False
        threading.Thread(target=self.read, daemon=True).start()

    def show(self, arrow, line):
        if self.verbose:
            print(f"# {time.monotonic():.3f} {self.name} {arrow} {line.rstrip()}", file=sys.stderr, flush=True)

    def read(self):
        for line in self.process.stdout:
            self.show("->", line)
            with self.changed:
                self.wrong = self.take(line)
                if self.wrong:
                    break
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def take(self, line):
        """Keeps an event or an answer; returns what is wrong with it, or ""."""
        try:
            told = json.loads(line)
        except ValueError as error:
            return f"no JSON ({error}): {line.rstrip()}"
        wrong = self.lines.wrong_with(told, self.asked) if self.lines else ""
        if wrong:
            return f"{wrong}; it said, {f'asked for {self.asked}' if 'done' in told else 'by itself'}: {line.rstrip()}"
        if "event" in told:
            self.events.append((time.monotonic(), texts_of({"kind": told.pop("event"), **told})))
        else:
            self.asked = None
            self.answer = told
            self.replies.append(texts_of({"status": told["done"], **told}))
        return ""

    def why_gone(self):
        if self.wrong:
            return f"the runner in {self.name} said what the schema does not allow: {self.wrong}"
        try:
            return f"the runner in {self.name} ended with status {self.process.wait(1)}"
        except subprocess.TimeoutExpired:
            return f"the runner in {self.name} told no more"

    def command(self, verb, members, patience=1.0):
        return self.say(verb, json.dumps({"do": verb, **members}), patience)

    def say(self, verb, line, patience=1.0):
        """The answer to a line, whatever that is."""
        self.show("<-", line)
        self.asked = verb
        try:
            self.process.stdin.write(line + "\n")
        except OSError:
            raise Gone(self.why_gone()) from None
        with self.changed:
            if not self.changed.wait_for(lambda: self.replies or self.ended, REPLY_SECONDS * patience):
                raise Gone(f"the runner in {self.name} did not answer: {line}")
            if not self.replies:
                raise Gone(self.why_gone())
            return self.replies.pop(0)

    def signal(self, number):
        with self.signals:
            self.stopped = number == signal.SIGSTOP
            self.send_signal(number)

    def send_signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()
        while number == signal.SIGSTOP and self.process.poll() is None:  # all its threads stand still when it is told as stopped
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG):
                break
            time.sleep(0.0005)

    def disturb(self, seconds):
        """Stops the process for a while, unless a scenario has done so: what a busy machine does to it."""
        with self.signals:
            if not self.stopped and self.process.poll() is None:
                self.send_signal(signal.SIGSTOP)
                time.sleep(seconds)
                self.process.send_signal(signal.SIGCONT)

    def kill(self):
        with self.signals:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        try:
            self.process.stdin.close()
        except OSError:  # a line that it did not live to read
            pass

    def reset(self, patience):
        """Ends all that the scenario made. What is told until then is of the past."""
        reply = self.command("reset", {}, patience)
        if reply.get("status") != "CRPC_OK":
            raise Gone(f"the runner in {self.name} could not reset: {reply}")
        with self.changed:
            self.events.clear()


class Pool:
    """Runners that are used again, scenario after scenario, unless something went wrong."""

    def __init__(self, build, source, outside, environment, lines, verbose):
        schema = str(build / "conformance/lines/commands.json")
        self.commands = {
            "c": [str(build / "conformance/runner_c"), schema],
            "python": [sys.executable, str(source / "python/runner.py"), schema],
            "go": [str(build / "conformance/runner_go"), schema],
            "foreign": [str(build / "conformance/runner_foreign"), schema],
            "pyverbs": [sys.executable, str(source / "python_verbs/runner.py"), schema],
            **outside,
        }
        self.lines = lines
        self.environment = environment
        self.verbose = verbose
        self.idle = {language: [] for language in self.commands}
        self.busy = []  # whom a disturber may stop

    def take(self, language):
        runner = self.idle[language].pop() if self.idle[language] else None
        runner = runner or Runner(language, self.commands[language], self.environment, self.lines, self.verbose)
        self.busy.append(runner)
        return runner

    def give_back(self, language, runner):
        self.idle[language].append(runner)

    def all_back(self):
        """The scenario is over: none of its runners is busy any more."""
        self.busy = []

    def close(self):
        for runners in self.idle.values():
            for runner in runners:
                runner.process.stdin.close()
                try:
                    runner.process.wait(5)
                except subprocess.TimeoutExpired:
                    runner.kill()


class Disturber:
    """Stops runners that are at work for 50 to 300 ms, as many at a time as there are scenarios, until the end of the block: makes
    each step late that can be."""

    def __init__(self, seed, pools, count):
        self.pools = pools
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=[random.Random(seed + index)], daemon=True) for index in range(count)]

    def run(self, chance):
        while not self.over.wait(chance.uniform(0.001, 0.03)):
            busy = [runner for pool in list(self.pools) for runner in list(pool.busy)]
            if busy:
                chance.choice(busy).disturb(chance.uniform(0.05, 0.3))

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
