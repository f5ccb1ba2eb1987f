"""count_tests.py JUNIT...: adds up what meson's test logs say, sub-test by sub-test, and prints the line that ./dev test
ends with. A program that crashed, timed out or printed no sub-test counts as one failure. Exit status 1 on any failure or
if nothing ran."""
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0
for path in sys.argv[1:]:
    try:
        suites = tree.parse(path).getroot().iter("testsuite")
    except (OSError, tree.ParseError) as error:
        print(f"FAILED: no readable results in {path}: {error}")
        failed += 1
        continue
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
        # Meson tells a crash after the last sub-test, or a wrong plan, only in the suite's counts.
        told = int(suite.get("errors", 0)) + int(suite.get("failures", 0))
        if told > failed - before:
            print(f'FAILED: {suite.get("name")} ended badly ({path.split("/")[1]})')
            failed += told - (failed - before)
if passed + failed == 0:
    print("FAILED: no test ran")
    failed = 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed else 0)
