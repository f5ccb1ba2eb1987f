"""run.py [PYTEST ARGUMENTS]: pytest, with results as TAP, which meson counts case by case."""
import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))
from checks import Checks

# Tests send these, or wait for children, which have what their parent has: whoever starts this may have blocked or ignored them.
USED = (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)
for number in USED:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, USED)


class Tap:
    def __init__(self):
        self.checks = Checks()
        self.told = False  # of any test

    def pytest_addoption(self, parser):
        # Of the terminal's reporter, which would print between the results; assertions ask for it.
        parser.addoption("--verbose", dest="verbose", type=int, default=0)

    def check(self, good, name, told=""):
        self.told = True
        self.checks.check(good, name, told)

    def skip(self, name, why):
        self.told = True
        self.checks.skip(name, why)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("/")[-1]
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skip(name, reason)
        elif report.failed:
            self.check(False, name if report.when == "call" else f"{name} ({report.when})", report.longreprtext)
        elif report.when == "call":
            self.check(True, name)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.skip(report.nodeid, report.longrepr[2])
        if report.failed:
            self.check(False, f"collecting {report.nodeid}", report.longreprtext)


tap = Tap()
here = os.path.dirname(os.path.abspath(__file__))
arguments = sys.argv[1:] or [here]
# The folder's conftest.py sets up everything; an address of what else is installed must not.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
status = pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:logging", "--rootdir", here, *arguments], plugins=[tap])
tap.checks.end()
# Failures are told case by case, and so is a file that is skipped as a whole; anything else went wrong in pytest itself.
told = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, *([pytest.ExitCode.NO_TESTS_COLLECTED] if tap.told else []))
sys.exit(0 if status in told else int(status))
