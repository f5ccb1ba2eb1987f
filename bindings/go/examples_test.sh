#!/usr/bin/env bash
# examples_test.sh GO SIMNIC BUILD: the examples in Go, copyrpc-perf's sides in Go, and the README's Go program, as printed, against each other and against the
# programs in C. Builds first, then runs itself on simnic.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tools/tests/tap.sh"
. "$source/docs/tests/readme.sh"
. "$source/bindings/go/go_folders.sh"

if [ "${1:-}" != inside ]; then
    go=$1 simnic=$2 build=$3
    export_go_build "$source" "$go" "$build"
    work=$(mktemp -dt "a test.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    check "the examples build" bash -c "cd '$source/examples/go' && '$go' build -o '$work/' ./..."
    check "copyrpc-perf's sides in Go build" bash -c "cd '$source/bench/go' && '$go' build -o '$work/' ./perf_client ./perf_server"
    version=$("$source/scripts/version.sh")
    for program in "$work"/*_*; do
        name=$(basename "$program")
        check "$name --version" test "$("$program" --version 2>&1)" = "$name $version"
    done
    # What the README prints for Go: the program, then the commands of the first shell block after it.
    mkdir "$work/hello_go"
    readme_block "In Go" go > "$work/hello_go/main.go"
    readme_block "In Go" sh > "$work/hello_go/commands"
    check "the README has a program and how to build it" test -s "$work/hello_go/main.go" -a -s "$work/hello_go/commands"
    check "the README's program builds as printed" bash -c "cd '$work/hello_go' && sh -e ./commands"
    "$simnic" run --session "examples_go.$$" -- bash "$0" inside "$work" "$build" "$count"
    exit
fi

work=$2 build=$3 count=$4
address=127.0.0.1
trap 'kill $(jobs -p) 2>/dev/null' EXIT
listening() { for _ in $(seq 600); do grep -q '^listening' "$1" && return 0; sleep 0.1; done; cat "$1"; return 1; }
json() { python3 -c "import json; r = json.load(open('$work/json')); assert $1, r"; }

# serve LABEL COMMAND...: leaves the process in $server.
serve() {
    local label=$1
    shift
    : > "$work/server"
    "$@" > "$work/server" 2>&1 &
    server=$!
    check "$label listens" listening "$work/server"
}

serve "Go's echo server" "$work/echo_server" $address:7481
check "Go calls Go" timeout 60 "$work/echo_client" $address:7481 2000 100
check "C calls Go" timeout 60 "$build/examples/echo_client" $address:7481 2000 100
check "Go calls Go: no bytes" timeout 60 "$work/echo_client" $address:7481 100 0
check "Go calls Go: 64 KiB" timeout 60 "$work/echo_client" $address:7481 100 65536
check "the README's program" bash -c "timeout 60 '$work/hello_go/hello' $address:7481 | grep -qx 'hello <nil>'"
check_stops "Go's echo server ends on SIGTERM" $server
check "Go's echo client says that nobody listens" bash -c "! timeout 60 '$work/echo_client' $address:7481 > '$work/nobody' 2>&1 && grep -q listens '$work/nobody'"
check "Go's echo client explains itself" bash -c "'$work/echo_client' 2>&1 | grep -q '^echo_client: usage'"

serve "C's echo server" "$build/examples/echo_server" $address:7482
check "Go calls C" timeout 60 "$work/echo_client" $address:7482 2000 100
check_stops "C's echo server ends on SIGTERM" $server

# The hash table of the examples, with clients in C, Go and, if that binding is built, Python at once.
clients=("$work/hash_table_client")
if [ -e "$build/bindings/python/copyrpc/__init__.py" ]; then
    clients+=("$work/hash_table_python")
    printf '%s\n' '#!/bin/sh' "PYTHONPATH='$build/bindings/python' PYTHONDONTWRITEBYTECODE=1 exec python3 '$source/examples/python/hash_table_client.py' \"\$@\"" > "$work/hash_table_python"
    chmod +x "$work/hash_table_python"
fi
"$source/examples/tests/hash_table_test.sh" "$build/examples/hash_table_server" "$build/examples/hash_table_client" "${clients[@]}" > "$work/table" 2>&1
check "the hash table with ${#clients[@]} clients in other languages" bash -c "! grep -A12 '^not ok' '$work/table' && tail -n 1 '$work/table' | grep -q '^1[.][.]'"

serve "C's perf server" "$build/tools/copyrpc-perf" server $address:7483
check "Go's perf client, raw, against C" bash -c "timeout 60 '$work/perf_client' -n 5000 -json $address:7483 > '$work/json'"
check "exactly as many as asked for, none lost" json "r['calls'] == 5000 and r['lost'] == 0 and r['wrong'] == 0"
check "they share batches" json "r['messages_per_batch'] >= 16"
check "Go's perf client, raw and sleeping" timeout 60 "$work/perf_client" -n 5000 -wait $address:7483
check "Go's perf client, goroutines, against C" bash -c "timeout 60 '$work/perf_client' -n 5000 -q 1000 -goroutines -json $address:7483 > '$work/json'"
check "none lost among goroutines" json "r['calls'] == 5000 and r['lost'] == 0 and r['wrong'] == 0 and 0 < r['latency_ns']['p50'] <= r['latency_ns']['max']"
check_stops "C's perf server ends on SIGTERM" $server

for how in "" -handler; do
    serve "Go's perf server $how" "$work/perf_server" $how $address:7484
    check "C's perf client against Go $how" bash -c "timeout 60 '$build/tools/copyrpc-perf' client $address:7484 -n 5000 --json > '$work/json'"
    check "none lost, $how" json "r['calls'] == 5000 and r['lost'] == 0 and r['wrong'] == 0"
    check "C's perf client with replies of another size, $how" timeout 60 "$build/tools/copyrpc-perf" client $address:7484 -n 2000 -q 8 -s 64 -r 20000
    check "Go's perf client against Go $how" timeout 60 "$work/perf_client" -n 5000 -q 64 -goroutines $address:7484
    check_stops "Go's perf server $how ends on SIGTERM" $server
done
plan
