"""report.py: what run.py tells: the matrix, JSON; and what is red. TAP is in results.py."""
import collections
import json

# How the reason begins of what this place cannot run.
ELSEWHERE = "only on simnic"
NOT_ASKED = "only with a driver that was not asked for"
# And of what needs a program that is not here.
LACKING = "this machine lacks"
# And of what a runner from outside does not know.
UNABLE = "the outside runner"


def title(entry):
    pair = " to ".join(language for language in (entry["client"], entry["server"]) if language)
    return f"{entry['scenario']}: {pair}, {entry['driver']} on {entry['device']}"


def cell_of(entry):
    return entry["client"], entry["server"], entry["driver"], entry["device"]


def ran(entry):
    return entry["result"] != "skipped"


def red(entries, asked):
    """What must not be: scenarios that failed, cells of those asked for and scenarios that ran nothing. What needs a program that is not
    here, or what a runner from outside does not know, is left out."""
    lines = [f"{title(entry)}: {entry['reason']}" for entry in entries if entry["result"] == "failed"]
    cells = {cell_of(entry) for entry in entries if ran(entry) or entry["reason"].startswith((LACKING, UNABLE))}
    lines += [f"nothing ran from {cell[0]} to {cell[1]}, {cell[2]} on {cell[3]}" for cell in asked if cell not in cells]
    names = {entry["scenario"] for entry in entries if ran(entry)}
    here = {entry["scenario"] for entry in entries if not entry["reason"].startswith((ELSEWHERE, NOT_ASKED, LACKING, UNABLE))}
    return lines + [f"{name} ran nowhere" for name in sorted(here - names)]


def cell_text(entries, cell, asked):
    own = [entry for entry in entries if cell_of(entry) == cell]
    failed = sum(entry["result"] == "failed" for entry in own)
    passed = sum(entry["result"] == "passed" for entry in own)
    skipped = sum(entry["result"] == "skipped" for entry in own)
    if cell not in asked:
        return "-"
    if own and all(entry["reason"].startswith((LACKING, UNABLE)) for entry in own):
        return f"{skipped} skipped"
    if failed or not passed:
        return f"RED {passed} passed, {failed} failed"
    return f"{passed} passed" + (f", {skipped} skipped" if skipped else "")


def matrix(entries, asked, languages):
    """A table for each driver and device: a row for each client's language, a column for each server's, and a row and a column
    "alone" for scenarios that have no server or no client."""
    lines = []
    for driver, device in sorted({cell[2:] for cell in asked}):
        lines.append(f"\n{driver} on {device}")
        columns = [*languages, ""]
        rows = [["client \\ server", *languages, "alone"]]
        for client in columns:
            rows.append([client or "alone"] + [cell_text(entries, (client, server, driver, device), asked) for server in columns])
        widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
        lines += ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def forms(entries):
    """How often each form of a language has run."""
    lines = ""
    for form in sorted({language for entry in entries for language in (entry["client"], entry["server"]) if ":" in language}):
        own = [entry["result"] for entry in entries if form in (entry["client"], entry["server"])]
        lines += f"{form}: {own.count('passed')} passed, {own.count('failed')} failed, {own.count('skipped')} skipped\n"
    return lines


def reasons(entries):
    """Why scenarios were skipped, and how often."""
    counts = collections.Counter(entry["reason"] for entry in entries if entry["result"] == "skipped")
    return "".join(f"skipped {count}: {reason}\n" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def summary(entries):
    results = [entry["result"] for entry in entries]
    scenarios = len({entry["scenario"] for entry in entries})
    return (f"conformance: {scenarios} scenarios, {len(entries)} results: {results.count('passed')} passed, "
            f"{results.count('failed')} failed, {results.count('skipped')} skipped")


def write(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
