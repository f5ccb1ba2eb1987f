"""layers_test.py SOURCE_ROOT: which folder of simnic may include which, and how includes are written (simnic/design.md, "The parts"). TAP."""
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "tests"))
from layers import Layers, folders_of, includes_of, report, sources_of  # noqa: E402

# Folder -> folders and single headers that it may include, besides its own.
ALLOWED = {
    "simnic/session": [],
    "simnic/fabric": ["simnic/session"],
    "simnic/nic": ["core/base", "simnic/session", "simnic/fabric"],
    "simnic/cm": ["simnic/session", "simnic/nic/dma.h"],
    "simnic/shim/emulate": ["simnic/nic/dma.h"],
    "simnic/shim/process": ["core/base", "simnic/session", "simnic/fabric", "simnic/nic", "simnic/cm"],
    "simnic/shim/mmio": ["core/base", "simnic/fabric", "simnic/nic", "simnic/shim/emulate", "simnic/shim/process"],
    "simnic/shim/kernel": ["core/base", "simnic/session", "simnic/fabric", "simnic/nic", "simnic/cm", "simnic/shim/process",
                           "simnic/shim/mmio"],
    "simnic/shim/libc": ["simnic/session", "simnic/nic", "simnic/cm", "simnic/shim/process", "simnic/shim/mmio", "simnic/shim/kernel"],
    "simnic/run": ["core/base", "simnic/session", "simnic/fabric", "simnic/nic/nic.h", "simnic/nic/tag.h"],
}


def own_files() -> list[str]:
    return [source for folder in folders_of(ROOT, ("simnic",)) for source in sources_of(ROOT, folder)]


def is_ours(include: str) -> bool:
    return include.startswith("simnic/") or (ROOT / "core" / include).is_file()


def written_otherwise(source: str) -> list[str]:
    """Includes of this tree that are not written from its root on, or for core/base from core on."""
    beside = (ROOT / source).parent
    return [f"{source} includes {include}" for include in includes_of(ROOT, source)
            if not is_ours(include) and ((beside / include).exists() or include.startswith("."))]


def own_header_is_late(source: str) -> bool:
    """internal.h, which includes the folder's own header, will do as well."""
    header, internal = source[:-2] + ".h", source.rsplit("/", 1)[0] + "/internal.h"
    return source.endswith(".c") and (ROOT / header).exists() and includes_of(ROOT, source)[0] not in (header, internal)


layers = Layers(ROOT, ALLOWED, tops=("simnic",), search=(".", "core", "capi"))
report([
    *layers.check(),
    ("includes are written from the root on", [line for source in own_files() for line in written_otherwise(source)]),
    ("a file includes its own header first", [source + " does not" for source in own_files() if own_header_is_late(source)]),
])
