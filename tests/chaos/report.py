"""report.py: what a run of chaos says at its end."""
import argparse
from collections import Counter

from oracle import WRONGS, Oracle

TEXTS_MAX = 10  # of each kind


def show(
    options: argparse.Namespace, languages: list[str], oracle: Oracle, counts: dict[str, int], faults: int, seconds: float, trouble: str, errors: str
) -> None:
    ends: Counter[str] = Counter()
    for (_, status), count in oracle.ends.items():
        ends[status] += count
    rows = [
        ("seed", str(options.seed)),
        ("time", f"{seconds:.0f} s"),
        *((what, str(count)) for what, count in counts.items()),
        ("faults of the fabric", str(faults)),
        ("lives", str(len(oracle.lives))),
        ("ops", f"{sum(oracle.ops.values())}: " + ", ".join(f"{count} {what}" for what, count in sorted(oracle.ops.items()))),
        ("requests executed", str(oracle.executed)),
        ("completions", f"{sum(ends.values())}: " + ", ".join(f"{count} {status}" for status, count in ends.most_common())),
        ("open when killed", str(oracle.with_process)),
        *((what, str(len(oracle.wrongs[what]))) for what in WRONGS),
    ]
    print()
    for name, value in rows:
        print(f"  {name:<22} {value}")
    for what in WRONGS:
        for text in oracle.wrongs[what][:TEXTS_MAX]:
            print(f"{what.upper()}: {text}")
    if oracle.bad or trouble:
        for line in errors.splitlines()[-TEXTS_MAX:]:
            print(f"  stderr: {line}")
    if trouble:
        print(trouble)
    limit = f"--kills {options.kills}" if options.kills else f"{options.minutes:g}"
    print(f"again: ./dev chaos {limit} --seed {options.seed}{'' if options.languages == languages else ' --languages ' + ','.join(options.languages)}")
