"""What PyPI shows of the package: its programs run as printed, and its links lead somewhere from there."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n.*?\n\n```text\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_each_program_is_followed_by_what_it_prints():
    assert len(PROGRAMS) == README.count("```python\n") >= 2


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program_prints_what_the_readme_says(number, address, tmp_path):
    program, printed = PROGRAMS[number]
    file = tmp_path / "hello.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, file, address], env=dict(os.environ), stdout=subprocess.PIPE, timeout=120, text=True)
    assert (done.returncode, done.stdout) == (0, printed)


def test_links_are_absolute():
    links = re.findall(r"\]\(([^)]*)\)", README)
    assert links and [link for link in links if not link.startswith("https://")] == []
