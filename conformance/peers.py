"""peers.py: runners: the processes that are peers, and what they have told."""
import os
import signal
import subprocess
import sys
import threading
import time

REPLY_SECONDS = 10


class Gone(Exception):
    """The process ended, or does not answer."""


def fields_of(words):
    return dict(word.split("=", 1) for word in words)


class Runner:
    def __init__(self, name, command, environment, verbose):
        self.name = name
        self.verbose = verbose
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.changed = threading.Condition()
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
            word, *pairs = line.split()
            with self.changed:
                if word == "event":
                    self.events.append((time.monotonic(), fields_of(pairs)))
                else:
                    self.replies.append(fields_of(pairs))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def why_gone(self):
        try:
            return f"the runner in {self.name} ended with status {self.process.wait(1)}"
        except subprocess.TimeoutExpired:
            return f"the runner in {self.name} told no more"

    def command(self, verb, words, patience=1.0):
        line = " ".join([verb, *(f"{key}={value}" for key, value in words.items())])
        self.show("<-", line)
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
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()
        if number == signal.SIGSTOP:  # all its threads stand still only then
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self):
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

    def __init__(self, build, source, environment, verbose):
        self.commands = {
            "c": [str(build / "conformance/runner_c")],
            "python": [sys.executable, str(source / "python/runner.py")],
            "go": [str(build / "conformance/runner_go")],
        }
        self.environment = environment
        self.verbose = verbose
        self.idle = {language: [] for language in self.commands}

    def take(self, language):
        if self.idle[language]:
            return self.idle[language].pop()
        return Runner(language, self.commands[language], self.environment, self.verbose)

    def give_back(self, language, runner):
        self.idle[language].append(runner)

    def close(self):
        for runners in self.idle.values():
            for runner in runners:
                runner.process.stdin.close()
                try:
                    runner.process.wait(5)
                except subprocess.TimeoutExpired:
                    runner.kill()
