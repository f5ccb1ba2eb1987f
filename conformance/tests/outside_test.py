"""outside_test.py: runners that others have written, as run.py takes them by --runner: the example of docs/conformance.md, and some that do
what no runner may. Its arguments are those of run.py."""
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests"))
from checks import Checks  # noqa: E402

BUILD = Path(sys.argv[sys.argv.index("--build") + 1]).resolve()
SCHEMA = BUILD / "conformance/lines/commands.json"
EXAMPLE = f"{sys.executable} {HERE.parent / 'example/runner.py'} {SCHEMA}"
# Says hello as it should, and then always the same.
SAYS = """
import json, sys
for line in sys.stdin:
    hello = {"done": "CRPC_OK", "protocol": 1, "name": "x", "language": "x", "verbs": %s, "lacks": [], "capabilities": [], "forms": {}}
    print(json.dumps(hello) if json.loads(line)["do"] == "hello" else %r, flush=True)
"""
checks = Checks()
check = checks.check


def run(name, command, *options):
    done = subprocess.run([sys.executable, HERE.parent / "run.py", *sys.argv[1:], "--runner", f"{name}={command}", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def script(name, says, verbs=None):
    verbs = verbs or list(json.loads(SCHEMA.read_text())["definitions"])
    path = BUILD / f"conformance/{name}.py"
    path.write_text(SAYS % (json.dumps(verbs), says))
    return f"{sys.executable} {path}"


def test_example():
    code, told = run("example", EXAMPLE, "--only", "call-", "--no-forms")
    check(code == 0, "the example passes what it takes part in, as the peer of every language", told)
    check("the outside runner example lacks" in told, "what it lacks is told", told)
    code, told = run("example", EXAMPLE, "--languages", "c,example", "--only", "call-echo", "--no-forms")
    check(code == 0 and "4 results: 4 passed" in told, "--languages may name it", told)


def test_wrong_lines():
    for name, says, reason in (("numbers", '{"done": "CRPC_OK", "device": 5, "driver_name": "mlx5"}', "device: 5 is not of type 'string'"),
                               ("more", '{"done": "CRPC_OK", "device": "x", "driver_name": "mlx5", "levity": 1}', "levity"),
                               ("less", '{"done": "CRPC_OK", "driver_name": "mlx5"}', "'device' is a required property"),
                               ("text", "done status=CRPC_OK", "no JSON"), ("event", '{"event": "levitated"}', "no such event: levitated")):
        code, told = run(name, script(name, says), "--only", "call-echo", "--pairs", "same", "--languages", name)
        check(code == 1 and f"the runner in {name} said" in told and reason in told and says in told, f"a wrong line is red: {says}", told)


def test_hello():
    for name, verbs, reason in (("levitates", ["hello", "levitate"], "there is none"), ("silent", None, "does not answer `hello`")):
        command = script(name, "{}", verbs) if verbs else "/bin/true"
        code, told = run(name, command, "--only", "call-echo", "--languages", name)
        check(code == 1 and reason in told, f"{name}: {reason}", told)
    code, told = run("C", "true")
    check(code == 2 and "NAME=COMMAND" in told, "a name in large letters is refused", told)


for test in (test_example, test_wrong_lines, test_hello):
    test()
sys.exit(checks.end())
