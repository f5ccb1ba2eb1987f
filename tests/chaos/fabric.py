"""fabric.py: the network, as `simnic ctl` sees and disturbs it."""
import json
import random
import subprocess
import time
from typing import Any


class Fabric:
    def __init__(self, simnic: str) -> None:
        self.simnic = simnic
        self.faults = 0
        self.specification = "none"
        self.cut = 0.0  # when rail 0 was last seen down

    def ctl(self, *words: str) -> str:
        done = subprocess.run([self.simnic, "ctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"simnic ctl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def set(self, specification: str) -> None:
        if "rail0=down" in self.specification:
            self.cut = time.monotonic()
        self.ctl("fault", specification)
        self.faults += specification != "none"
        self.specification = specification

    def was_cut(self, since: float) -> bool:
        """Whether rail 0 was down at some time since then."""
        return "rail0=down" in self.specification or self.cut > since

    def processes(self) -> dict[int, dict[str, Any]]:
        """What each living process has, by its pid."""
        return {process["pid"]: process for process in json.loads(self.ctl("stats", "--json"))["processes"] if process["state"] == "alive"}

    def disturb(self, dice: random.Random) -> float:
        """Sets faults at random. Gives for how long: cuts are short, for what they cut is soon over."""
        if dice.random() < 0.4:
            self.set("none")
            return dice.uniform(0.5, 2.0)
        words = [f"seed={dice.randrange(1, 1 << 31)}"]
        if dice.random() < 0.6:
            words.append(f"lose={10 ** dice.uniform(-4, -1.5):.6f}")
        if dice.random() < 0.5:
            words.append(f"duplicate={10 ** dice.uniform(-4, -1.5):.6f}")
        if dice.random() < 0.4:
            words.append(f"delay={10 ** dice.uniform(-3, -1):.6f}:{dice.randrange(10, 2000)}")
        if dice.random() < 0.1:
            words.append(f"stall={dice.randrange(1000, 200000)}")
        if dice.random() < 0.25:
            words.append(f"rail{dice.choice([0, 1, 1])}=down")
        self.set(",".join(words))
        return dice.uniform(0.1, 1.0)

    def kill_queue_pair(self, dice: random.Random) -> bool:
        numbers = [pair["qpn"] for process in self.processes().values() for pair in process["queue_pairs"] if not pair["destroyed"]]
        if numbers:
            words = [] if self.specification == "none" else [word for word in self.specification.split(",") if not word.startswith(("stall=", "kill="))]
            self.set(",".join([*words, f"kill={dice.choice(numbers)}"]))
        return bool(numbers)
