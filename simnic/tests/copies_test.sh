#!/usr/bin/env bash
# copies_test.sh COPIES_TEST: that test with each of the C library's copies.
. "$(dirname "$0")/../run/tests/common.sh"
. "$(dirname "$0")/library_copies.sh"
copies_test=$(realpath "$1")
for tunables in "${library_copies[@]}"; do
    check "copies with '$tunables'" env GLIBC_TUNABLES="$tunables" "$copies_test"
done
plan
