#!/usr/bin/env python3
"""histogram_formats.py HISTOGRAM_TEST: what histogram_test wrote in HdrHistogram's formats, read by HdrHistogram's own library in Python, and beside
the values themselves. Prints TAP."""
import bisect
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from checks import Checks

try:
    from hdrh.histogram import HdrHistogram
except ImportError:
    HdrHistogram = None

checks = Checks()


def check(name, good, why=""):
    checks.check(good, name, str(why))


def skip(name):
    checks.skip(name, "there is no HdrHistogram for Python here: ./dev setup fetches it")


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    work = pathlib.Path(folder)
    values = sorted(int(line) for line in (work / "values").read_text().split())
    encoded = (work / "encoded").read_text()
    table = (work / "table").read_text().splitlines()

# Each row says how many values there are up to its own, and that these are as many as its percentile asks for.
rows = [[float(cell) for cell in line.split()] for line in table[2:] if not line.startswith("#")]
head = ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
check("the table has a head and a foot", table[0].split() == head and table[-1].startswith("#[Buckets"), table)
up_to = [bisect.bisect_right(values, round(row[0] * 1000)) for row in rows]
check("each row counts the values up to its own", up_to == [row[2] for row in rows], [(row, n) for row, n in zip(rows, up_to) if row[2] != n])
check("which are as many as its percentile", all(row[2] >= row[1] * len(values) - 1e-6 for row in rows), rows)
before = [bisect.bisect_left(values, int(row[0] * 1000 * 0.998)) for row in rows]
check("and less would be too few", all(n <= row[1] * len(values) + 1e-6 for row, n in zip(rows, before)), list(zip(rows, before)))
check("the last row is the maximum", rows[-1][:3] == [values[-1] / 1000, 1.0, len(values)], rows[-1])
check("the rows come closer to it", len(rows) > 50 and [row[1] for row in rows] == sorted({row[1] for row in rows}), rows)

if HdrHistogram:
    expected = HdrHistogram(1, (1 << 40) - 1, 3)
    for value in values:
        expected.record_value(value)
    read = HdrHistogram.decode(encoded)
    check("HdrHistogram reads what was encoded", read.get_total_count() == len(values), read.get_total_count())
    differ = [i for i in range(expected.counts_len) if expected.get_count_at_index(i) != read.get_count_at_index(i)]
    check("each of its bins is right", not differ, differ)
    check("so are its options", (read.significant_figures, read.highest_trackable_value) == (3, (1 << 40) - 1), read.highest_trackable_value)
else:
    skip("HdrHistogram reads what was encoded")
    skip("each of its bins is right")
    skip("so are its options")
sys.exit(checks.end())
