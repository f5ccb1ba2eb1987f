#!/usr/bin/env bash
# shellcheck disable=SC2016 # the variables in what is printed are the other shell's
# services_test.sh LIBRARY_FOLDER ADDRESS KV_SERVER PYTHON GO: builds the programs in docs/services.md exactly as printed, and runs each
# client with each server. PYTHON and GO are paths, or "-" where the build has no such binding; PYTHONPATH is set. Prints TAP.
library=$1 address=$2 kv_server=$3 python=$4 go=$5
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
export readme=$source/docs/services.md
work=$(work_folder) || exit 1
server=
trap '[ -n "$server" ] && kill $server 2>/dev/null; rm -rf "$work"' EXIT
section="A service in three languages"
servers=(c) clients=(c)

excerpt() {
    readme_block "$section" c > "$work/excerpt"
    [ -s "$work/excerpt" ] && tr -s ' \n' ' ' < "$source/examples/c/kv_server.c" | grep -qF "$(tr -s ' \n' ' ' < "$work/excerpt")"
}
check "the page's table is that of the server in C" excerpt
readme_block "$section" c 2 > "$work/client.c"
sanitize=
nm -D "$library/libcopyrpc.so" | grep -q __asan_init && sanitize=-fsanitize=address,undefined
check "the client in C builds as printed, as C99 with every warning" \
    cc $sanitize -std=c99 -Wall -Wextra -Werror -I"$source/capi" -o "$work/client_c" "$work/client.c" -L"$library" -lcopyrpc \
    -Wl,-rpath,"$library"
printf '#!/bin/sh\nexec "%s" "$1"\n' "$kv_server" > "$work/server_c"
if [ "$python" != - ]; then
    servers+=(python) clients+=(python)
    for number in 1 2; do
        program=$([ $number = 1 ] && echo server || echo client)
        readme_block "$section" python $number > "$work/$program.py"
        printf '#!/bin/sh\nexec "%s" "%s" "$1"\n' "$python" "$work/$program.py" > "$work/${program}_python"
    done
fi
if [ "$go" != - ]; then
    . "$source/bindings/go/go_folders.sh"
    # In a shell of its own, because what finds the library when a program is built is not what simnic needs to run it.
    build_go() (
        export_go_build "$source" "$go" "$(dirname "$library")"
        cd "$source/bindings/go" && "$go" build -o "$work/$1.program" "$work/$1.go"
    )
    well_formed() { [ -z "$("$(dirname "$go")/gofmt" -d "$work/$1.go")" ]; }
    servers+=(go) clients+=(go)
    for number in 1 2; do
        program=$([ $number = 1 ] && echo server || echo client)
        readme_block "$section" go $number > "$work/$program.go"
        check "the $program in Go builds as printed" build_go "$program"
        check "and is formatted" well_formed "$program"
        printf '#!/bin/sh\nLD_LIBRARY_PATH="%s:$LD_LIBRARY_PATH" exec "%s" "$1"\n' "$library" "$work/$program.program" > "$work/${program}_go"
    done
fi
chmod +x "$work"/server_* "$work"/client_*

printed() { awk '/^It prints:/ { found = 1 } found && /^```/ { if (inside) exit; inside = 1; next } inside' "$readme"; }
calls() { # CLIENT
    for _ in {1..600}; do
        timeout 60 "$work/client_$1" "$address" > "$work/output" 2> "$work/trouble" && break
        sleep 0.1
    done
    cat "$work/output" "$work/trouble"
    [ -s "$work/output" ] && [ "$(cat "$work/output")" = "$(printed)" ]
}
for one in "${servers[@]}"; do
    "$work/server_$one" "$address" > "$work/said" 2>&1 &
    server=$!
    for other in "${clients[@]}"; do
        check "the client in $other prints what the page says, of the server in $one" calls "$other"
    done
    check_stops "the server in $one ends on SIGTERM" "$server"
    server=
done
plan
