"""layers_test.py SOURCE_ROOT: who includes whom (docs/architecture.md, "The layers"): down only, never up or sideways. TAP."""
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "tests"))
from layers import Layers, report, sources_of  # noqa: E402

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
    "core/lane": ["core/base", "core/nic"],
    "core/rpc": ["core/base", "core/nic", "core/lane", "core/link"],
    "core/channel": ["core/base", "core/nic", "core/registration", "core/link"],
    "core/queue": ["core/base", "core/nic", "core/link"],
    "capi": ["capi/private", "core/base", "core/nic", "core/lane", "core/registration", "core/cm", "core/link", "core/rpc", "core/channel", "core/queue"],
    "capi/private": ["core/base", "core/nic", "core/registration", "core/link", "core/rpc", "core/channel", "core/queue"],
    # device.h is of what the drivers know.
    "tools/common": ["capi", "core/nic/device"],
    "tools/perf": ["capi", "tools/common"],
    # It is about the drivers themselves.
    "tools/check": ["capi", "tools/common", "core/base", "core/nic", "core/nic/device", "core/nic/mlx5"],
    "tools/info": ["capi", "tools/common", "core/nic/device"],
    "tools/top": ["capi", "tools/common", "core/base"],
    "examples/c": ["capi"],
    "nccl": ["capi"],
}
# The one way up: core sees the ABI's types through abi.h. drivers.c is the table of drivers.
EXCEPTIONS = frozenset({("core/nic/drivers.c", "core/nic/mlx5/driver.h"), ("core/nic/drivers.c", "core/nic/verbs/driver.h"),
                        ("core/base/abi.h", "capi/copyrpc.h")})

PUBLIC_CALL = re.compile(
    r"\bcrpc_(?:context|endpoint|channel|queue|lane|grant|rail|cache|listener|region|target|submit|poll|wait|retain|reserve|commit|abort)\w*\("
)


def calls_public_api(source: str) -> bool:
    return bool(PUBLIC_CALL.search(re.sub(r"/\*.*?\*/", "", (ROOT / source).read_text(), flags=re.S)))


layers = Layers(ROOT, ALLOWED, tops=("core", "capi", "tools", "examples/c"), known=("simnic",), exceptions=EXCEPTIONS)
callers = [source + " does" for folder in layers.rules if folder.startswith("core/") for source in sources_of(ROOT, folder)
           if calls_public_api(source)]
report([*layers.check(), ("nothing in core calls the public API", callers)])
