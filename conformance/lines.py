"""lines.py: what run.py and runners say to each other: one JSON object a line. It puts the schemas together from lines.json and the verbs
of schema*.json, checks what runners say, and makes commands of what scenarios say.

`lines.py FOLDER` writes the schemas there, for who writes a runner."""
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCHEMAS = ("schema.json", "schema_channels.json", "schema_queues.json", "schema_datagrams.json", "schema_dc.json", "schema_lanes.json",
           "schema_tags.json", "schema_arenas.json", "schema_context.json")
DRAFT = "http://json-schema.org/draft-07/schema#"
PROTOCOL = 1
# How a runner refuses a command. No scenario can expect one of these.
REFUSALS = ("NO_COMMAND", "UNKNOWN_VERB", "UNKNOWN_MEMBER", "WRONG_TYPE", "MISSING_MEMBER", "UNKNOWN_NAME")


def read_definitions():
    """The definitions of the schemas of scenarios. Two of them are `verbs` and `events`, which each file adds to."""
    definitions = {"verbs": {}, "events": {}}
    for name in SCHEMAS:
        more = json.loads((HERE / name).read_text())["definitions"]
        for each in ("verbs", "events"):
            definitions[each].update(more.pop(each))
        definitions.update(more)
    return definitions


class Lines:
    """The schemas: `commands` and `replies` by verb, `events` by kind, each of a line without its `do`, `done` or `event`."""

    def __init__(self):
        own = json.loads((HERE / "lines.json").read_text())
        scenarios = read_definitions()
        self.types = {**scenarios, **own["definitions"]}
        self.commands = {verb: self.command(verb, words, own["commands"].get(verb, {})) for verb, words in scenarios["verbs"].items()}
        self.replies = {verb: self.object(own["replies"].get(verb, {})) for verb in self.commands}
        self.events = {kind: self.object(told) for kind, told in own["events"].items()}
        self.validators = {}

    def plain(self, schema):
        """With what its references stand for."""
        if isinstance(schema, list):
            return [self.plain(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            return self.plain(self.types[schema["$ref"].rsplit("/", 1)[1]])
        return {key: self.plain(value) for key, value in schema.items()}

    def object(self, told):
        return {"type": "object", "additionalProperties": False, "required": told.get("required", []),
                "properties": self.plain(told.get("properties", {}))}

    def command(self, verb, words, more):
        properties = dict(words.get("properties", {}))
        for pattern, schema in words.get("patternProperties", {}).items():  # ^(one|another)$
            properties.update({name: schema for name in pattern.strip("^()$").split("|")})
        made = self.object({"required": words["required"] + more.get("required", []), "properties": properties})
        return {**made, **{key: words[key] for key in ("oneOf", "minProperties") if key in words}}

    # ---- For runners ----

    @staticmethod
    def with_word(word, values, schema):
        return {**schema, "required": [word, *schema["required"]], "properties": {word: values, **schema["properties"]}}

    @staticmethod
    def whole(word, title, kinds):
        """One schema of all kinds of lines, which are its definitions."""
        cases = [{"if": {"properties": {word: {"const": kind}}}, "then": {"$ref": f"#/definitions/{kind}"}} for kind in kinds]
        return {"$schema": DRAFT, "title": title, "type": "object", "required": [word], "properties": {word: {"enum": list(kinds)}},
                "allOf": cases, "definitions": kinds}

    def files(self):
        """What is written for who writes a runner, by the names of the files."""
        commands = {verb: self.with_word("do", {"enum": [verb]}, schema) for verb, schema in self.commands.items()}
        events = {kind: self.with_word("event", {"const": kind}, schema) for kind, schema in self.events.items()}
        done = self.done()
        replies = {verb: self.with_word("done", done, schema) for verb, schema in self.replies.items()}
        return {"commands.json": self.whole("do", "What run.py says to a runner", commands),
                "events.json": self.whole("event", "What a runner tells at any time", events),
                "replies.json": {"$schema": DRAFT, "title": "What a runner answers to each verb: its definition. A failure has no required members.",
                                 "definitions": {**replies, "refused": self.refused()}}}

    def done(self):
        return self.plain({"$ref": "#/definitions/status"})

    @staticmethod
    def refused():
        return {"type": "object", "additionalProperties": False, "required": ["done"],
                "properties": {"done": {"enum": list(REFUSALS)}, "member": {"type": "string"}}}

    def write(self, folder):
        """Runners may read the files at this time: each is there at once."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, schema in self.files().items():
            new = folder / f"{name}.{os.getpid()}"
            new.write_text(json.dumps(schema, indent=1) + "\n")
            new.replace(folder / name)

    # ---- What runners say ----

    def validator(self, *path):
        if path not in self.validators:
            import jsonschema  # takes the VM seconds, which does not check

            if path[0] == "event":
                schema = self.with_word("event", {"const": path[1]}, self.events[path[1]])
            elif path[2] == "refused":
                schema = self.refused()
            else:
                schema = self.with_word("done", self.done(), self.replies[path[1]])
                schema = schema if path[2] == "well" else {**schema, "required": ["done"]}
            self.validators[path] = jsonschema.Draft7Validator(schema)
        return self.validators[path]

    def wrong_with(self, line, verb):
        """What is wrong with an object that a runner says, which was asked for the verb; "" if nothing is."""
        if not isinstance(line, dict) or ("event" in line) == ("done" in line):
            return "no object with either `event` or `done`"
        if "event" in line:
            if line["event"] not in self.events:
                return f"no such event: {line['event']}"
            path = "event", line["event"]
        elif verb is None:
            return "an answer to nothing"
        else:
            path = "reply", verb, "refused" if line["done"] in REFUSALS else "well" if line["done"] == "CRPC_OK" else "badly"
            if verb not in self.replies:  # selftest/ asks for such
                path = "reply", verb, "refused"
        error = next(self.validator(*path).iter_errors(line), None)
        return f"{'/'.join(map(str, error.absolute_path)) or 'the object'}: {error.message}" if error else ""

    # ---- What scenarios say ----

    def typed(self, verb, words):
        """The members of a command. `words` are texts, as scenarios have them when what was learned is in its place."""
        properties = self.commands.get(verb, {}).get("properties", {})
        return {key: self.value(properties.get(key, {}), value) for key, value in words.items()}

    @staticmethod
    def value(schema, value):
        kind = schema.get("type")
        if kind == "integer":
            return int(value)
        if kind == "boolean":
            return value in (True, 1, "1")
        return value if isinstance(value, (list, dict)) else str(value)


def main():
    Lines().write(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
