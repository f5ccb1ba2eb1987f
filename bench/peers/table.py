"""table.py: what is printed, drawn and published of the results of peers.py."""
import statistics
import textwrap
from pathlib import Path

BEGIN, END = "<!-- ./dev bench peers: begin -->", "<!-- ./dev bench peers: end -->"
README_BEFORE = "## What it promises"
README_CELLS = [(size, depth, 1) for size in (32, 4096, 65536, 1 << 20) for depth in (1, 256)]
CANNOT = (
    "simnic is a NIC in software: its device is threads of the same two processors, its wire costs nothing but a copy, and a doorbell is a store "
    "that traps, which costs more than on an adapter. So the ratios compare what the libraries and their messages cost a processor, and "
    "favour whoever rings fewer doorbells. They say nothing of the rates or latencies on a NIC. gRPC goes over TCP and the kernel's loopback.")


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def count_text(count):
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.3g}"


def time_text(ns):
    for unit, name in ((1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}"
    return f"{ns:.3g} ns"


def ratio_text(ratio):
    return f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:.2g}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 0.995 else f"{ratio:.2f}"


def cells_of(results):
    """All that were measured, in order."""
    return sorted({(run["size"], run["depth"], run["connections"]) for run in results["runs"]})


def runs_of(results, peer, cell):
    return {run["turn"]: run for run in results["runs"] if run["peer"] == peer and (run["size"], run["depth"], run["connections"]) == cell}


def ratios(results, peer, cell, what):
    """How many times as good copyrpc was, in each turn that has both: of rates ours by theirs, of latencies theirs by ours."""
    ours, theirs = runs_of(results, "copyrpc", cell), runs_of(results, peer, cell)
    found = []
    for turn in sorted(ours.keys() & theirs.keys()):
        mine, other = ours[turn].get(what), theirs[turn].get(what)
        if mine and other:
            found.append(mine / other if what == "calls_per_second" else other / mine)
    return found


def mark(text, reasons):
    """What stands in a table for a note below it."""
    if text not in reasons:
        reasons.append(text)
    return f"({reasons.index(text) + 1})"


def reason(results, peer, cell, what, reasons):
    """Why there is no ratio, as a mark that a note below the table explains."""
    missing = results["peers"][peer]["missing"]
    runs = runs_of(results, peer, cell)
    failed = [run["failed"] for run in runs.values() if "failed" in run]
    text = missing or (failed[0] if failed else "")
    if not text and runs:
        text = "copyrpc has no result here" if not runs_of(results, "copyrpc", cell) else "the program does not say how long a call takes"
        text = text if what != "calls_per_second" else "one of the two has no result of the same turn"
    return mark(text or "it was not reached", reasons)


def ratio_cell(results, peer, cell, what, reasons):
    found = ratios(results, peer, cell, what)
    if not found:
        return reason(results, peer, cell, what, reasons)
    text = ratio_text(statistics.median(found))
    text = text if len(found) == 1 else f"{text} ({ratio_text(min(found))} to {ratio_text(max(found))})"
    runs = runs_of(results, peer, cell)
    failed = [run["failed"] for run in runs.values() if "failed" in run]
    return f"{text} {mark(f'in {len(failed)} of {len(runs)} turns: {failed[0]}', reasons)}" if failed else text


def own_cell(results, cell, what):
    values = [run[what] for run in runs_of(results, "copyrpc", cell).values() if run.get(what)]
    if not values:
        return "-"
    return count_text(statistics.median(values)) if what == "calls_per_second" else time_text(statistics.median(values))


def peers_of(results):
    return [name for name in results["peers"] if name != "copyrpc"]


def one_table(results, cells, what, reasons):
    peers = peers_of(results)
    head = ["size", "depth", "connections", "copyrpc, calls/s" if what == "calls_per_second" else "copyrpc, p50",
            *(results["peers"][peer]["title"] for peer in peers)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for cell in cells:
        row = [size_text(cell[0]), str(cell[1]), str(cell[2]), own_cell(results, cell, what)]
        row += [ratio_cell(results, peer, cell, what, reasons) for peer in peers]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def notes(reasons):
    return "\n".join(f"({number}) {text}." for number, text in enumerate(reasons, 1)) + "\n" if reasons else ""


def instructions_table(results):
    if not results["instructions"]:
        return ""
    lines = ["| 32 B, depth 256, one connection | instructions a call |", "|---|---|"]
    for peer, counted in results["instructions"].items():
        text = f"{counted['per_call']:.0f}" if "per_call" in counted else f"not counted: {counted['reason']}"
        lines.append(f"| {results['peers'][peer]['title']} | {text} |")
    return "\n".join(lines)


def head_of(results):
    machine = results["machine"]
    turns = 1 + max((run["turn"] for run in results["runs"]), default=-1)
    return (f"{results['date']}, commit {results['commit']}, on {results['place']}: {machine['processors']} processors ({machine['processor']}), load "
            f"{machine['load_at_start']} before; {turns} turn{'s' if turns != 1 else ''} of {results['seconds']} s a measurement.")


def left_out(results):
    """Cells for which there is no row, and why."""
    return (f"A cell in which more than {size_text(results['open_bytes_max'])} of requests would be open in all is not measured: a call would only "
            "wait in its own queue.")


def settings_table(results):
    lines = ["| peer | version | settings |", "|---|---|---|"]
    for peer in results["peers"].values():
        lines.append(f"| {peer['title']} | {peer['version'] or peer['missing'] or '-'} | {peer['settings']} |")
    return "\n".join(lines)


def markdown(results, level="##"):
    """All tables."""
    reasons = []
    cells = cells_of(results)
    rate = one_table(results, cells, "calls_per_second", reasons)
    latency = one_table(results, cells, "p50_ns", reasons)
    parts = [
        wrapped(head_of(results)),
        f"{level} Rates: copyrpc's calls a second, and how many times as many as the peer's (least to most)", rate,
        f"{level} Latencies: copyrpc's median, and how many times as long the peer's is (least to most)", latency,
        notes(reasons) + "\n" + left_out(results),
        f"{level} Instructions of the application's thread", instructions_table(results) or "Not counted.",
        f"{level} Versions and settings", settings_table(results)]
    return "\n\n".join(parts) + "\n"


def readme_section(results):
    reasons = []
    cells = [cell for cell in cells_of(results) if cell in README_CELLS]
    rate = one_table(results, cells, "calls_per_second", reasons)
    parts = [
        BEGIN, "## Beside others",
        wrapped("How many times as many calls a second copyrpc makes as other libraries do, and the least and the most of the turns. Measured on "
                + head_of(results)),
        rate, *([notes(reasons).rstrip()] if reasons else []), wrapped(CANNOT),
        wrapped("`./dev bench peers` measures this. [docs/peers.md](docs/peers.md) has all of it: latencies, instructions, and "
                "what each peer does."), END]
    return "\n\n".join(parts) + "\n"


def wrapped(text):
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def between(text, new, before):
    """The text with `new` in place of what the markers enclose, or, without them, before that line."""
    if BEGIN in text:
        return text[:text.index(BEGIN)] + new + text[text.index(END) + len(END) + 1:]
    at = text.index(before)
    return text[:at] + new + "\n" + text[at:]


def publish(results, source):
    """Puts the tables into README.md and docs/peers.md, and the plots beside that."""
    readme, page = Path(source) / "README.md", Path(source) / "docs/peers.md"
    plots = plot(results, Path(source) / "docs/peers")
    pictures = "\n\n".join(f"![{plot_.stem}]({plot_.name})" for plot_ in plots)
    readme.write_text(between(readme.read_text(), readme_section(results), README_BEFORE))
    page.write_text(between(page.read_text(), f"{BEGIN}\n\n## Results\n\n{markdown(results, '###')}\n{pictures}\n\n{END}\n", "## What simnic can tell"))


def plot(results, path):
    """Draws the ratios of rates and of latencies, as SVG. Returns the files; none where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "peers"  # the same results give the same file
    return [written for what, name in (("calls_per_second", "rates"), ("p50_ns", "latencies"))
            if (written := draw(results, what, Path(f"{path}-{name}.svg")))]


def draw(results, what, path):
    from matplotlib import pyplot
    cells, peers = cells_of(results), peers_of(results)
    sizes = sorted({cell[0] for cell in cells})
    if not sizes or not any(ratios(results, peer, cell, what) for peer in peers for cell in cells):
        return None
    figure, all_axes = pyplot.subplots(len(sizes), 1, figsize=(10, 3 * len(sizes) + 1), squeeze=False, layout="constrained")
    for size, axes in zip(sizes, all_axes[:, 0]):
        own = [cell for cell in cells if cell[0] == size]
        for number, peer in enumerate(peers):
            points = [(place, found) for place, cell in enumerate(own) if (found := ratios(results, peer, cell, what))]
            middles = [statistics.median(found) for _, found in points]
            axes.errorbar([place + (number - len(peers) / 2) * 0.08 for place, _ in points], middles,
                          yerr=[[middle - min(found) for middle, (_, found) in zip(middles, points)],
                                [max(found) - middle for middle, (_, found) in zip(middles, points)]],
                          fmt="o", markersize=4, capsize=2, color=f"C{number}", label=results["peers"][peer]["title"])
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_xticks(range(len(own)), [f"{cell[1]} x {cell[2]}" for cell in own])
        axes.set_title(size_text(size), fontsize=10)
        axes.set_ylabel("copyrpc is better by")
        axes.grid(axis="y", alpha=0.3)
    all_axes[-1, 0].set_xlabel("calls open on each connection x connections")
    figure.suptitle(f"{'Calls a second' if what == 'calls_per_second' else 'Median latency'}, on {results['place']}, {results['date']}: "
                    "above 1, copyrpc is better")
    handles, labels = max((axes.get_legend_handles_labels() for axes in all_axes[:, 0]), key=lambda pair: len(pair[0]))
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
