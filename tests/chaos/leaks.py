"""leaks.py: what a server holds while it has no peer: the same at the end as in the beginning, or it leaks."""
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from journal import Record

MEMORY_SLACK = 24 << 20  # tables by queue pair number grow, allocators keep what they had


@dataclass(frozen=True)
class Holdings:
    descriptors: int
    memory: int  # bytes of its own that are in RAM
    endpoints: int
    windows: int  # batches that endpoints may still be granted; and receives that channels may
    receives: int
    queue_pairs: int
    protection_domains: int
    memory_regions: int
    memory_windows: int
    completion_queues: int
    shared_receive_queues: int


def holdings_of(pid: int, state: dict[int, Record], process: dict[str, Any]) -> Optional[Holdings]:
    """None if it has died since it told: then it has no memory, and perhaps nobody may look at its descriptors."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    memory = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:")), None)
    if memory is None:
        return None
    objects = process["objects"]
    return Holdings(
        descriptors, memory, state[0].b, state[1].a, state[1].b, objects["queue_pairs"],
        objects["protection_domains"], objects["memory_regions"], objects["memory_windows"], objects["completion_queues"],
        objects["shared_receive_queues"],
    )


def leaks(before: Holdings, after: Holdings, memory_slack: int = MEMORY_SLACK) -> list[str]:
    """What there is more of; or less, of what can be granted."""
    found, old = [], asdict(before)
    for name, value in asdict(after).items():
        fewer = name in ("windows", "receives")
        slack = memory_slack if name == "memory" else 0
        if (value < old[name]) if fewer else (value > old[name] + slack):
            found.append(f"{name.replace('_', ' ')}: {old[name]} before, {value} after")
    return found
