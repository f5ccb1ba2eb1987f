#!/usr/bin/env bash
# arm64_test.sh SOURCE: the emulation of arm64's stores, compiled for it and run on it; elsewhere by qemu-user, as processors with
# and without SVE.
. "$(dirname "$0")/../run/tests/common.sh"
source=$1
processors=("") run= compiler=cc
if [ "$(uname -m)" != aarch64 ]; then
    processors=(cortex-a72 max a64fx) run=qemu-aarch64-static compiler=aarch64-linux-gnu-gcc
    for tool in $run $compiler; do
        if ! command -v "$tool" > /dev/null; then
            skip_all "there is no $tool: install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static"
        fi
    done
fi
program=$(mktemp)
trap 'rm -f "$program"' EXIT
compiles() {
    $compiler -std=gnu11 -O2 -g -static -Wall -Wextra -Werror -Wshadow -D_GNU_SOURCE -I"$source" -I"$source/core" -o "$program" \
        "$source/simnic/shim/emulate/tests/arm64_test.c" "$source"/simnic/shim/emulate/{arm64,arm64_integer,arm64_memory,page}.c \
        "$source/core/nic/mlx5/copy.c"
}
check "it compiles" compiles
for processor in "${processors[@]}"; do
    check "stores of ${processor:-this processor}" ${run:+$run -cpu "$processor"} "$program"
done
plan
