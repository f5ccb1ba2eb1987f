#!/usr/bin/env bash
# demo.sh BUILD CALLS: in the VM: the example's echo server, and a client that finds it by rdma_cm, checks every answer and
# ends with the demo's line.
set -u
build=$1 calls=$2 address=10.99.0.1:7471
"$build/examples/echo_server" "$address" >&2 &
server=$!
trap 'kill -TERM $server 2>/dev/null; wait $server 2>/dev/null' EXIT
for _ in $(seq 50); do
    "$build/tools/copyrpc-perf" client "$address" -n "$calls" -q 64 --demo && exit 0
    kill -0 $server 2>/dev/null || break
    sleep 0.1   # it may not listen yet
done
exit 1
