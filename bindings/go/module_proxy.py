#!/usr/bin/env python3
"""module_proxy.py FOLDER VERSION: makes what the Go proxy would have of bindings/go and bindings/go/otel as VERSION ("v0.1.0"), in a folder, for
GOPROXY=file://FOLDER: so what `go get` brings is no more than what a release has. Prints the URL.

The zip has what golang.org/x/mod/zip puts there of a tag bindings/go/VERSION: regular files that are committed or about to be, without modules
below. `go get` itself refuses names and sizes that it would refuse."""
import json
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "github.com/copyrpc/copyrpc/bindings/go"


def module_files(folder):
    listed = subprocess.run(["git", "-C", folder, "ls-files", "-z"], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    names = [Path(name) for name in listed if name]
    below = {name.parent for name in names if name.name == "go.mod" and name.parent != Path(".")}
    return [name for name in names if not below & set(name.parents) and (folder / name).is_file() and not (folder / name).is_symlink()]


def publish(proxy, module, folder, version):
    place = proxy / module / "@v"
    place.mkdir(parents=True)
    (place / "list").write_text(version + "\n", encoding="utf-8")
    (place / f"{version}.info").write_text(json.dumps({"Version": version}), encoding="utf-8")
    (place / f"{version}.mod").write_bytes((folder / "go.mod").read_bytes())
    with zipfile.ZipFile(place / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in module_files(folder):
            archive.write(folder / name, f"{module}@{version}/{name}")


def make_proxy(proxy, version):
    publish(proxy, MODULE, HERE, version)
    publish(proxy, MODULE + "/otel", HERE / "otel", version)
    return proxy.resolve().as_uri()


if __name__ == "__main__":
    print(make_proxy(Path(sys.argv[1]), sys.argv[2]))
