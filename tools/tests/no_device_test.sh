#!/usr/bin/env bash
# no_device_test.sh INFO PERF CHECK: what the tools say on a machine without an RDMA device. On one with a device there is
# nothing to see.
info=$1 perf=$2 device_check=$3
. "$(dirname "$0")/tap.sh"
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    skip_all "this machine has an RDMA device"
fi
fails_and_says() {
    local words=$1 output
    shift
    output=$("$@" 2>&1) && { echo "exit status 0"; return 1; }
    grep -qi -- "$words" <<< "$output" || { echo "$output"; return 1; }
}
check "info says that there is no device and what to do" fails_and_says "./dev vm" "$info"
check "info prints JSON all the same" bash -c "'$info' --json 2>/dev/null | python3 -c 'import json,sys; assert json.load(sys.stdin)[\"devices\"] == []'"
check "check says that there is no device" fails_and_says "no device has an active port" "$device_check"
check "check lists its checks all the same" bash -c "'$device_check' --list | grep -q '^doorbell '"
check "perf server says that there is no device" fails_and_says "no RDMA device" "$perf" server
check "perf client says that there is no device" fails_and_says "no RDMA device" "$perf" client 127.0.0.1:1
check "perf wants a role" fails_and_says "usage" "$perf"
check "perf wants an address" fails_and_says "usage" "$perf" client
check "perf refuses a bad number" fails_and_says "is no number" "$perf" client --size=-1 127.0.0.1:1
check "perf refuses to give a peer no time" fails_and_says "more than 0" "$perf" client --timeout 0 127.0.0.1:1
check "perf refuses no depth at all" fails_and_says "depth times endpoints" "$perf" client -q 0 127.0.0.1:1
check "perf refuses more than 8 buffers a message" fails_and_says "no number up to 8" "$perf" client --channels --group 9 127.0.0.1:1
check "perf refuses more memory than 4 GiB" fails_and_says "4 GiB" "$perf" client --channels -s 256M -q 32 127.0.0.1:1
check "perf refuses options of calls for channels" fails_and_says "not of --channels" "$perf" client --channels -e 2 127.0.0.1:1
check "perf refuses sizes that are nothing twice over" fails_and_says "at least 1 byte" "$perf" client -s 0:2 127.0.0.1:1
check "perf refuses --all with a size, of calls too" fails_and_says "so there is no --size" "$perf" client -a -s 2 127.0.0.1:1
check "perf refuses replies of a size to requests that are too short to ask" fails_and_says "at least 4 bytes" "$perf" client -s 2:8 -r 8 127.0.0.1:1
check "perf refuses no rate" fails_and_says "is no rate" "$perf" client --rate 0 127.0.0.1:1
check "perf refuses a rate of less than nothing" fails_and_says "is no rate" "$perf" client --rate=-5k 127.0.0.1:1
check "perf refuses a rate in other units" fails_and_says "'5G' is no rate" "$perf" client --rate 5G 127.0.0.1:1
check "perf refuses a rate of queues" fails_and_says "--rate is of calls, not of queues" "$perf" client --read --rate 5k 127.0.0.1:1
check "perf refuses half a list of processors" fails_and_says "a list of processors" "$perf" client --cpu 0- 127.0.0.1:1
check "perf refuses a list of processors that goes down" fails_and_says "a list of processors" "$perf" client --cpu 1-0 127.0.0.1:1
check "perf refuses a processor that it may not use" fails_and_says "may not run on processor 1023" "$perf" server --cpu 1023
check "perf refuses a table of latencies of all sizes" fails_and_says "a log is of all" "$perf" client -a --histogram table 127.0.0.1:1
check "perf says that latencies cannot be written" fails_and_says "cannot write '/none/table': No such" "$perf" client --histogram /none/table 127.0.0.1:1
check "perf refuses latencies of a server" fails_and_says "is of a client" "$perf" server --histogram table
check "perf compares two" fails_and_says "usage" "$perf" compare one
check "perf plots one at least" fails_and_says "usage" "$perf" plot
check "perf refuses with status 2" bash -c "'$perf' client --rate x 127.0.0.1:1 2> /dev/null; [ \$? = 2 ]"
check "perf refuses a share above 1024" fails_and_says "no number up to 1024" "$perf" client --channels --split 1025 127.0.0.1:1
check "perf refuses options of queues for calls" fails_and_says "--inline is of queues (--write, --read, --send, --atomic), not of calls" "$perf" client --inline 8 127.0.0.1:1
check "perf refuses options of channels for calls" fails_and_says "--group is of --channels, not of calls" "$perf" client --group 2 127.0.0.1:1
check "perf refuses options of calls for queues" fails_and_says "--reply-size is of calls, not of queues" "$perf" client --write -r 2 127.0.0.1:1
check "perf refuses options of channels for queues" fails_and_says "--verify is of --channels, not of queues" "$perf" client --read --verify 127.0.0.1:1
check "perf refuses two ops" fails_and_says "one of --write, --read, --send and --atomic" "$perf" client --write --read 127.0.0.1:1
check "perf refuses channels and queues at once" fails_and_says "two things" "$perf" client --write --channels 127.0.0.1:1
check "perf refuses an atomic that there is not" fails_and_says "'add' or 'swap', not 'sub'" "$perf" client --atomic=sub 127.0.0.1:1
check "perf refuses sizes of atomics" fails_and_says "an atomic has 8 bytes" "$perf" client --atomic -s 16 127.0.0.1:1
check "perf refuses --all with a size" fails_and_says "so there is no --size" "$perf" client --send -a -s 2 127.0.0.1:1
check "perf refuses messages of nothing" fails_and_says "at least 1 byte" "$perf" client --send -s 0 127.0.0.1:1
check "perf refuses inline READs" fails_and_says "only SEND and WRITE" "$perf" client --read --inline 8 127.0.0.1:1
check "perf refuses queues without depth" fails_and_says "1 to 8192" "$perf" client --send -q 0 127.0.0.1:1
check "perf refuses queues that are too deep" fails_and_says "1 to 8192" "$perf" client --send -q 8193 127.0.0.1:1
check "perf refuses latency in depth" fails_and_says "one op at a time" "$perf" client --send --latency -q 2 127.0.0.1:1
check "perf refuses latency both ways" fails_and_says "one op at a time" "$perf" client --send --latency --both 127.0.0.1:1
check "perf refuses to sleep for WRITEs" fails_and_says "nothing wakes" "$perf" client --write --latency --wait 127.0.0.1:1
check "perf refuses streams without DC" fails_and_says "are of --dc" "$perf" client --write --streams 4 127.0.0.1:1
check "perf refuses targets without DC" fails_and_says "are of --dc" "$perf" client --tag --targets 4 127.0.0.1:1
check "perf refuses a DCI without targets" fails_and_says "1 to 64 targets" "$perf" client --dc --targets 0 127.0.0.1:1
check "perf refuses more than 64 targets" fails_and_says "no number up to 64" "$perf" client --dc --targets 65 127.0.0.1:1
check "perf refuses more streams than an op can name" fails_and_says "no number up to 65535" "$perf" client --dc --streams 65536 127.0.0.1:1
check "perf refuses tags over DC" fails_and_says "are three things" "$perf" client --send --dc --tag 127.0.0.1:1
check "perf refuses datagrams over DC" fails_and_says "are three things" "$perf" client --send --dc --datagrams 127.0.0.1:1
check "perf refuses WRITEs with tags" fails_and_says "only messages have tags" "$perf" client --write --tag 127.0.0.1:1
check "perf refuses tags that there are not" fails_and_says "'expected' or 'unexpected', not 'hoped'" "$perf" client --tag=hoped 127.0.0.1:1
check "perf refuses more inline than fits behind a tag" fails_and_says "at most 496" "$perf" client --tag --inline 500 127.0.0.1:1
check "perf refuses to sleep for WRITEs over DC" fails_and_says "nothing wakes" "$perf" client --dc --latency --wait 127.0.0.1:1
check "perf refuses DC for calls" fails_and_says "does what its clients say" "$perf" server --dc
check "perf wants to know what a client does" fails_and_says "--queues is of the server" "$perf" client --queues 127.0.0.1:1
check "perf refuses what a server is told by clients" fails_and_says "does what its clients say" "$perf" server --queues -s 8
check "perf refuses more queue pairs than channels have" fails_and_says "1 to 8 queue pairs" "$perf" client --channels --queue-pairs 9 127.0.0.1:1
check "perf server of queues says that there is no device" fails_and_says "no RDMA device" "$perf" server --queues
key=$(mktemp)
trap 'rm -f "$key"' EXIT
printf '%015d' 1 > "$key"
check "perf refuses a key that is too short" fails_and_says "a key has 16 to 64 bytes, and '$key' has 15" "$perf" server --key "$key"
printf '%0100d' 1 > "$key"
check "perf refuses a key that is too long" fails_and_says "a key has 16 to 64 bytes, and '$key' has at least 65" "$perf" client --channels --key "$key" 127.0.0.1:1
printf '%064d' 1 > "$key"
check "perf takes the longest key" fails_and_says "no RDMA device" "$perf" server --key "$key"
check "perf refuses keys for queues" fails_and_says "--key is of calls and --channels, not of queues" "$perf" client --read --key "$key" 127.0.0.1:1
check "perf says that a key's file is not there" fails_and_says "cannot read the key from '$key.none': No such file" "$perf" server --key "$key.none"
check "perf says that a key's file cannot be read" fails_and_says "cannot read the key from '/': Is a directory" "$perf" server --key /
plan
