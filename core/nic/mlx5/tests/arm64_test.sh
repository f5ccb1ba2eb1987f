#!/bin/sh
# The files that have code of their own for arm64, compiled for it: clang brings what that needs, and
# -ffreestanding asks for no C library. What comes out is looked at, for no arm64 runs here.
# Usage: arm64_test.sh DIRECTORY
echo 1..4
if ! command -v clang > /dev/null || ! echo 'int a;' | clang --target=aarch64-linux-gnu -c -x c -o /dev/null - 2> /dev/null; then
    for number in 1 2 3 4; do echo "ok $number # SKIP no clang for arm64"; done
    exit 0
fi
here=$1
compile() { clang --target=aarch64-linux-gnu -ffreestanding -std=gnu11 -O2 -Wall -Wextra -Werror -I "$here/../.." -S -o - "$@"; }
result() { # NUMBER NAME TEXT PATTERN...
    number=$1 name=$2 text=$3 word=ok
    shift 3
    for pattern; do
        printf '%s\n' "$text" | grep -Eq "$pattern" || { word='not ok'; echo "# no \"$pattern\""; }
    done
    echo "$word $number - $name"
}
text=$(compile "$here/copy.c" 2>&1)
result 1 'copy.c compiles, stores pairs past the caches' "$text" 'stnp[[:space:]]+q[0-9]+, q[0-9]+, \[x[0-9]+\]' 'stnp.*#32\]' 'copy_choose:'
text=$(printf '%s\n' '#include "nic/mlx5/barrier.h"' 'void all(void);' \
    'void all(void) { barrier_before_record(); barrier_before_doorbell(); barrier_after_doorbell(); barrier_after_owner(); barrier_before_release(); }' \
    | compile -x c - 2>&1)
result 2 'barrier.h' "$text" 'dmb[[:space:]]+oshst' 'dsb[[:space:]]+st' 'dmb[[:space:]]+oshld' 'dmb[[:space:]]+osh$'
text=$(printf '%s\n' '#include "nic/mlx5/doorbell.h"' 'void ring(struct doorbell *d, const void *w);' \
    'void ring(struct doorbell *d, const void *w) { doorbell_ring(d, w); doorbell_push(d, w, 64); }' \
    | compile -x c -I "$here/tests/freestanding" - 2>&1)
result 3 'doorbell.h: the store before the barrier' "$(printf '%s' "$text" | tr '\n\t' '  ')" 'str[[:space:]]+x[0-9]+.*dsb[[:space:]]+st.*blr[[:space:]]+x[0-9]+.*dsb[[:space:]]+st'
# What core/channel does with a clear-to-send. Its file needs a C library, so it is only asked what it uses.
text=
grep -q 'barrier_device_wrote(&line->number' "$here/../../channel/rights.c" && text=$(printf '%s\n' '#include "nic/barrier.h"' 'uint64_t read(const uint64_t *line);' \
    'uint64_t read(const uint64_t *line) { return barrier_device_wrote(&line[7], 5) ? line[0] : 0; }' | compile -x c - 2>&1)
result 4 'nic/barrier.h: the last word, the barrier, the first word' "$(printf '%s' "$text" | tr '\n\t' '  ')" \
    'ldr[[:space:]]+x[0-9]+, \[x0, #56\].*dmb[[:space:]]+oshld.*ldr[[:space:]]+x[0-9]+, \[x0\]'
