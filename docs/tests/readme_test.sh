#!/usr/bin/env bash
# readme_test.sh LIBRARY_FOLDER ADDRESS: builds the program in README.md exactly as printed, and runs it against the echo
# server at ADDRESS.
set -eu
library=$1 address=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/docs/tests/readme.sh"
work=$(mktemp -dt "a test.XXXXXX"); trap 'rm -rf "$work"' EXIT
readme_block "A program" c > "$work/hello.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
cc $sanitize -std=c99 -Wall -Wextra -Werror -I"$source/capi" -o "$work/hello" "$work/hello.c" -L"$library" -lcopyrpc -Wl,-rpath,"$library"
# It gives the server 5 s to connect and 1 s to answer. In the VM on a busy machine they may pass: then once more.
for _ in $(seq 20); do
    status=0
    output=$(timeout 30 "$work/hello" "$address") || status=$?
    case $output in
    *"no connection within"* | "CRPC_E_TIMEOUT: "*) ;;
    *) break ;;
    esac
done
echo "$output"
[ "$output" = "CRPC_OK: hello" ] && [ "$status" = 0 ]
