#!/usr/bin/env bash
# device_test.sh INFO PERF ECHO_SERVER ECHO_CLIENT SOURCE: the tools, the example and the demo on a device: on Soft-RoCE in the
# VM, or what the environment says (tests/place.h).
device=${TEST_DEVICE:-rxe0} device1=${TEST_DEVICE1:-rxe1} address=${TEST_ADDRESS:-10.99.0.1}
address6=${TEST_ADDRESS6:-[fd10:99::1]} name=${TEST_NAME:-rail0} driver=${TEST_DRIVER:-verbs}
info=$1 perf=$2 echo_server=$3 echo_client=$4 source=$5
. "$(dirname "$0")/tap.sh"
work=$(mktemp -dt "a test.XXXXXX")
trap 'rm -rf "$work"; kill $(jobs -p) 2>/dev/null' EXIT
patient_perf

# says LOG WORDS: waits until they are there.
says() { for _ in $(seq 600); do grep -q -- "$2" "$1" && return 0; sleep 0.1; done; cat "$1"; return 1; }
listening() { says "$1" '^listening'; }
json() { python3 -I -S -c "import json,sys; r = json.load(open('$work/json')); assert $1, r"; }

kind=RoCE gid="RoCE v2 $address"
case ${TEST_LINK:-${SIMNIC_LINK:-}} in ib*) kind=InfiniBand gid="GID 0 *IB fe80::[0-9a-f:]*" ;; esac
check "info lists both rails" bash -c "'$info' > '$work/info' && grep -q '^$device port 1: $kind, active' '$work/info' && grep -q '^$device1' '$work/info'"
check "info shows the default GID" grep -q "$gid  (default)" "$work/info"
check "info names the driver" grep -qwE "drivers .*$driver" "$work/info"
"$info" --json > "$work/json"
check "info's JSON has devices, GIDs and drivers" json "[d['device'] for d in r['devices']] == ['$device', '$device1'] and r['devices'][0]['gids'] and '$driver' in r['devices'][0]['drivers']"
check "info knows the cards and their speed" json "len({d['system_image_guid'] for d in r['devices']}) == 2 and all(int(d['system_image_guid'], 16) and d['link_mbps'] > 0 for d in r['devices'])"
check "info prints them, too" bash -c "[ \$(grep -cE '^  (card +[0-9a-f]{16}|speed +[0-9.]+ Gbit/s)$' '$work/info') = 4 ]"
check "info knows the P_Keys, and who requires a GRH" json "[(d['partition_key'], d['grh_required']) for d in r['devices']] == [(0xffff, False)] * 2"
check "and prints them" bash -c "[ \$(grep -c '^  P_Key    0xffff  (default)\$' '$work/info') = 2 ]"
ece=0
[ -n "${TEST_SIMNIC:-}" ] && ece=0x30000007
check "info knows what is offered of ECE" json "[d['ece_options'] for d in r['devices']] == [$ece] * 2"
check "and prints it where there is any" bash -c "[ \$(grep -c '^  ECE      options 0x30000007\$' '$work/info') = $((ece ? 2 : 0)) ]"
check "info says which rails there would be" json "[(l['device'], l['port'], l['driver']) for l in r['rails']['used']] == [('$device', 1, '$driver'), ('$device1', 1, '$driver')] and r['rails']['left_out'] == [] and r['rails']['error'] is None"
check "and prints them" grep -q "^  rail 1   $device1 port 1, $driver, " "$work/info"
if [ -n "${TEST_LINK1_DOWN:-}" ]; then
    eval "$TEST_LINK1_DOWN"
    "$info" --json > "$work/json"
    check "info says why there is no rail 1" json "[l['device'] for l in r['rails']['used']] == ['$device'] and [(l['device'], l['why']) for l in r['rails']['left_out']] == [('$device1', 'its link is down')]"
    eval "$TEST_LINK1_UP"
fi

"$perf" server "$address:7472" > "$work/server" 2>&1 &
server=$!
check "perf server listens" listening "$work/server"
check "perf measures and prints JSON" bash -c "timeout 60 '$perf' client $address:7472 -t 2 -s 32 -q 256 --json > '$work/json'"
check "no call is lost" json "r['lost'] == 0 and r['wrong'] == 0 and r['calls'] >= 256"
check "at depth 256, at least 16 calls share a batch" json "r['messages_per_batch'] >= 16 and r['per_call']['batches'] <= 1/16"
check "the JSON has every count" json "all(k in r['per_call'] for k in ('batches', 'wqes', 'doorbells', 'signaled_wqes', 'inline_wqes', 'receive_wqes', 'mailbox_reads', 'completions'))"
check "the JSON has latencies in order" json "0 < r['latency_ns']['p50'] <= r['latency_ns']['p99'] <= r['latency_ns']['max']"
check "the JSON says where it ran" json "r['device'] == '$device' and r['driver'] == '$driver'"
echo "# $(python3 -c "import json; r = json.load(open('$work/json')); print(round(r['calls_per_second']), 'calls/s', round(r['messages_per_batch'], 1), 'per batch')")"
check "perf counts calls" bash -c "timeout 60 '$perf' client $address:7472 -n 1000 -q 1 --json > '$work/json'"
check "exactly as many as asked for" json "r['calls'] == 1000"
check "several endpoints, large replies, sleeping" bash -c "timeout 60 '$perf' client $address:7472 -n 2000 -q 8 -e 4 -s 64 -r 20000 --wait --json > '$work/json'"
check "all are answered" json "r['calls'] == 2000 and r['reply_bytes'] == 20000 and r['endpoints'] == 4"
check "a progress line on longer runs" bash -c "timeout 60 '$perf' client $address:7472 -t 3 --progress 2>&1 >/dev/null | grep -q 'of 3 s .*calls/s'"
check "a table for people" bash -c "timeout 60 '$perf' client $address:7472 -t 0.3 | grep -q 'p99.9'"
check "packets may have a traffic class and a priority" bash -c "timeout 60 '$perf' client $address:7472 --traffic-class 106 --service-level 5 --partition-key 0xffff --retry-timeout 16 -n 1000 --json > '$work/json'"
check "and all are answered, too" json "r['calls'] == 1000 and r['lost'] == 0"
check "a partition that is not there is refused" bash -c "! timeout 60 '$perf' client $address:7472 --partition-key 0x8001 > '$work/partition' 2>&1 && grep -q 'has no P_Key 0x8001; it has 0xffff' '$work/partition'"
check "a client of three threads" bash -c "timeout 60 '$perf' client $address:7472 --threads 3 -e 2 -n 1000 --json > '$work/json'"
check "each makes its calls" json "r['calls'] == 3000 and r['lost'] == 0 and r['threads'] == 3 and 0 < r['latency_ns']['p50'] <= r['latency_ns']['max']"
kill -STOP $server
check "a client waits for a server that is stopped as long as --timeout says" bash -c "! timeout 60 '$perf' client $address:7472 --timeout 0.3 > '$work/stopped' 2>&1 && grep -q 'no connection within 300 ms' '$work/stopped'"
kill -CONT $server
check_stops "perf server ends on SIGTERM" "$server"
check "perf client says that nobody listens" bash -c "! timeout 60 '$perf' client $address:7472 > '$work/nobody' 2>&1 && grep -q listens '$work/nobody'"

"$perf" server --threads 3 "$address:7478" > "$work/threads" 2>&1 &
server=$!
check "perf server --threads listens" listening "$work/threads"
check "its threads take the clients in turn" bash -c "timeout 60 '$perf' client $address:7478 --threads 2 -e 4 -n 1000 --json > '$work/json'"
check "and answer all of them" json "r['calls'] == 2000 and r['lost'] == 0 and r['wrong'] == 0"
check_stops "perf server --threads ends on SIGTERM" "$server"

"$perf" server --arena 64K "$address:7480" > "$work/arena" 2>&1 &
server=$!
check "perf server --arena listens" listening "$work/arena"
check "it echoes what lands there" bash -c "timeout 60 '$perf' client $address:7480 --region -s 64K -q 32 -e 3 -n 2000 --json > '$work/json'"
check "each call is right" json "r['calls'] == 2000 and r['lost'] == 0 and r['wrong'] == 0"
check_stops "perf server --arena ends on SIGTERM" "$server"

if [ "$driver" = mlx5 ]; then
    "$perf" server --initiators 2 "$address:7481" > "$work/initiators" 2>&1 &
    server=$!
    check "perf server --initiators listens" listening "$work/initiators"
    shares() { timeout 60 "$perf" client "$address:7481" --json "$@" > "$work/json"; }
    check "24 endpoints share one DCI" shares --initiators 1 -e 24 -q 16 -s 2000 -n 6000
    check "each call is right" json "r['calls'] == 6000 and r['endpoints'] == 24 and r['lost'] == 0 and r['wrong'] == 0 and r['driver'] == 'mlx5'"
    check "three of them, from a region, sleeping" shares --initiators 3 -e 8 -q 8 --region -s 64K -n 1000 --wait
    check "each is right, too" json "r['calls'] == 1000 and r['lost'] == 0 and r['wrong'] == 0"
    check "threads with a DCI each" shares --initiators 1 --threads 3 -e 2 -n 1000
    check "make their calls" json "r['calls'] == 3000 and r['lost'] == 0 and r['threads'] == 3 and 0 < r['latency_ns']['p50'] <= r['latency_ns']['max']"
    check "a client without says so" bash -c "! timeout 60 '$perf' client $address:7481 > '$work/differs' 2>&1 && grep -q 'has initiators, and this one has none' '$work/differs'"
    check_stops "perf server --initiators ends on SIGTERM" "$server"
    "$perf" server "$address:7482" > "$work/plain" 2>&1 &
    server=$!
    check "perf server without them listens" listening "$work/plain"
    check "and its client with them says so" bash -c "! timeout 60 '$perf' client $address:7482 --initiators 1 > '$work/differs' 2>&1 && grep -q 'has initiators, and the peer.s has none' '$work/differs'"
    check_stops "perf server without them ends on SIGTERM" "$server"
else
    check "perf says that the driver has no DC" bash -c "! timeout 60 '$perf' client $address:7481 --initiators 1 > '$work/initiators' 2>&1 && grep -q 'driver $driver has no dynamic queue pairs' '$work/initiators'"
fi

"$perf" server --channels "$address:7474" > "$work/channels" 2>&1 &
server=$!
check "perf server --channels listens" listening "$work/channels"
measure_channel() { timeout 100 "$perf" client --channels "$address:7474" --json "$@" > "$work/json"; }
# A channel is connected 300 ms after its first rail, even if the other is not up yet. Then what is counted over both rails is counted
# again, after a longer warm-up; but not if a rail was lost.
both_rails() {
    local warmup
    for warmup in 0.2 1 4 16; do
        measure_channel --warmup $warmup "$@" || return 1
        json "r['rail_events'] == [] and all(l['state'] == 'up' for l in r['rails']) or not all(e['used'] for e in r['rail_events'])" 2> /dev/null && return
    done
    cat "$work/json"
    return 1
}
check "two rails, three buffers a message, both ways, every byte compared" both_rails -n 200 -s 60k:300k --group 3 --queue-pairs 2 --both --verify
check "nothing is lost or wrong" json "r['messages'] == 200 and r['failed'] == r['wrong'] == r['server']['wrong'] == 0 and r['server']['messages'] >= 200"
check "the server sends, too" json "r['messages_received'] > 0 and r['bytes_received'] > 60 << 10"
check "both rails carry bytes, and no others" json "[l['device'] for l in r['rails']] == ['$device', '$device1'] and all(l['state'] == 'up' and l['bytes_sent'] > 0 and l['driver'] == '$driver' for l in r['rails']) and sum(l['bytes_sent'] for l in r['rails']) == r['bytes']"
check "one message is one WQE on each rail" both_rails -n 300 -s 256k --split 512
check "and half of its bytes" json "r['counts']['data_wqes'] == 600 and r['rail0_share'] == 512 and r['rails'][0]['bytes_sent'] == r['rails'][1]['bytes_sent'] == r['bytes'] / 2"
check "short ones are one WQE, sleeping" both_rails -n 300 -s 1:1000 --verify --wait --split 300
check "and each rail has its share of their bytes, but for a message at each end" json "r['counts']['data_wqes'] == sum(l['messages_sent'] for l in r['rails']) == 300 and abs(r['rails'][0]['bytes_sent'] - r['bytes'] * 300 / 1024) <= 2000 and r['server']['wrong'] == 0"
check "one rail alone" measure_channel -n 100 -s 256k --one-rail
check "the other carries nothing" json "r['counts']['data_wqes'] == 100 and r['rails'][1]['bytes_sent'] == 0 and r['rails'][1]['state'] == 'none'"
check "the JSON of channels has latencies in order" json "0 < r['latency_ns']['p50'] <= r['latency_ns']['p99'] <= r['latency_ns']['max']"
check "rates of each rail while it runs" bash -c "timeout 60 '$perf' client --channels $address:7474 -t 3 --progress 2>&1 >/dev/null | grep -qE 'of 3 s  rail 0 [0-9.]+ [kMG]?B/s  rail 1 [0-9.]+ [kMG]?B/s  total'"
table_of_channels() { # the other rail may come later, as above
    local warmup
    for warmup in 1 4 16; do
        timeout 100 "$perf" client --channels "$address:7474" -t 0.3 --warmup $warmup > "$work/table" || return 1
        grep -qE "^  rail 1   [0-9.]+ [kMG]?B/s by $driver on $device1, up" "$work/table" && return
    done
    cat "$work/table"
    return 1
}
check "a table of channels for people" table_of_channels
if [ -n "${TEST_LINK1_DOWN:-}" ]; then
    "$perf" client --channels "$address:7474" --json -t 300 --warmup 0 -s 256k --verify --progress > "$work/json" 2> "$work/events" &
    client=$!
    told() { until grep -qE "$1" "$work/events"; do kill -0 "$client" || return 1; sleep 0.1; done; }
    check "both rails carry bytes first" told 'rail 1 [0-9.]*[1-9][0-9.]* [kMG]?B/s'
    eval "$TEST_LINK1_DOWN"
    check "a rail that is lost is told while it runs" told 'rail 1 was lost'
    eval "$TEST_LINK1_UP"
    told_since() { until sed "1,/$1/d" "$work/events" | grep -qE "$2"; do kill -0 "$client" || return 1; sleep 0.1; done; }
    check "and once it is used again" told_since 'rail 1 was lost' 'rail 1 is used again'
    kill -TERM $client
    wait $client
    check "perf ends well all the same" [ $? = 0 ]
    check "nothing is lost, and the JSON tells of the rail" json "r['failed'] == r['server']['wrong'] == 0 and (lambda e: (1, False) in e and (1, True) in e[e.index((1, False)):])([(e['rail'], e['used']) for e in r['rail_events']]) and r['rails'][1]['failures'] >= 1"
fi
check_stops "perf server --channels ends on SIGTERM" "$server"
check "it says what it has received" grep -qE '^client 1: [0-9]+ messages, [0-9.]+ [kMG]?B received, 0 wrong' "$work/channels"
check "perf client --channels says that nobody listens" bash -c "! timeout 60 '$perf' client --channels $address:7474 > '$work/nobody' 2>&1 && grep -q listens '$work/nobody'"

# with_keys WORD...: a server with a key, for calls or channels; clients with the same, another and none.
head -c 32 /dev/urandom > "$work/key"
head -c 32 /dev/urandom > "$work/other"
client_with() { timeout 60 "$perf" client "$@" "$address:7476" -n 100 --json; }
is_refused() {
    local words=$1
    shift
    client_with "$@" > "$work/refused" 2>&1 && { echo "exit status 0"; return 1; }
    grep -q -- "$words" "$work/refused" || { cat "$work/refused"; return 1; }
}
# serve WORD...: a server in the background, which writes to $work/keys. The file is empty before: the job empties it only once it
# runs, and until then it would hold what the server before has written.
serve() {
    : > "$work/keys"
    "$perf" server "$@" "$address:7476" > "$work/keys" 2>&1 &
    server=$!
}
with_keys() {
    local kind=$1
    shift
    serve "$@" --key "$work/key"
    check "perf server listens for $kind with a key" listening "$work/keys"
    check "$kind run with the same key" client_with "$@" --key "$work/key"
    check "with another key a client of $kind says so" is_refused "the peer has another key" "$@" --key "$work/other"
    check "and the server says it, too" says "$work/keys" "a client did not connect: the peer has another key"
    check "without a key a client of $kind says so" is_refused "asks for the key, and this side has none" "$@"
    check "and the right one works on" client_with "$@" --key "$work/key"
    check_stops "perf server for $kind ends on SIGTERM" "$server"
    serve "$@"
    check "perf server listens for $kind without a key" listening "$work/keys"
    check "a client of $kind with a key says that the server has none" is_refused "this side has a key and the peer has none" "$@" --key "$work/key"
    check_stops "perf server for $kind without a key ends on SIGTERM" "$server"
}
with_keys calls
with_keys channels --channels

# Soft-RoCE has neither; on simnic, dc_test.sh and tags_test.sh measure both.
lacks() { # WORDS OPTIONS...: a client says so before it connects
    local words=$1
    shift
    timeout 60 "$perf" client "$address:7477" "$@" > "$work/lacks" 2>&1 && { echo "exit status 0"; return 1; }
    grep -q "$words" "$work/lacks" || { cat "$work/lacks"; return 1; }
}
case $device in
rxe*)
    check "perf says that the device has no DC" lacks "no DCI: $device has no dynamically connected transport (DC)" --write --dc
    check "perf says that the device matches no tags" lacks "no TM-SRQ: $device does not match tags" --tag --latency
    ;;
esac

"$echo_server" "*:7471" > "$work/echo" 2>&1 &
server=$!
check "echo server listens" listening "$work/echo"
check "echo by address" patiently "$echo_client" "$address:7471" 2000 100
check "echo by host name" patiently "$echo_client" "$name:7471" 100 0
check "echo by IPv6" patiently "$echo_client" "$address6:7471" 100 65536
check "the README's program, as printed" "$source/docs/tests/readme_test.sh" "$(dirname "$echo_client")/../capi" "$address:7471"
check_stops "echo server ends on SIGTERM" "$server"
check "echo client says that nobody listens" bash -c "! timeout 60 '$echo_client' $address:7471 > '$work/nobody' 2>&1 && grep -q listens '$work/nobody'"

channel=$(dirname "$echo_client")/channel
timeout 120 "$channel" receive "$address:7475" > "$work/received" 2>&1 &
receiver=$!
check "the example of a channel sends" timeout 120 bash -c "until '$channel' send $address:7475 200 > '$work/sent'; do sleep 0.3; done"
wait $receiver
check "and receives" [ $? = 0 ]
check "all of it" grep -qE '^received 200 messages over (one rail|two rails)$' "$work/received"

check "the demo" bash -c "'$source/scripts/demo.sh' '$(dirname "$echo_client")/..' $address:7473 10000 > '$work/demo'"
tail -n 1 "$work/demo" | sed 's/^/# /'
check "the demo's line for one call at a time" grep -qE '^demo: calls=200 lost=0 depth=1 rate=[0-9]+/s ' "$work/demo"
check "the demo's last line" bash -c "tail -n 1 '$work/demo' | grep -qE '^demo: calls=10000 lost=0 depth=256 rate=[0-9]+/s p50=[0-9.]+[num]?s p99=[0-9.]+[num]?s driver=$driver device=$device\$'"
plan
