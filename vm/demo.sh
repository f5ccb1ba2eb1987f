#!/usr/bin/env bash
# demo.sh BUILD CALLS: in the VM: an echo server and a client that finds it by rdma_cm. The client's last line is the
# demo's.
set -u
build=$1 calls=$2 address=10.99.0.1:7471
"$build/examples/c/echo_server" "$address" >&2 &
server=$!
"$build/examples/c/demo_client" "$address" "$calls"
status=$?
kill -TERM "$server" 2>/dev/null
wait "$server" 2>/dev/null
exit $status
