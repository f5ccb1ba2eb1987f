"""scenario.py: one scenario, step by step: what is said to its peers, and whether they tell what was expected."""
import functools
import re
import signal
import subprocess
import time
import zlib

from abilities import FORM, base
from arenas import hear
from dynamic import link_dynamic
from lines import REFUSALS
from peers import Gone

PERIOD = 4093
WITHIN_MS = 60000  # ends a hang, and means nothing else
# Connecting takes as long as a busy machine needs, where a scenario does not say how long; the libraries' default is 5 s.
CONNECT_MS = 600000
CONNECTING = [kind + verb for kind in ("", "channel_", "queue_") for verb in ("connect", "accept", "blob")]
# What tells of two events of a kind which is which; the rest of a pattern is what is expected of it.
KEYS = {"response": ("id",), "connected": ("endpoint",), "disconnected": ("endpoint",), "reconnecting": ("endpoint",),
        "connect_request": ("listener", "token", "private"), "request": ("endpoint", "method", "length", "checksum"), "sent": ("id",),
        "received": ("id",), "rail": ("endpoint", "rail"), "completed": ("id",), "taken": ("id",), "room": ("endpoint",),
        "granted": ("id",), "revoked": ("id",), "low": ("endpoint",), "matched": ("id",), "stopped": ("listener",)}
# What queue_address tells, and queue_join_address and target_open need.
ADDRESS = ("queue_pair_number", "packet_sequence_number", "link", "mtu_bytes", "lid", "gid")
# What belongs to an op, and is known by its number.
OF_OPS = ("response", "sent", "received", "completed", "taken", "matched", "granted", "revoked")
# Whose payload theirs is, if a scenario does not say.
PAYLOAD_OF = {"response": "call", "received": "send", "taken": "post", "matched": "post"}


class Failure(Exception):
    """Why a scenario failed."""


@functools.lru_cache(8192)
def payload(length, seed):
    period = bytes((seed * 40503 + index) * 2654435761 >> 24 & 0xFF for index in range(min(length, PERIOD)))
    return (period * (length // PERIOD + 1))[:length]


@functools.lru_cache(8192)
def checksum(length, seed, count=1):
    """Of `count` payloads, one after the other."""
    return functools.reduce(lambda total, index: zlib.crc32(payload(length, seed + index), total), range(count), 0)


def listed(value):
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


class Play:
    def __init__(self, scenario, pool, lines, languages, driver, options):
        self.scenario = scenario
        self.pool = pool
        self.lines = lines
        self.languages = languages
        self.driver = driver
        self.options = options
        self.values = {"address": f"{options.address}:0", "nobody": f"{options.address}:9", "device": options.device}
        self.calls = {}  # (peer, id): when, length, seed
        self.sends = {}  # (peer, id): when, length, seed
        self.posts = {}  # (peer, id): when, length, seed; of several with a summary also how many
        self.rooms = {}  # (peer, name): the id of the call that room was reserved for
        self.runners = {}
        self.killed = set()
        self.may = {}  # peer: what it may tell and need not
        self.faulty = False  # simnic, by our doing

    # ---- The whole ----

    def run(self):
        try:
            for peer, how in self.scenario["peers"].items():
                self.runners[peer] = self.pool.take(self.language(peer))
                if how.get("open", True):
                    self.open(peer, {} if how.get("open") is True else how.get("open", {}))
                for name, (length, access) in how.get("regions", {}).items():
                    self.region(peer, name, length, access)
            for link in self.scenario.get("links", []):
                self.link(link)
            self.steps(self.scenario["steps"], "")
            for peer in self.alive():
                self.nothing_left(peer, "at the end")
            for peer in self.alive():
                self.runners[peer].reset(self.options.patience)
        except Gone as gone:
            self.give_up()
            raise Failure(str(gone)) from None
        except Failure:
            self.give_up()
            raise
        finally:
            self.pool.all_back()
        for peer in self.alive():
            self.pool.give_back(self.language(peer), self.runners[peer])

    def language(self, peer):
        return base(self.languages[peer.rstrip("0123456789")])

    def alive(self):
        return [peer for peer in self.runners if peer not in self.killed]

    def give_up(self):
        for runner in self.runners.values():
            runner.kill()
        if self.faulty:
            self.fault("none")

    def open(self, peer, words):
        words = {key: self.text(value, "") for key, value in words.items()}
        form = self.languages[peer.rstrip("0123456789")].partition(FORM)[2]
        if form:
            words["form"] = form
        if self.options.initiators:
            words["initiators"] = self.options.initiators
        reply = self.command(peer, "open", {"device": self.options.device, "driver": self.driver, **words})
        self.status(peer, "open", reply, "CRPC_OK")
        # A foreign program has no driver of ours, and says what it was told.
        if (reply.get("device"), reply.get("driver_name")) != (self.options.device, self.driver):
            raise Failure(f"{peer} runs on {reply.get('device')}, {reply.get('driver_name')}")

    def region(self, peer, name, length, access):
        """Registers memory. The others know it as $PEER.NAME, its address, and $PEER.NAME.key."""
        self.status(peer, "register", self.command(peer, "register", {"name": name, "length": length, "access": access}), "CRPC_OK")
        reply = self.command(peer, "region", {"region": name})
        self.values[f"{peer}.{name}"], self.values[f"{peer}.{name}.key"] = reply["address"], reply["remote_key"]

    def join(self, link, one):
        """Connects two queues by blobs."""
        peers = [link["client"], link["server"]]
        for peer, options in zip(peers, ("client_options", "server_options")):
            words = {"name": one, **link.get(options, {})}
            self.step({"peer": peer, "do": "queue_blob", "with": words, "learn": {f"blob.{peer}": "blob"}}, "")
        for peer, other in zip(peers, reversed(peers)):
            self.step({"peer": peer, "do": "queue_join", "with": {"queue": one, "blob": f"$blob.{other}"}}, "")
        for peer in peers:
            self.step({"peer": peer, "expect": [{"event": "connected", "endpoint": one}]}, "")

    def learn_address(self, peer, name):
        """Others know where a queue is as $PEER.NAME.queue_pair_number and so on."""
        learn = {f"{peer}.{name}.{field}": field for field in ADDRESS}
        self.step({"peer": peer, "do": "queue_address", "with": {"queue": name}, "learn": learn}, "")

    @staticmethod
    def address_of(peer, name):
        return {field: f"${peer}.{name}.{field}" for field in ADDRESS}

    def join_addresses(self, link, one):
        """Connects two queues by the numbers of their queue pairs."""
        peers = [link["client"], link["server"]]
        for peer, options in zip(peers, ("client_options", "server_options")):
            self.step({"peer": peer, "do": "queue_blob", "with": {"name": one, **link.get(options, {})}}, "")
            self.learn_address(peer, one)
        for peer, other in zip(peers, reversed(peers)):
            self.step({"peer": peer, "do": "queue_join_address", "with": {"queue": one, **self.address_of(other, one)}}, "")
        for peer in peers:
            self.step({"peer": peer, "expect": [{"event": "connected", "endpoint": one}]}, "")

    def aim(self, link):
        """Opens a queue for datagrams on each side, with a target `there`: the other."""
        name, sides = link["as"], [(link["client"], link.get("client_options", {})), (link["server"], link.get("server_options", {}))]
        for peer, options in sides:
            self.step({"peer": peer, "do": "datagrams_open", "with": {"name": name, **options}}, "")
            self.learn_address(peer, name)
        for (peer, _), (other, options) in zip(sides, reversed(sides)):
            words = {"name": "there", "queue": name, "queue_key": options.get("queue_key", 0)}
            self.step({"peer": peer, "do": "target_open", "with": {**words, **self.address_of(other, name)}}, "")

    def link(self, link):
        """Connects client to server; `count` times, as e0, e1, ..."""
        client, server, name = link["client"], link["server"], link["as"]
        if "tags" in link:
            link = {**link, "server_options": {"shared": "tags", **link.get("server_options", {})}}
            if f"tags.{server}" not in self.values:
                self.values[f"tags.{server}"] = "tags"
                self.step({"peer": server, "do": "tags_open", "with": {"name": "tags", **link["tags"]}}, "")
        if link.get("queue") == "datagrams":
            self.aim(link)
            return
        if link.get("queue") == "dynamic":
            link_dynamic(self, link)
            return
        if link.get("queue") in ("blob", "addresses"):
            join = self.join if link["queue"] == "blob" else self.join_addresses
            for one in [f"{name}{index}" for index in range(link["count"])] if "count" in link else [name]:
                join(link, one)
            return
        if f"door.{server}" not in self.values:
            how = {"channels": 1} if link.get("channel") else {"queues": 1} if link.get("queue") else {}
            reply = self.command(server, "listen", {"name": "door", "address": self.values["address"], **how})
            self.status(server, "listen", reply, "CRPC_OK")
            self.values[f"door.{server}"] = reply["address"]
        for one in [f"{name}{index}" for index in range(link["count"])] if "count" in link else [name]:
            words = {"name": one, "address": self.values[f"door.{server}"], **link.get("client_options", {})}
            kind = "channel_" if link.get("channel") else "queue_" if link.get("queue") else ""
            self.step({"peer": client, "do": f"{kind}connect", "with": words}, "")
            self.step({"peer": server, "expect": [{"event": "connect_request", "listener": "door", "as": "link"}]}, "")
            words = {"connection": "$link", "name": one, **link.get("server_options", {})}
            self.step({"peer": server, "do": f"{kind}accept", "with": words}, "")
            for peer in (client, server):
                self.step({"peer": peer, "expect": [{"event": "connected", "endpoint": one}]}, "")

    def fault(self, words):
        self.faulty = words != "none"
        command = [self.options.build / "simnic/simnic", "ctl", "fault", words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failure(f"simnic ctl fault {words}: {done.stdout}")

    # ---- Steps ----

    def steps(self, steps, turn):
        for number, step in enumerate(steps, 1):
            try:
                self.step(step, turn)
            except Failure as failure:
                raise Failure(f"step {number}{f' of turn {turn}' if turn else ''}: {failure}") from None

    def step(self, step, turn):
        if "repeat" in step:
            for index in range(step["repeat"]):
                self.steps(step["steps"], str(index))
        elif "pause_ms" in step:
            time.sleep(step["pause_ms"] / 1000)
        elif "signal" in step:
            self.runners[step["peer"]].signal({"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}[step["signal"]])
            if step["signal"] == "kill":
                self.killed.add(step["peer"])
        elif "fault" in step:
            self.fault(step["fault"])
        elif "hears" in step:
            hear(self, step)
        elif "quiet_ms" in step:
            time.sleep(step["quiet_ms"] / 1000)
            self.nothing_left(step["peer"], f"for {step['quiet_ms']} ms")
        elif "may" in step:
            self.may.setdefault(step["peer"], []).extend(self.patterns(step["peer"], step["may"], turn))
        elif "expect" in step:
            self.expect(step["peer"], step["expect"], turn, step.get("within_ms", WITHIN_MS), step.get("in_order", False))
        else:
            self.do(step, turn)

    def text(self, value, turn):
        """What stands for a value in a scenario: {i} is the turn's number, $name what was learned, $name+1 a bit more. $one,$two is both."""
        if isinstance(value, list):
            return value
        text = str(int(value) if isinstance(value, bool) else value).replace("{i}", turn)
        if text.startswith("$") and "," in text:
            return ",".join(self.text(part, turn) for part in text.split(","))
        found = re.fullmatch(r"\$([a-z0-9_.]+)(?:([+-]\d+))?", text)
        if not found:
            return text
        if found[1] not in self.values:
            raise Failure(f"the scenario has learned no {found[1]}")
        known = self.values[found[1]]
        return str(int(known) + int(found[2])) if found[2] else known

    def command(self, peer, verb, words):
        try:
            members = self.lines.typed(verb, words)
        except ValueError as error:
            raise Failure(f"{peer}: {verb} cannot have {words}: {error}") from None
        return self.runners[peer].command(verb, members, self.options.patience)

    @staticmethod
    def status(peer, verb, reply, wanted):
        status = reply.get("status")
        if status in REFUSALS:  # it has not done it, whatever a scenario expects
            raise Failure(f"{peer} says {status} to {verb}{' because of ' + reply['member'] if 'member' in reply else ''}")
        if status not in listed(wanted):
            raise Failure(f"{peer}: {verb} gave {status}, expected {' or '.join(listed(wanted))}")

    def do(self, step, turn):
        peer, verb = step["peer"], step["do"]
        words = {key: self.text(value, turn) for key, value in step.get("with", {}).items()}
        if verb == "open" and "gives" not in step:
            self.open(peer, words)
            return
        if verb in ("call", "send", "post", "send_tagged", "transfer"):
            self.note(peer, {"call": self.calls, "send": self.sends}.get(verb, self.posts), words)
        if verb == "reserve" and "id" in words:
            self.rooms[peer, words["name"]] = int(words["id"])
        if verb == "commit" and (peer, words["room"]) in self.rooms:
            self.calls[peer, self.rooms[peer, words["room"]]] = (time.monotonic(), int(words["length"]), int(words["seed"]))
        if verb in CONNECTING:
            words = {"connect_timeout_ms": CONNECT_MS, **words}
        if verb == "open":
            words = {"device": self.options.device, "driver": self.driver, **words}
        reply = self.command(peer, verb, words)
        deadline = time.monotonic() + (WITHIN_MS / 1000 * self.options.patience if step.get("until") else 0)
        while not self.as_wanted(reply, step, turn) and time.monotonic() < deadline:
            time.sleep(0.01)
            reply = self.command(peer, verb, words)
        self.status(peer, verb, reply, step.get("gives", "CRPC_OK"))
        for name, field in step.get("learn", {}).items():
            self.values[self.text(name, turn)] = reply[field]
        for field, wanted in step.get("fields", {}).items():
            self.compare(f"{peer}: {verb}: {field}", reply.get(field), wanted, turn)
        if "payload" in step:
            self.compare_payload(f"{peer}: {verb}", reply, self.payload(step["payload"], turn))

    @staticmethod
    def note(peer, table, words):
        """What was sent under a number."""
        count = int(words.get("count", 1))
        length = sum(words["lengths"]) if "lengths" in words else int(words.get("length", 0))
        for index in range(1 if "summary" in words else count):
            op = (time.monotonic(), length, int(words.get("seed", 0)) + index)
            table[peer, int(words["id"]) + index] = (*op, count) if "summary" in words else op

    def as_wanted(self, reply, step, turn):
        """Whether all fields are what they should be; where a step says `until` it is asked again until they are."""
        try:
            for field, wanted in step.get("fields", {}).items():
                self.compare(field, reply.get(field), wanted, turn)
        except Failure:
            return False
        return True

    def compare(self, what, value, wanted, turn):
        if isinstance(wanted, dict):
            least, most = wanted.get("least"), wanted.get("most")
            good = value is not None and (least is None or int(value) >= least) and (most is None or int(value) <= most)
        else:
            good = value in [self.text(one, turn) for one in (wanted if isinstance(wanted, list) else [wanted])]
        if not good:
            raise Failure(f"{what} is {value}, expected {wanted}")

    # ---- Expectations ----

    def payload(self, wanted, turn):
        """(length, checksum) of a payload that a scenario names; of several, both joined by commas."""
        if wanted == "empty":
            return 0, 0
        if isinstance(wanted, list):
            return tuple(",".join(map(str, each)) for each in zip(*(self.payload(one, turn) for one in wanted)))
        for word, table in (("call", self.calls), ("send", self.sends), ("post", self.posts)):
            if word in wanted:
                number = int(self.text(wanted[word], turn))
                found = [op for (_, op_id), op in table.items() if op_id == number]
                if not found:
                    raise Failure(f"the scenario has made no {word} {number}")
                _, length, seed, *count = found[0]
                return length * (count[0] if count else 1), checksum(length, seed, *count)
        length, seed = int(self.text(wanted["length"], turn)), int(self.text(wanted["seed"], turn))
        return length, checksum(length, seed)

    @staticmethod
    def compare_payload(what, fields, wanted):
        for field, plural, wanted_of, says in (("length", "lengths", wanted[0], "{} bytes"), ("checksum", "checksums", wanted[1], "checksum {}")):
            got = fields.get(plural, fields.get(field))
            if got != str(wanted_of):
                raise Failure(f"{what} has {says.format(got)}, expected {wanted_of}")

    def patterns(self, peer, expected, turn):
        """One dict for each event that must come: `key`, by which it is known, and what is expected of it."""
        for pattern in expected:
            kind = pattern["event"]
            base = {"event": kind, "as": pattern.get("as"), "fields": pattern.get("fields", {}), "at_least_ms": pattern.get("at_least_ms")}
            base["key"] = {key: self.text(pattern[key], turn) for key in KEYS[kind] if key in pattern}
            base["status"] = pattern.get("status", None if kind in ("request", "connect_request", "room") else "CRPC_OK")
            if kind == "request" and "payload" in pattern:
                length, total = self.payload(pattern["payload"], turn)
                base["key"].update(length=str(length), checksum=str(total))
            if kind in OF_OPS:
                first, last = pattern["ids"] if "ids" in pattern else [pattern["id"]] * 2
                for number in range(int(self.text(first, turn)), int(self.text(last, turn)) + 1):
                    good = not all(status.startswith("CRPC_E_") for status in listed(base["status"]))
                    one = {**base, "key": {"id": str(number)}}
                    wanted = pattern.get("payload", {PAYLOAD_OF[kind]: number} if kind in PAYLOAD_OF else None)
                    if good and wanted not in (None, "any"):
                        one["payload"] = self.payload(wanted, turn)
                    elif good and kind == "sent":
                        one["fields"] = {"length": self.sends[peer, number][1], **pattern.get("fields", {})}
                    yield one
            else:
                for _ in range(pattern.get("count", 1)):
                    yield dict(base)

    def expect(self, peer, expected, turn, within_ms, in_order=False):
        """Takes the events that must come, in whatever order they do, or in the order in which they are named."""
        left = dict(enumerate(self.patterns(peer, expected, turn)))
        by_id = {(pattern["event"], pattern["key"]["id"]): index for index, pattern in left.items() if pattern["event"] in OF_OPS}
        runner = self.runners[peer]
        deadline = time.monotonic() + within_ms / 1000 * self.options.patience
        while True:
            with runner.changed:
                events, runner.events[:] = list(runner.events), []
                keep = []
                for when, event in events:
                    if event["kind"] in OF_OPS:
                        index = by_id.pop((event["kind"], event["id"]), None)
                    else:
                        index = next((index for index, one in left.items() if self.is_it(one, event)), None)
                    if index is None:
                        keep.append((when, event))
                    elif in_order and index != min(left):
                        raise Failure(f"{peer}: {event['kind']} {left[index]['key']} came before {left[min(left)]['key']}")
                    else:
                        self.check(peer, left.pop(index), when, event)
                runner.events[:0] = keep
                if not left:
                    return
                time_left = deadline - time.monotonic()
                seen = len(runner.events)
                if time_left <= 0:
                    one = next(iter(left.values()))
                    first = f"{one['event']} {one['key']}"
                    raise Failure(f"{peer}: {len(left)} did not come, first {first}; left over: {self.left_over(runner)}")
                if runner.ended:
                    raise Failure(f"{peer}: {runner.why_gone()}")
                runner.changed.wait_for(lambda seen=seen: len(runner.events) > seen or runner.ended, time_left)

    @staticmethod
    def is_it(pattern, event):
        if pattern["event"] == "rail" and event.get("status") not in listed(pattern["status"]):
            return False  # another event: a rail that was late came up, which is not what is told when it is lost
        return pattern["event"] == event["kind"] and all(event.get(key) == value for key, value in pattern["key"].items())

    def check(self, peer, pattern, when, event):
        what = f"{peer}: {event['kind']} {event.get('id', event.get('endpoint', ''))}".rstrip()
        if pattern["status"] is not None and event.get("status") not in listed(pattern["status"]):
            raise Failure(f"{what} has status {event.get('status')}, expected {' or '.join(listed(pattern['status']))}")
        if event.get("status", "").startswith("CRPC_E_"):
            if event["kind"] == "response":
                self.compare_payload(what, event, self.payload("empty", ""))
        elif pattern.get("payload"):
            self.compare_payload(what, event, pattern["payload"])
        for field, wanted in pattern["fields"].items():
            self.compare(f"{what}: {field}", event.get(field), wanted, "")
        if pattern["at_least_ms"] is not None:
            table = {"response": self.calls, "sent": self.sends, "completed": self.posts}[event["kind"]]
            took = (when - table[peer, int(event["id"])][0]) * 1000
            if took < pattern["at_least_ms"]:
                raise Failure(f"{what} came after {took:.1f} ms, expected {pattern['at_least_ms']} at least")
        if pattern["as"] and event["kind"] == "granted":
            self.note_grant(pattern["as"], bytes.fromhex(event["bytes"]))
        elif pattern["as"]:
            self.values[pattern["as"]] = event.get("request", event.get("connection"))
            if "placed" in event:
                self.values[pattern["as"] + ".placed"] = event["placed"]

    def note_grant(self, name, grant):
        """$name is the bytes of a grant (docs/wire.md), and $name.cut and so on what is made of them."""
        key, place = int.from_bytes(grant[36:40], "little"), int.from_bytes(grant[24:32], "little")
        made = {"": grant, ".cut": grant[:-1], ".long": grant + b"\0", ".damaged": bytes([grant[0], grant[1] ^ 1]) + grant[2:]}
        made[".forged"] = self.sealed(grant[:36] + (key ^ 0x5A5A5A).to_bytes(4, "little") + grant[40:44])
        made[".elsewhere"] = self.sealed(grant[:24] + (place ^ 1 << 40).to_bytes(8, "little") + grant[32:44])
        for word, data in made.items():
            self.values[name + word] = data.hex()

    @staticmethod
    def sealed(grant):
        """With the checksum that shows no damage."""
        total = functools.reduce(lambda total, byte: (total ^ byte) * 0x01000193 & 0xFFFFFFFF, grant, 0x811C9DC5)
        return grant + total.to_bytes(4, "little")

    def nothing_left(self, peer, when):
        runner = self.runners[peer]
        with runner.changed:
            # Rails, and room, come and go as the machine is busy or not: told, and expected only of scenarios about that.
            runner.events[:] = [one for one in runner.events if one[1]["kind"] not in ("rail", "room") and not self.may_come(peer, one[1])]
            if runner.events:
                raise Failure(f"{peer} told what nothing was expected of {when}: {self.left_over(runner)}")

    def may_come(self, peer, event):
        """Whether it may come and need not; as many do as a scenario says."""
        may = self.may.get(peer, [])
        index = next((index for index, one in enumerate(may) if self.is_it(one, event)), None)
        return index is not None and bool(may.pop(index))

    @staticmethod
    def left_over(runner):
        texts = [" ".join(f"{key}={value}" for key, value in event.items()) for _, event in runner.events[:3]]
        return "; ".join(texts) + (f"; and {len(runner.events) - 3} more" if len(runner.events) > 3 else "") or "nothing"
