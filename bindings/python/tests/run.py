"""run.py [PYTEST ARGUMENTS]: pytest, with results as TAP, which meson counts case by case."""
import os
import signal
import sys

import pytest

# Tests send these, or wait for children, which have what their parent has: whoever starts this may have blocked or ignored them.
USED = (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)
for number in USED:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, USED)


class Tap:
    def __init__(self):
        self.count = 0

    def pytest_addoption(self, parser):
        # Of the terminal's reporter, which would print between the results; assertions ask for it.
        parser.addoption("--verbose", dest="verbose", type=int, default=0)

    def line(self, good, name, note=""):
        self.count += 1
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}{note}", flush=True)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("/")[-1].replace("#", "")
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.line(True, name, f" # SKIP {reason}")
        elif report.failed:
            self.line(False, name if report.when == "call" else f"{name} ({report.when})")
            print("\n".join("# " + line for line in report.longreprtext.splitlines()), flush=True)
        elif report.when == "call":
            self.line(True, name)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.line(True, report.nodeid, f" # SKIP {report.longrepr[2]}")
        if report.failed:
            self.line(False, f"collecting {report.nodeid}")
            print("\n".join("# " + line for line in report.longreprtext.splitlines()), flush=True)


tap = Tap()
here = os.path.dirname(os.path.abspath(__file__))
arguments = sys.argv[1:] or [here]
# The folder's conftest.py sets up everything; an address of what else is installed must not.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
status = pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:logging", "--rootdir", here, *arguments], plugins=[tap])
print(f"1..{tap.count}")
# Failures are told case by case, and so is a file that is skipped as a whole; anything else went wrong in pytest itself.
told = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, *([pytest.ExitCode.NO_TESTS_COLLECTED] if tap.count else []))
sys.exit(0 if status in told else int(status))
