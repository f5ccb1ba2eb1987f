#!/usr/bin/env python3
"""run.py: runs the scenarios of conformance/ through the languages, and tells what came of it.

It alone reads scenarios, matches what runners tell with what was expected, and reports; docs/conformance.md tells of scenarios,
of the words that runners know, and of what is red."""
import argparse
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import report
from abilities import Abilities
from cells import FOREIGN, LANGUAGES, Dealer
from lines import Lines, read_definitions
from needs import needs_of
from peers import Disturber, Gone, Pool
from refusals import refuses
from scenario import Failure, Play

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "bindings/go"))
from go_folders import go_folders  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="the build folder, e.g. build/gcc")
    parser.add_argument("--languages", help="ours, those of --runner, and programs without the library; all, if nothing is said")
    parser.add_argument("--runner", action="append", default=[], metavar="NAME=COMMAND", help="a runner that somebody else has written: the "
                        "peer of every language, and of itself; may be there several times")
    parser.add_argument("--forms", action=argparse.BooleanOptionalAction, default=True, help="calls also in the other forms that languages "
                        "have of them")
    parser.add_argument("--pairs", choices=["all", "same", "once", "turns"], default="all",
                        help="every language with every other, with itself, each once on each side, or one pair a scenario; which pairs "
                        "take turns")
    parser.add_argument("--turn", type=int, metavar="N", help="which pairs the first scenario has, where pairs take turns")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one scenario in N; which ones, the turn says, too")
    parser.add_argument("--drivers", default=os.environ.get("TEST_DRIVER", "verbs"))
    parser.add_argument("--device", default=os.environ.get("TEST_DEVICE", "rxe0"))
    parser.add_argument("--address", default=os.environ.get("TEST_ADDRESS", "10.99.0.1"))
    parser.add_argument("--go", help="the go command, to build the runner in Go with; without it, it is there already")
    parser.add_argument("--vm", help="do what else is said here in the VM, by this program: vm/run")
    parser.add_argument("--checked", action="store_true", help="the schemas have taken all scenarios, and the lines of "
                        "runners elsewhere: do not ask them again")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times longer to wait before a hang is told as such")
    parser.add_argument("--initiators", type=int, default=0, metavar="N", help="scenarios of endpoints alone, which connect by DC; each "
                        "context has N initiators")
    parser.add_argument("--without-srq", action="store_true", help="leave out scenarios that make receives which queues share: the devices "
                        "have no SRQ")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at a time")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="run scenarios in a random order")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run everything N times")
    parser.add_argument("--disturb", type=int, metavar="SEED", help="stop runners now and then for a while, as a busy machine does")
    parser.add_argument("--tap", action="store_true", help="tell each result as TAP")
    parser.add_argument("--verbose", action="store_true", help="show what is said to runners and what they say")
    parser.add_argument("--selftest", action="store_true", help="run selftest/, whose scenarios must fail")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: join these reports to --json")
    options = parser.parse_args()
    options.outside = {}
    for runner in options.runner:
        name, equals, command = runner.partition("=")
        if not (equals and command and name.isalnum() and name.islower()) or name in (*LANGUAGES, *FOREIGN):
            parser.error(f"--runner {runner}: it is NAME=COMMAND, with a name in small letters that is none of ours")
        options.outside[name] = shlex.split(command)
    options.languages_given = options.languages is not None
    ours = [name for name in LANGUAGES if name != "go" or options.go or (options.build / "conformance/runner_go").exists()]
    options.languages = options.languages or ",".join([*ours, *options.outside, *FOREIGN])
    for language in options.languages.split(","):
        if language not in (*LANGUAGES, *options.outside, *FOREIGN):
            parser.error(f"--languages {language}: there is none, and no --runner of that name")
    if options.turn is None:
        options.turn = random.randrange(len(LANGUAGES) ** 2 * options.share)
    return options


# ---- Scenarios ----


def read_schema():
    """schema.json with what the others add; what a verb is told and an event tells follows from its name."""
    schema = json.loads((HERE / "schema.json").read_text())
    definitions = schema["definitions"] = read_definitions()
    definitions["command"]["allOf"] = [
        {"if": {"properties": {"do": {"const": verb}}},
         "then": {"properties": {"with": {"$ref": f"#/definitions/verbs/{verb}"}}, "required": ["with"] if words["required"] or "oneOf" in words else []}}
        for verb, words in definitions["verbs"].items()
    ]
    definitions["event"]["properties"]["event"] = {"enum": list(definitions["events"])}
    definitions["event"]["allOf"] = [
        {"if": {"properties": {"event": {"const": event}}}, "then": {"$ref": f"#/definitions/events/{event}"}}
        for event in definitions["events"]
    ]
    return schema


def schema_check():
    """A function that gives the worst of what the schema finds wrong with a file's content, or nothing."""
    import jsonschema  # takes the VM seconds, which need not ask

    validator = jsonschema.Draft7Validator(read_schema())

    def wrong_with(content):
        wrong = sorted(validator.iter_errors(content), key=lambda error: list(map(str, error.absolute_path)))
        worst = jsonschema.exceptions.best_match(wrong)
        return f"{'/'.join(map(str, worst.absolute_path))}: {worst.message}" if wrong else ""

    return wrong_with


def read_scenarios(folder, only="", checked=False):
    """Gives those that the schema takes, and (file, what is wrong) of files that it does not."""
    wrong_with = (lambda content: "") if checked else schema_check()
    scenarios, rejected = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text())
        except ValueError as error:
            rejected.append((path, str(error)))
            continue
        if only and not any(only in str(scenario.get("name")) for scenario in content.get("scenarios", [])):
            continue  # what nobody asks for need not wait for the schema
        wrong = wrong_with(content)
        if wrong:
            rejected.append((path, wrong))
            continue
        scenarios += content["scenarios"]
    names = [scenario["name"] for scenario in scenarios]
    for name in sorted({name for name in names if names.count(name) > 1}):
        rejected.append((folder, f"two scenarios are called {name}"))
    return [scenario for scenario in scenarios if only in scenario["name"]], rejected


def has_faults(scenario):
    return any("fault" in step for step in scenario["steps"])


def plays_of(options, scenarios, dealer):
    """Everything that there is to play: (scenario, client's language, server's, driver)."""
    share = scenarios[options.turn // len(LANGUAGES) ** 2 % options.share :: options.share]
    return [
        (scenario, client, server, driver)
        for driver in options.drivers.split(",")
        for turn, scenario in enumerate(share, options.turn)
        for client, server in dealer.cells(scenario, turn)
    ] * options.repeat


# ---- Running ----


def shares_initiators(scenario):
    """Whether it is the same for contexts with initiators: it has endpoints, no lanes, and says nothing of initiators itself."""
    text = json.dumps(scenario)
    return not any(f'"{word}"' in text for word in ("lane", "initiators", "queues", "channels", "rails"))


def makes_srq(scenario):
    verbs = set().union(*needs_of(scenario).values())
    return bool(verbs & {"queue_open", "tags_open"})


class Runs:
    """Plays scenarios, a few at a time; each thread has runners of its own, which it uses again."""

    def __init__(self, options, environment, lines, abilities):
        self.options = options
        self.environment = environment
        self.lines = lines
        self.abilities = abilities
        self.local = threading.local()
        self.pools = []

    def pool(self):
        if not hasattr(self.local, "pool"):
            self.local.pool = new_pool(self.options, self.environment, self.lines)
            self.pools.append(self.local.pool)
        return self.local.pool

    def play(self, scenario, client, server, driver):
        entry = {
            "scenario": scenario["name"], "client": client, "server": server, "driver": driver, "device": self.options.device,
            "result": "passed", "reason": "",
        }
        needs = scenario.get("requires", {})
        unable = self.abilities.lacking(scenario, client, server)
        lacking = [self.options.lacking[one] for one in (client, server) if one in self.options.lacking]
        if self.needs_simnic(scenario):
            entry.update(result="skipped", reason=f"{report.ELSEWHERE}: {needs.get('because', 'its ctl makes the faults')}")
        elif unable:
            entry.update(result="skipped", reason=unable)
        elif lacking:
            entry.update(result="skipped", reason=lacking[0])
        elif driver not in needs.get("drivers", [driver]):
            asked = set(needs["drivers"]).intersection(self.options.drivers.split(","))
            entry.update(result="skipped", reason=f"{f'not for the driver {driver}' if asked else report.NOT_ASKED}: {needs['because']}")
        else:
            try:
                Play(scenario, self.pool(), self.lines, {"client": client, "server": server}, driver, self.options).run()
            except Failure as failure:
                entry.update(result="failed", reason=str(failure))
        return entry

    def needs_simnic(self, scenario):
        here = self.options.device.startswith("mlx5_")
        needs = scenario.get("requires", {})
        return not here and (has_faults(scenario) or needs.get("simnic", False) or needs.get("dc", False))

    def close(self):
        for pool in self.pools:
            pool.close()


def new_tap():
    from results import Tap  # here: who tries a runner of their own need not have the package that prints TAP

    return Tap()


def run_all(options, environment, lines, abilities, plays):
    runs, entries = Runs(options, environment, lines, abilities), []
    tap = new_tap() if options.tap else None
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(plays)
    turns = f", turn {options.turn}" if options.pairs in ("once", "turns") or options.share > 1 else ""
    print(f"# seeds: shuffle {options.shuffle}, disturb {options.disturb}{turns}", flush=True)
    disturber = contextlib.nullcontext() if options.disturb is None else Disturber(options.disturb, runs.pools, options.jobs)
    try:
        # Faults hit whatever runs at the time, and are disturbance enough.
        calm = [play for play in plays if not has_faults(play[0])]
        faulty = [play for play in plays if has_faults(play[0])]
        for jobs, group, around in ((options.jobs, calm, disturber), (1, faulty, contextlib.nullcontext())):
            with around, ThreadPoolExecutor(jobs) as threads:
                for entry in threads.map(lambda play: runs.play(*play), group):
                    entries.append(entry)
                    if tap:
                        tap.entry(entry)
                    elif entry["result"] == "failed":
                        print(f"failed: {report.title(entry)}: {entry['reason']}", flush=True)
    finally:
        runs.close()
    return entries, tap


def selftest(options, environment, lines, abilities):
    """Each scenario of selftest/ must fail, for the reason that it says; rejected.json must be rejected, and each runner must refuse what is
    wrong in a command. With pairs that take turns, so do languages, of which each scenario has one."""
    tap = new_tap()
    if options.pairs == "turns":
        print(f"# languages take turns; again: --turn {options.turn}", flush=True)
    scenarios, rejected = read_scenarios(HERE / "selftest")
    tap.check([path.name for path, _ in rejected] == ["rejected.json"], "the schema rejects rejected.json, and no other", str(rejected))
    runs = Runs(options, environment, lines, abilities)
    selftest_lines(options, lines, abilities, runs.pool(), tap)
    driver = options.drivers.split(",")[0]
    for turn, scenario in enumerate(scenarios, options.turn):
        fit = [language for language in options.languages.split(",") if language not in FOREIGN and not abilities.lacking(scenario, language, language)]
        for language in [fit[turn % len(fit)]] if options.pairs == "turns" else fit:
            entry = runs.play(scenario, language, language, driver)
            good = entry["result"] == "failed" and scenario["fails_with"] in entry["reason"]
            tap.check(good, f"{scenario['name']} fails in {language}", f"{entry['result']}: {entry['reason']}")
    runs.close()
    entry = {"scenario": "x", "client": "c", "server": "c", "driver": driver, "device": "d", "result": "skipped", "reason": "none"}
    asked = [("c", "c", driver, "d"), ("c", "go", driver, "d")]
    tap.check(len(report.red([entry], asked)) == 3, "two cells that ran nothing and a scenario that never ran are red")
    tap.check(not report.red([dict(entry, result="passed")], asked[:1]), "a cell that passed is not red")
    lacking = dict(entry, client="pyverbs", reason=f"{report.LACKING} pyverbs")
    asked = [("c", "c", driver, "d"), ("pyverbs", "c", driver, "d")]
    tap.check(not report.red([dict(entry, result="passed"), lacking], asked), "a cell of a program that is not here is not red")
    tap.check("1 skipped" in report.summary([lacking]), "it is counted")
    return tap.end()


def selftest_lines(options, lines, abilities, pool, tap):
    """Of what is said: each runner refuses what is wrong, and what is wrong with a runner's lines is found."""
    for name, hello in abilities.hellos.items():
        runner = pool.take(name)
        try:
            count, wrong = refuses(runner, lines, hello)
            tap.check(not wrong, f"{name} refuses {count} wrong commands", "\n".join(wrong[:20]))
        except Gone as gone:
            tap.check(False, f"{name} refuses wrong commands", str(gone))
        runner.kill()
    pool.all_back()
    good = {"event": "response", "id": 1, "status": "CRPC_OK", "length": 0, "checksum": 0}
    tap.check(not lines.wrong_with(good, None), "an event as it should be is nothing wrong")
    for wrong, verb in (({**good, "id": "1"}, None), ({**good, "more": 1}, None), ({"event": "response"}, None), ({"event": "levitated"}, None),
                        ({"done": "CRPC_OK"}, "info"), ({"done": "FINE"}, "reset"), ({"done": "CRPC_OK"}, None), ([], "reset"), ({}, "reset")):
        tap.check(lines.wrong_with(wrong, verb) != "", f"{wrong}, asked for {verb}, is wrong")
    ours = [name for name in options.languages.split(",") if name in LANGUAGES]
    strange = Abilities({name: {**abilities.hellos[name], "capabilities": ["levity"], "verbs": ["open"]} for name in ours}, lines, [])
    tap.check(any("lacks.json does not allow" in line for line in strange.wrong()), "what a runner of ours lacks is red")
    tap.check(any("there is none" in line for line in strange.wrong()), "a capability that there is not is red")


def new_pool(options, environment, lines):
    return Pool(options.build, HERE, options.outside, environment, None if options.checked else lines, options.verbose)


def abilities_of(options, environment, lines):
    """What the runners that are asked for say of themselves."""
    pool, hellos = new_pool(options, environment, lines), {}
    for name in options.languages.split(","):
        if name in options.lacking:
            continue
        try:
            runner = pool.take(name)
            runner.command("hello", {})
        except (Gone, OSError) as error:
            sys.exit(f"{name} does not answer `hello`: {error}")
        if runner.answer["done"] != "CRPC_OK":
            sys.exit(f"{name} answers {runner.answer} to `hello`")
        hellos[name] = runner.answer
        pool.give_back(name, runner)
    pool.close()
    return Abilities(hellos, lines, options.outside)


def environment_of(options):
    """The bindings find the library that is not installed as they would find an installed one."""
    modules = [str(options.build / "bindings/python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(
        os.environ, LD_LIBRARY_PATH=str(options.build / "capi"), PKG_CONFIG_PATH=str(options.build / "meson-uninstalled"),
        PYTHONPATH=os.pathsep.join(modules), PYTHONDONTWRITEBYTECODE="1",
    )


def lacking_from(options, environment):
    """Why a program that is asked for is not here, by its name."""
    if "pyverbs" not in options.languages.split(","):
        return {}
    done = subprocess.run([sys.executable, "-c", "import pyverbs.device"], cwd="/", env=environment, capture_output=True, text=True)
    why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
    return {"pyverbs": f"{report.LACKING} pyverbs for {sys.executable} ({why}): apt install python3-pyverbs"} if done.returncode else {}


def build_go(options, environment):
    runner = options.build / "conformance/runner_go"
    building = dict(environment, GOFLAGS="-buildvcs=false", GOTOOLCHAIN="local", GOPROXY="off",
                    **go_folders(options.go, options.build))
    done = subprocess.run([options.go, "build", "-o", str(runner), "."], cwd=HERE / "go", env=building, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"the runner in Go does not build:\n{done.stdout}")


def main():
    options = arguments()
    if options.merge:
        entries = [entry for path in options.merge for entry in json.loads(path.read_text())]
        report.write(options.json, entries)
        print(report.summary(entries))
        return 0
    options.build = options.build.resolve()
    environment = environment_of(options)
    lines = Lines()
    if not options.checked:  # else it was done outside of the VM
        lines.write(options.build / "conformance/lines")
    if options.go:
        build_go(options, environment)
    if options.vm:  # which has no time to build anything, and takes more than a minute for what the schema says in seconds here
        given = iter(sys.argv)
        others = [word for word in given if word not in ("--vm", "--go") or not next(given)]
        checked = [] if read_scenarios(HERE / "scenarios")[1] else ["--checked"]
        os.execv(options.vm, [options.vm, sys.executable, *others, *checked])
    options.lacking = lacking_from(options, environment)
    abilities = abilities_of(options, environment, lines)
    wrong = abilities.wrong()
    if options.selftest:
        return selftest(options, environment, lines, abilities)
    scenarios, rejected = read_scenarios(HERE / "scenarios", options.only, options.checked)
    for path, why in rejected:
        print(f"rejected: {path.name}: {why}")
    if options.initiators:
        scenarios = [scenario for scenario in scenarios if shares_initiators(scenario)]
    if options.without_srq:
        scenarios = [scenario for scenario in scenarios if not makes_srq(scenario)]
    plays = plays_of(options, scenarios, Dealer(options, abilities))
    entries, tap = run_all(options, environment, lines, abilities, plays)
    asked = {(client, server, driver, options.device) for _, client, server, driver in plays}
    red = wrong + [f"rejected: {path.name}" for path, _ in rejected] + report.red(entries, sorted(asked))
    if options.json:
        report.write(options.json, entries)
    if tap:
        tap.check(not red, "no cell is red", "\n".join(red))
        tap.end()
    else:
        print(report.matrix(entries, sorted(asked), [*LANGUAGES, *options.outside, *FOREIGN]))
        print(report.forms(entries), end="")
        print(report.reasons(entries), end="")
        print("\n".join(f"RED: {line}" for line in red))
        print(report.summary(entries))
    return 1 if red else 0


sys.exit(main())
