"""layers_test.py SOURCE_ROOT: who includes whom (docs/design.md, section 1): down only, never up or sideways. TAP."""
import os
import re
import sys
from pathlib import Path

root = sys.argv[1]

# Folder -> folders whose headers it may include, besides its own.
ALLOWED = {
    "core/base": [],
    "core/nic": ["core/base"],
    "core/nic/device": ["core/base", "core/nic"],
    "core/nic/mlx5": ["core/base", "core/nic", "core/nic/device"],
    "core/nic/verbs": ["core/base", "core/nic", "core/nic/device"],
    "core/nic/memory": ["core/base", "core/nic"],
    "core/cm": ["core/base", "core/nic", "core/nic/device"],
    "core/registration": ["core/base", "core/nic"],
    "core/link": ["core/base", "core/nic", "core/cm"],
    "core/rpc": ["core/base", "core/nic", "core/link"],
    "core/channel": ["core/base", "core/nic", "core/registration", "core/link"],
    "capi": ["capi/private", "core/base", "core/nic", "core/registration", "core/cm", "core/link", "core/rpc", "core/channel"],
    "capi/private": ["core/base", "core/nic", "core/registration", "core/link", "core/rpc", "core/channel"],
    "tools/common": ["capi"],
    "tools/perf": ["capi", "tools/common"],
    "tools/info": ["capi", "tools/common"],
    "examples/c": ["capi"],
    "nccl": ["capi"],
}
# The one way up: core sees the ABI's types through abi.h. drivers.c is the table of drivers.
EXCEPTIONS = {("core/nic/drivers.c", "core/nic/mlx5/driver.h"), ("core/base/abi.h", "capi/copyrpc.h"), ("core/nic/drivers.c", "core/nic/verbs/driver.h")}

# A folder without a rule would be checked by nobody, and a rule without a folder is none yet.
strays = []
for top in ("core", "capi", "tools", "examples/c"):
    for folder, below, names in os.walk(os.path.join(root, top)):
        below[:] = [name for name in below if name != "tests"]
        relative = os.path.relpath(folder, root)
        if relative not in ALLOWED and any(name.endswith((".c", ".h", ".cpp")) for name in names):
            strays.append(relative + " has no rule in ALLOWED")
ALLOWED = {folder: below for folder, below in ALLOWED.items() if os.path.isdir(os.path.join(root, folder))}

headers: dict[str, list[str]] = {}
for folder in ALLOWED:
    for name in os.listdir(os.path.join(root, folder)):
        if name.endswith(".h"):
            headers.setdefault(name, []).append(folder + "/" + name)


def targets(folder, include):
    """The files of ours that an include can mean."""
    beside = os.path.normpath(os.path.join(folder, include))
    if os.path.exists(os.path.join(root, beside)):
        return [beside]
    name = os.path.basename(include)
    return headers.get(name, []) if "/" not in include else [
        path for path in headers.get(name, []) if path.endswith("/" + include)]


results = [("every folder has a rule", strays)]
for folder, below in sorted(ALLOWED.items()):
    wrong = []
    for name in sorted(os.listdir(os.path.join(root, folder))):
        path = folder + "/" + name
        if not name.endswith((".c", ".h", ".cpp")):
            continue
        text = Path(root, path).read_text()
        for include in re.findall(r'#include ["<]([^">]+)[">]', text):
            found = targets(folder, include)
            allowed = [target for target in found
                       if os.path.dirname(target) in [folder] + below or (path, target) in EXCEPTIONS]
            if found and not allowed:
                wrong.append("%s includes %s" % (path, include))
        if folder.startswith("core/") and re.search(r"\bcrpc_(?:context|endpoint|channel|rail|cache|listener|region|submit|poll|wait|"
                                                    r"retain|reserve|commit|abort)\w*\(", re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
            wrong.append("%s calls a function of the public API" % path)
    results.append((folder + " includes only what lies below it", wrong))

print("1..%d" % len(results))
for number, (name, wrong) in enumerate(results, 1):
    print("%s %d - %s" % ("not ok" if wrong else "ok", number, name))
    for line in wrong:
        print("# " + line)
sys.exit(any(wrong for _, wrong in results))
