"""count_tests.py JUNIT...: adds up what meson's test logs say, sub-test by sub-test, and prints the line that ./dev test
ends with. A program that crashed, timed out or printed no sub-test counts as one failure. Exit status 1 on any failure or
if nothing ran."""
import json
import os
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0


def ended_badly(junit):
    """Names of the tests that meson calls failed. Its XML does not say so of a program that fails after its last sub-test."""
    with open(os.path.join(os.path.dirname(junit), "testlog.json")) as log:
        tests = [json.loads(line) for line in log]
    return {test["name"] for test in tests if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")}


for path in sys.argv[1:]:
    try:
        suites = tree.parse(path).getroot().iter("testsuite")
    except (OSError, tree.ParseError) as error:
        print(f"FAILED: no readable results in {path}: {error}")
        failed += 1
        continue
    bad = ended_badly(path)
    for suite in suites:
        before = failed
        cases = list(suite.iter("testcase"))
        for case in cases:
            name = f'{suite.get("name")}: {case.get("name")}'
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print(f"FAILED: {name} ({path.split('/')[1]})")
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
        told = int(suite.get("errors", 0)) + int(suite.get("failures", 0))
        told = max(told, any(suite.get("name").endswith(name.split(":", 1)[-1]) for name in bad))
        if told > failed - before:
            print(f'FAILED: {suite.get("name")} ended badly ({path.split("/")[1]})')
            failed += told - (failed - before)
if passed + failed == 0:
    print("FAILED: no test ran")
    failed = 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed else 0)
