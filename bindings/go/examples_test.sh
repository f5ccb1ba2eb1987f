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
    export PKG_CONFIG_PATH=$build/meson-uninstalled LD_LIBRARY_PATH=$build/capi COPYRPC=$source
    export GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GOPROXY=off PATH=${go%/*}:$PATH
    export_go_folders python3 "$go" "$build"
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
    # The Go client of docs/queues.md, and the server in C that it reads from.
    mkdir "$work/queues_go"
    export readme=$source/docs/queues.md
    readme_block "RC: memory for others to read" go > "$work/queues_go/main.go"
    readme_block "RC: memory for others to read" c > "$work/queues_go/server.c"
    unset readme
    check "the Go client of docs/queues.md builds as printed" bash -c \
        "mkdir '$work/queues_go/client' && cd '$work/queues_go/client' && mv ../main.go . && sh -e '$work/hello_go/commands'"
    check "and its server" cc -I"$source/capi" -o "$work/queues_go/server" "$work/queues_go/server.c" -L"$build/capi" -lcopyrpc
    # The sender in Go of the same, and the receiver in C.
    mkdir -p "$work/dc_go/sender"
    readme_block_dc() { readme=$source/docs/queues.md readme_block "DCI and DCT: reliable, to many" "$1"; }
    readme_block_dc go > "$work/dc_go/sender/main.go"
    readme_block_dc c > "$work/dc_go/dc.c"
    check "the Go sender to DCTs of docs/queues.md builds as printed" bash -c "cd '$work/dc_go/sender' && sh -e '$work/hello_go/commands'"
    check "and the receiver" cc -I"$source/capi" -o "$work/dc_go/dc" "$work/dc_go/dc.c" -L"$build/capi" -lcopyrpc
    # Its receiver of messages with tags, in Go, and the program in C that sends to it.
    mkdir -p "$work/tags_go/receiver"
    export readme=$source/docs/queues.md
    readme_block "TM-SRQ: messages that find their buffer" go > "$work/tags_go/receiver/main.go"
    readme_block "TM-SRQ: messages that find their buffer" c > "$work/tags_go/tags.c"
    unset readme
    check "its receiver of tags in Go builds as printed" bash -c "cd '$work/tags_go/receiver' && sh -e '$work/hello_go/commands'"
    check "and what sends to it" cc -I"$source/capi" -o "$work/tags_go/tags" "$work/tags_go/tags.c" -L"$build/capi" -lcopyrpc
    # The same of docs/lanes.md.
    mkdir -p "$work/lanes_go/client"
    export readme=$source/docs/lanes.md
    readme_block "A grant, a WRITE, a call" go > "$work/lanes_go/client/main.go"
    readme_block "A grant, a WRITE, a call" c > "$work/lanes_go/server.c"
    unset readme
    check "the Go client of docs/lanes.md builds as printed" bash -c "cd '$work/lanes_go/client' && sh -e '$work/hello_go/commands'"
    check "and its server" cc -I"$source/capi" -o "$work/lanes_go/server" "$work/lanes_go/server.c" -L"$build/capi" -lcopyrpc
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

"$work/queues_go/server" $address:7485 &
server=$!
reads() {
    for _ in $(seq 600); do # until it listens
        timeout 60 "$work/queues_go/client/hello" $address:7485 | tr -d '\0' > "$work/read"
        ! grep -q listens "$work/read" && break
        sleep 0.1
    done
    cat "$work/read"
    [ "$(cat "$work/read")" = "whoever connects may read this, <nil>" ]
}
check "Go reads what C has opened" reads
kill $server && wait $server 2>/dev/null

# Its address is the first line that a receiver prints.
dcts=()
for number in 0 1; do
    "$work/dc_go/dc" > "$work/dct$number" &
    dcts+=($!)
done
lines() { # FILE COUNT
    for _ in $(seq 600); do
        [ "$(wc -l < "$1")" -ge "$2" ] && return
        sleep 0.1
    done
    return 1
}
fans_out() {
    lines "$work/dct0" 1 && lines "$work/dct1" 1 || return
    local first second
    first=$(head -1 "$work/dct0") second=$(head -1 "$work/dct1")
    timeout 60 "$work/dc_go/sender/hello" "$first" "${first:0:8}ffff0000${first:16}" "$second" | sort > "$work/fanned"
    cat "$work/fanned"
    [ "$(sed -n '1p;3p' "$work/fanned")" = "$(printf '%s\n' "0: <nil>" "2: <nil>")" ] && sed -n 2p "$work/fanned" | grep -q '^1: copyrpc: send: ' &&
        lines "$work/dct0" 2 && lines "$work/dct1" 2 && [ "$(sed 1d "$work/dct0")$(sed 1d "$work/dct1")" = "you are number 0you are number 2" ]
}
check "Go sends to two DCTs in C, and not to one that there is not" fans_out
kill "${dcts[@]}" && wait "${dcts[@]}" 2>/dev/null
"$work/tags_go/receiver/hello" $address:7487 > "$work/tagged" &
server=$!
sends() { # TAG TEXT
    for _ in $(seq 600); do # until it listens
        timeout 60 "$work/tags_go/tags" $address:7487 "$1" "$2" > "$work/sent" && break
        sleep 0.1
    done
    cat "$work/sent"
    [ "$(cat "$work/sent")" = CRPC_OK ]
}
check "C sends a message with a tag to Go" sends 1 moon
check "and one with another tag" sends 300 "384400 km"
check "and one that nobody waits for" sends 7 sun
finds() {
    wait $server
    cat "$work/tagged"
    [ "$(cat "$work/tagged")" = "$(printf '%s\n' "word: moon" "number: 384400 km" "tag 7: sun")" ]
}
check "each finds its buffer" finds

"$work/lanes_go/server" $address:7486 &
server=$!
writes() {
    for _ in $(seq 600); do # until it listens
        timeout 60 "$work/lanes_go/client/hello" $address:7486 > "$work/written" && break
        sleep 0.1
    done
    cat "$work/written"
    [ "$(cat "$work/written")" = "written by the client" ]
}
check "Go writes what C has granted, and calls behind it" writes
kill $server && wait $server 2>/dev/null

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
