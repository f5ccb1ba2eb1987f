#!/usr/bin/env python3
"""run_tests.py GO SIMNIC BUILD MODE: builds the tests of bindings/go against the library in the build directory, runs them on
simnic, and prints TAP, a line for each Go test, sub-test and example.

MODE is plain, checked (the race detector, and GOEXPERIMENT=cgocheck2: every pointer that goes to C is checked), static: go vet,
gofmt, no dependencies; or otel: all of that for bindings/go/otel, a module that needs others. Where these are not to be had, it is skipped."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from go_folders import go_folders

SOURCE = Path(__file__).resolve().parent
sys.path.append(str(SOURCE.parents[1] / "tests"))
from checks import Checks  # noqa: E402

OTEL = SOURCE / "otel"
FETCH_SECONDS = 120
WRONG_MODULES = ("checksum mismatch", "missing go.sum entry", "updates to go.mod needed")  # which no proxy is to blame for
MODULES = [SOURCE, SOURCE.parents[1] / "examples/go", SOURCE.parents[1] / "bench/go", SOURCE.parents[1] / "tests/chaos/go"]
checks = Checks()


def tap(good, name, output=""):
    checks.check(good, name, output.splitlines()[-200:])


def environment(go, build, simnic):
    """Go finds the library that is not installed, as it would find the installed one: by pkg-config; and its tests find what breaks rails."""
    return dict(os.environ, PKG_CONFIG_PATH=str(build / "meson-uninstalled"), LD_LIBRARY_PATH=str(build / "capi"),
                GOFLAGS="-buildvcs=false", GOTOOLCHAIN="local", GOPROXY="off", MALLOC_ARENA_MAX="1", SIMNIC=simnic,
                **go_folders(go, build))


def say(command, env, folder):
    done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def look_at(go, env, modules):
    gofmt = Path(subprocess.run([go, "env", "GOROOT"], env=env, stdout=subprocess.PIPE, text=True).stdout.strip()) / "bin/gofmt"
    for module in modules:
        name = module.relative_to(SOURCE.parents[1])
        status, output = say([go, "vet", "./..."], env, module)
        tap(status == 0, f"go vet {name}", output)
        status, output = say([str(gofmt), "-l", "."], env, module)
        tap(status == 0 and not output, f"gofmt {name}", output)


def static(go, env):
    look_at(go, env, MODULES)
    status, output = say([go, "list", "-m", "all"], env, SOURCE)
    tap(status == 0 and len(output.split()) == 1, "bindings/go depends on nothing but Go", output)


def fetched(go, env):
    """Tells whether the modules are there that bindings/go/otel needs; otherwise it has said why not."""
    for proxy in ("off", os.environ.get("GOPROXY", "")):  # what was fetched before needs no proxy; "" is Go's default
        try:
            done = subprocess.run([go, "mod", "download"], env=dict(env, GOPROXY=proxy), cwd=OTEL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            checks.skip("bindings/go/otel", f"the Go proxy has not brought its modules in {FETCH_SECONDS} s")
            return False
        if done.returncode == 0:
            return True
    if any(sign in done.stdout for sign in WRONG_MODULES):
        tap(False, "bindings/go/otel", done.stdout)
    else:
        checks.skip("bindings/go/otel", f"its modules are not to be had: {(done.stdout.splitlines() or ['?'])[-1]}")
    return False


def otel(go, simnic, env, binary):
    if not fetched(go, env):
        return
    look_at(go, env, [OTEL])
    status, output = say([go, "list", "-deps", "."], env, OTEL)
    tap(status == 0 and "opentelemetry.io/otel/sdk" not in output, "bindings/go/otel is built on OpenTelemetry's API alone", output)
    if compile_tests(go, env, "checked", binary, OTEL):
        run(go, simnic, env, "otel", binary, OTEL)


def compile_tests(go, env, mode, binary, source=SOURCE):
    if mode == "checked":
        env["GOEXPERIMENT"] = "cgocheck2"
    status, output = say([go, "test", "-c", "-o", binary] + (["-race"] if mode == "checked" else []) + ["."], env, source)
    if status != 0:
        tap(False, "the tests build", output)
    env.pop("GOEXPERIMENT", None)
    return status == 0


def why_skipped(output):
    """What the test said: Go prints the file and the line before it."""
    said = [line.strip().partition(": ")[2] for line in output.splitlines() if not line.lstrip().startswith(("---", "==="))]
    return " ".join(line for line in said if line)


def run(go, simnic, env, mode, binary, source=SOURCE):
    """Tells each test as it ends; those that began and did not end have failed too."""
    session = f"bindings_go_{mode}.{os.getpid()}"
    running = subprocess.Popen([simnic, "run", "--session", session, "--", binary, "-test.v=test2json", "-test.timeout=900s"],
                               env=env, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    events = subprocess.Popen([go, "tool", "test2json"], env=env, stdin=running.stdout, stdout=subprocess.PIPE, text=True)
    said, open_tests, rest = {}, [], []
    for line in events.stdout:
        event = json.loads(line)
        name, action = event.get("Test"), event["Action"]
        if not name:
            rest.append(event.get("Output", ""))
        elif action == "run":
            open_tests.append(name)
            said[name] = []
        elif action == "output":
            said.setdefault(name, []).append(event["Output"])
        elif action in ("pass", "fail", "skip"):
            if name in open_tests:
                open_tests.remove(name)
            output = "".join(said.pop(name, []))
            if action == "skip":
                checks.skip(name, why_skipped(output))
            else:
                tap(action != "fail", name, output)
    status = running.wait()
    for name in open_tests:
        tap(False, f"{name} did not end", "".join(said[name]))
    tap(status == 0, "the tests end with success", "".join(rest))


def main():
    go, simnic, build, mode = sys.argv[1], os.path.abspath(sys.argv[2]), Path(sys.argv[3]).resolve(), sys.argv[4]
    env = environment(go, build, simnic)
    if mode == "static":
        static(go, env)
    else:
        with tempfile.TemporaryDirectory() as folder:
            binary = os.path.join(folder, "copyrpc.test")
            if mode == "otel":
                otel(go, simnic, env, binary)
            elif compile_tests(go, env, mode, binary):
                run(go, simnic, env, mode, binary)
    return checks.end()


sys.exit(main())
