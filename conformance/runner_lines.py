"""runner_lines.py: what the two runners in Python have in common: commands that are checked by the schema, answers and events, and the
payloads that lengths and seeds stand for. It knows nothing of copyrpc."""
import functools
import json
import re
import zlib

PERIOD = 4093
TYPES = {"integer": int, "string": str, "boolean": bool, "array": list}
DIGITS = "^(0|"  # how the pattern of a number of 64 bits begins


@functools.lru_cache(4096)
def payload(length, seed):
    period = bytes((seed * 40503 + index) * 2654435761 >> 24 & 0xFF for index in range(min(length, PERIOD)))
    return (period * (length // PERIOD + 1))[:length]


def told(data):
    return {"length": len(data), "checksum": zlib.crc32(data)}


def say(**line):
    print(json.dumps(line, separators=(",", ":")), flush=True)


def event(kind, **members):
    say(event=kind, **members)


def big(number):
    """As a line has it, of which JSON may keep 53 bits only."""
    return str(number)


def fits(value, schema):
    """A part of JSON Schema that all members can do with."""
    if "enum" in schema:
        return value in schema["enum"]
    if type(value) is not TYPES[schema["type"]]:
        return False
    if isinstance(value, list):
        return all(fits(one, schema["items"]) for one in value)
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    return schema.get("minimum", value) <= value <= schema.get("maximum", value)


class Refused(Exception):
    """A command that is not done: how it is refused, and because of which member."""

    def answer(self):
        how, *member = self.args
        return {"done": how, **({"member": member[0]} if member else {})}


class Commands:
    """Those that a runner knows. `lacks` are members, as `call.after`, that it does not know."""

    def __init__(self, path, verbs, lacks=()):
        with open(path) as file:
            self.schemas = json.load(file)["definitions"]
        self.verbs = [verb for verb in self.schemas if verb in verbs]
        self.lacks = lacks

    def take(self, line):
        """The verb and the members of a line; numbers of 64 bits are numbers."""
        try:
            command = json.loads(line)
            verb = command["do"]
        except (ValueError, TypeError, KeyError):
            raise Refused("NO_COMMAND") from None
        if not isinstance(verb, str):
            raise Refused("NO_COMMAND")
        if verb not in self.verbs:
            raise Refused("UNKNOWN_VERB")
        schema = self.schemas[verb]
        for member in command:
            if member not in schema["properties"] or f"{verb}.{member}" in self.lacks:
                raise Refused("UNKNOWN_MEMBER", member)
        for member, value in command.items():
            if not fits(value, schema["properties"][member]):
                raise Refused("WRONG_TYPE", member)
        for member in schema["required"]:
            if member not in command:
                raise Refused("MISSING_MEMBER", member)
        del command["do"]
        for member, value in command.items():
            if schema["properties"][member].get("pattern", "").startswith(DIGITS):
                command[member] = int(value)
        return verb, command

    def hello(self, name, language, capabilities=(), forms=None):
        return {"protocol": 1, "name": name, "language": language, "verbs": self.verbs, "lacks": list(self.lacks),
                "capabilities": list(capabilities), "forms": forms or {}}
