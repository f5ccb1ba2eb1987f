#!/bin/sh
# repair_wheel.sh WHEEL FOLDER: makes a wheel for release of one that was built: checked, and named after all that it is good for. Needs
# auditwheel, patchelf and wheel in PATH. cibuildwheel runs this, and so does ./dev package python.
set -eu
wheel=$1 folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The RDMA libraries are the system's: a process must not have two of each, and they belong to its kernel and devices.
auditwheel repair --exclude 'libibverbs.so.*' --exclude 'librdmacm.so.*' --exclude 'libmlx5.so.*' --wheel-dir "$work" "$wheel"
# Its modules say whether they are for the stable ABI. Then the tag of the Python that built it is the oldest that it is for.
if ! python3 -m zipfile -l "$wheel" | grep '\.so ' | grep -qv '\.abi3\.so '; then
    python3 -m wheel tags --remove --abi-tag abi3 "$work"/*.whl
fi
mkdir -p "$folder"
mv "$work"/*.whl "$folder/"
