"""refusals.py: what is wrong in a command, and what every runner must say to it. Nothing of it may be done: no context is open."""

# What is not of a type, by what the schema says of that.
WRONG = {
    "integer": ["1", True, None, -1, 1.5, 4294967296, [1]],
    "string": [5, True, None, ["a"]],
    "boolean": [1, 0, "1", "true", None],
    "array": [5, "1,2", ["1"], [-1], None],
    "enum": ["levitate", 1, None],
}
DIGITS = ["-1", "five", "0x5", ""]  # of 64 bits
HEX = ["abc", "zz", "A0"]


def sample(schema):
    """A value that a member may have."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "string":
        return "10" if schema.get("pattern", "").startswith(("^(0|", "^([0-9a-f]")) else "a"
    return {"integer": 1, "boolean": True, "array": [1]}[schema["type"]]


def wrong_values(schema):
    if "enum" in schema:
        return WRONG["enum"]
    pattern = schema.get("pattern", "")
    return WRONG[schema["type"]] + (DIGITS if pattern.startswith("^(0|") else HEX if pattern.startswith("^([0-9a-f]") else [])


def wrong_commands(lines, hello):
    """(verb, members, how it must be refused, because of which member)."""
    yield "levitate", {}, "UNKNOWN_VERB", None
    for verb, schema in lines.commands.items():
        properties = schema["properties"]
        good = {member: sample(properties[member]) for member in schema["required"]}
        if verb not in hello["verbs"]:
            yield verb, good, "UNKNOWN_VERB", None
            continue
        yield verb, {**good, "levitate": 1}, "UNKNOWN_MEMBER", "levitate"
        for member in schema["required"]:
            yield verb, {key: value for key, value in good.items() if key != member}, "MISSING_MEMBER", member
        for member, allowed in properties.items():
            if f"{verb}.{member}" in hello["lacks"]:
                yield verb, {**good, member: sample(allowed)}, "UNKNOWN_MEMBER", member
                continue
            for value in wrong_values(allowed):
                yield verb, {**good, member: value}, "WRONG_TYPE", member


def refuses(runner, lines, hello):
    """(how many wrong commands there were, what it said to those that it did not refuse as it must)."""
    count, wrong = 0, []
    for text in ("no JSON", "[]", "{}", '{"do": 5}', '"hello"'):
        count += 1
        got = runner.say("hello", text)
        if got["status"] != "NO_COMMAND":
            wrong.append(f"{text}: it said {got['status']}, expected NO_COMMAND")
    for verb, members, how, member in wrong_commands(lines, hello):
        count += 1
        got = runner.command(verb, members)
        if (got["status"], got.get("member")) != (how, member):
            wrong.append(f"{verb} {members}: it said {runner.answer}, expected {how} because of {member}")
    return count, wrong
