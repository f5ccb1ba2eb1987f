#!/usr/bin/env bash
# demo.sh BUILD ADDRESS CALLS: the example's echo server at ADDRESS, and a client that finds it by rdma_cm and checks every answer:
# first one call at a time, then 256. Each ends with the demo's line. Exits with a failure if either client does.
set -u
build=$1 address=$2 calls=$3
log=$(mktemp)
server=
trap '[ -n "$server" ] && kill -TERM $server 2>/dev/null && wait $server 2>/dev/null; rm -f "$log"' EXIT
"$build/examples/echo_server" "$address" > "$log" 2>&1 &
server=$!
for _ in $(seq 600); do
    grep -q '^listening' "$log" && break
    kill -0 $server 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
done
cat "$log" >&2
alone=$((calls / 50))
"$build/tools/copyrpc-perf" client "$address" -n $((alone > 0 ? alone : 1)) -q 1 --timeout 50 --demo &&
    "$build/tools/copyrpc-perf" client "$address" -n "$calls" -q 256 --timeout 50 --demo
