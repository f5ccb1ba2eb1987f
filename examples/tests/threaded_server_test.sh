#!/usr/bin/env bash
# threaded_server_test.sh SERVER CLIENT: clients of a server with three threads. Prints TAP.
host=${TEST_ADDRESS:-127.0.0.1}
server=$1 client=$2
. "$(dirname "$0")/../../tools/tests/tap.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT

usage() { ! "$server" 0 2> "$work/usage" && grep -q usage "$work/usage"; }
listening() { for _ in $(seq 600); do grep -q '^listening' "$work/server" && return 0; sleep 0.1; done; return 1; }
all_answered() { # six clients at once
    local clients=() status=0 pid
    for _ in 1 2 3 4 5 6; do
        "$client" "$host:7489" 1000 > /dev/null & clients+=($!)
    done
    for pid in "${clients[@]}"; do wait "$pid" || status=1; done
    return $status
}
took_turns() { [ "$(grep -c '^thread [0-2] had 2 clients$' "$work/server")" = 3 ] || { cat "$work/server"; return 1; }; }

check "it says what it takes" usage
"$server" 3 "$host:7489" > "$work/server" 2>&1 &
pid=$!
check "it listens" listening
check "six clients at once are answered" all_answered
check_stops "it ends on SIGTERM" "$pid"
check "each thread had two of them" took_turns
plan
