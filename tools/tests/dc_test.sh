#!/usr/bin/env bash
# dc_test.sh PERF: copyrpc-perf --dc on a device: each op from a DCI to DCTs, streams, several targets, sizes, directions, latency. On a
# device without DC: that it says so. Prints TAP.
. "$(dirname "$0")/queues.sh"

"$perf" server --queues "$address:7477" > "$work/server" 2>&1 &
server=$!
check "perf server --queues listens" listening "$work/server"
if ! measure --dc -n 1 2> "$work/why"; then
    check "without DC, --dc says so" grep -q "no DCI: $device has no dynamically connected transport" "$work/why"
    skip "ops from DCIs to DCTs" "$device has none"
    check_stops "perf server --queues ends on SIGTERM" $server
    plan
    exit
fi

check "--dc alone is of WRITEs" json "(r['op'], r['dc'], r['streams'], r['targets'], r['driver']) == ('write', True, 0, 1, '$driver')"
for op in write read send atomic atomic=swap; do
    bytes=4000
    sizes=(-s "$bytes")
    [[ $op != atomic* ]] || bytes=8 sizes=()
    check "--$op --dc: ops of one size" measure "--$op" --dc "${sizes[@]}" -n 500 -q 16
    check "--$op --dc: exactly as many, and all of them right" json "[(row['bytes'], row['ops']) for row in rows] == [($bytes, 500)] and $all_right and $in_order"
    check "--$op --dc: both ways, over two DCIs with six streams, to three DCTs each" measure "--$op" --dc "${sizes[@]}" -n 300 -q 32 --both --queue-pairs 2 --targets 3 --streams 6
    check "--$op --dc: as many on each, and in the other direction" json "rows[0]['ops'] == 600 and rows[0]['ops_back'] >= 600 and (r['queue_pairs'], r['targets'], r['streams']) == (2, 3, 6) and $all_right and $in_order"
    check "--$op --dc: one at a time, to DCTs in turn" measure "--$op" --dc --latency -n 50 --targets 2 --streams 2
    check "--$op --dc: latencies are in order" json "rows[0]['ops'] == 50 and $all_right and $in_order"
done
check "all sizes" measure --send --dc --all -n 3
check "from 2 bytes to 8 MiB" json "[row['bytes'] for row in rows] == [2 << i for i in range(23)] and $all_right"
check "a range of sizes, inline and not, sleeping" measure --send --dc -s 16:256 -n 100 --inline 64 --wait
check "is doubled" json "[(row['bytes'], row['ops']) for row in rows] == [(size, 100) for size in (16, 32, 64, 128, 256)] and r['inline_bytes'] == 64 and $all_right"
check "messages, one at a time, sleeping" measure --send --dc --latency -n 20 --wait
check "for a time, to the most DCTs that there can be" measure --read --dc -t 0.1 -q 100 -s 1 --targets 64
check "is that time, and a doorbell is for many" json "0.1 <= rows[0]['seconds'] < 20 and rows[0]['doorbells_per_op'] < 0.5 and $all_right"
check "a deep queue with streams" measure --send --dc -q 2000 -n 10000 -s 8 --streams 64 --targets 4
check "loses nothing" json "$all_right and rows[0]['ops'] == 10000"
check "a table for people" bash -c "timeout 60 '$perf' client --write --dc -s 8k -n 2 --targets 4 --streams 1 $address:7477 > '$work/table' && grep -q '^write over DC by $driver on $device: 1 x 128 ops open, to 4 DCTs each, 1 stream each$' '$work/table'"
check "with a row" grep -qE '^ +8192 +2 +[0-9.]+ [kMG]?B +[0-9.]+[kMG]? +[0-9.]+[mu]?s' "$work/table"
check "more streams than the device has are refused" fails "streams is 65535; a DCI of $device can have" "$perf" client --dc --streams 65535 "$address:7477"

# What is stopped in the middle, and what goes wrong.
"$perf" client --dc "$address:7477" -t 300 --both --streams 4 --json --progress > "$work/json" 2> "$work/progress" &
client=$!
check "a client runs, and says how far it is" says "$work/progress" '^[1-9][0-9]* of 300 s  [0-9.]*[kMG]\? ops/s'
check_stops "and ends well on SIGTERM" $client
check "with its report" json "rows[0]['ops'] > 0 and $all_right"
"$perf" client --send --dc "$address:7477" -t 300 --both --progress > "$work/killed" 2>&1 &
client=$!
check "a client runs while both send, and" says "$work/killed" 'of 300 s'
kill -KILL $client
wait $client 2>/dev/null
check "when it is killed, the server goes on" measure --write --dc -s 64 -n 100 --both
check "as if nothing had been" json "rows[0]['ops'] == 100 and $all_right"
"$perf" client --send --dc "$address:7477" -t 300 --progress > "$work/lost" 2>&1 &
client=$!
check "a client runs while" says "$work/lost" 'of 300 s'
check_stops "perf server --queues ends on SIGTERM" $server
check "whose client says that its queue was lost" says "$work/lost" 'a queue was lost: '
check "the server says what each client did" grep -qE '^client [0-9]+: send of 4.0 kB, 500 messages received, 0 sent, 0 wrong' "$work/server"
plan
