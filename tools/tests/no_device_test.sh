#!/usr/bin/env bash
# no_device_test.sh INFO PERF: what the tools say on a machine without an RDMA device. On one with a device there is
# nothing to see.
info=$1 perf=$2
. "$(dirname "$0")/tap.sh"
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    echo "1..0 # SKIP this machine has an RDMA device"
    exit 0
fi
fails_and_says() {
    local words=$1 output
    shift
    output=$("$@" 2>&1) && { echo "exit status 0"; return 1; }
    grep -qi -- "$words" <<< "$output" || { echo "$output"; return 1; }
}
check "info says that there is no device and what to do" fails_and_says "./dev vm" "$info"
check "info prints JSON all the same" bash -c "'$info' --json 2>/dev/null | python3 -c 'import json,sys; assert json.load(sys.stdin)[\"devices\"] == []'"
check "perf server says that there is no device" fails_and_says "no RDMA device" "$perf" server
check "perf client says that there is no device" fails_and_says "no RDMA device" "$perf" client 127.0.0.1:1
check "perf wants a role" fails_and_says "usage" "$perf"
check "perf wants an address" fails_and_says "usage" "$perf" client
check "perf refuses a bad number" fails_and_says "is no number" "$perf" client --size=-1 127.0.0.1:1
check "perf refuses no depth at all" fails_and_says "depth times endpoints" "$perf" client -q 0 127.0.0.1:1
check "perf refuses more than 8 buffers a message" fails_and_says "no number up to 8" "$perf" client --channels --group 9 127.0.0.1:1
check "perf refuses more memory than 4 GiB" fails_and_says "4 GiB" "$perf" client --channels -s 256M -q 32 127.0.0.1:1
check "perf refuses options of calls for channels" fails_and_says "not of --channels" "$perf" client --channels -e 2 127.0.0.1:1
check "perf refuses a range of sizes for calls" fails_and_says "one size" "$perf" client -s 1:2 127.0.0.1:1
check "perf refuses a share above 1024" fails_and_says "no number up to 1024" "$perf" client --channels --split 1025 127.0.0.1:1
key=$(mktemp)
trap 'rm -f "$key"' EXIT
printf '%015d' 1 > "$key"
check "perf refuses a key that is too short" fails_and_says "a key has 16 to 64 bytes, and '$key' has 15" "$perf" server --key "$key"
printf '%0100d' 1 > "$key"
check "perf refuses a key that is too long" fails_and_says "a key has 16 to 64 bytes, and '$key' has at least 65" "$perf" client --channels --key "$key" 127.0.0.1:1
printf '%064d' 1 > "$key"
check "perf takes the longest key" fails_and_says "no RDMA device" "$perf" server --key "$key"
check "perf says that a key's file is not there" fails_and_says "cannot read the key from '$key.none': No such file" "$perf" server --key "$key.none"
check "perf says that a key's file cannot be read" fails_and_says "cannot read the key from '/': Is a directory" "$perf" server --key /
plan
