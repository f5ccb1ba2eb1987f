"""add_library_source.py: puts the source of libcopyrpc into a source distribution; run by `meson dist` (meson.add_dist_script).

In a checkout, subprojects/copyrpc is a link to the repository, which means nothing outside of it. Here it becomes a folder with
what is needed to build the library, and nothing else: the same commit's, as all that `meson dist` takes."""
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

NEEDED = ["LICENSE", "meson.build", "meson_options.txt", "scripts/version.sh", "capi", "core", ":(exclude)*/tests/*", ":(exclude)capi/abi/*"]


def main() -> None:
    source, target = Path(os.environ["MESON_PROJECT_SOURCE_ROOT"]), Path(os.environ["MESON_PROJECT_DIST_ROOT"])
    repository = subprocess.run(["git", "-C", source, "rev-parse", "--show-toplevel"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    archive = subprocess.run(["git", "-C", repository, "archive", "--format", "tar", "HEAD", "--", *NEEDED], check=True, stdout=subprocess.PIPE).stdout
    folder = target / "subprojects" / "copyrpc"
    if folder.is_symlink():
        folder.unlink()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else files.extractall(folder)
    shutil.rmtree(target / "tests", ignore_errors=True)  # they need the programs of a checkout


if __name__ == "__main__":
    main()
