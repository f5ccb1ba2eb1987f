#!/usr/bin/env bash
# tags_test.sh PERF: copyrpc-perf --tag on a device: messages with tags that the device matches, and such as it does not; sizes,
# directions, latency. On a device without tags: that it says so. Prints TAP.
. "$(dirname "$0")/queues.sh"

"$perf" server --queues "$address:7477" > "$work/server" 2>&1 &
server=$!
check "perf server --queues listens" listening "$work/server"
if ! measure --tag -n 1 2> "$work/why"; then
    check "without tags, --tag says so" grep -q "no TM-SRQ: $device does not match tags" "$work/why"
    skip "messages with tags" "$device matches none"
    check_stops "perf server --queues ends on SIGTERM" $server
    plan
    exit
fi

check "--tag alone is of messages that are expected" json "(r['op'], r['tags'], r['depth'], r['driver']) == ('send', 'expected', 32, '$driver')"
for kind in expected unexpected; do
    check "$kind messages of one size" measure "--tag=$kind" -s 4000 -n 500
    check "$kind: exactly as many, and all of them right" json "[(row['bytes'], row['ops']) for row in rows] == [(4000, 500)] and r['tags'] == '$kind' and $all_right and $in_order"
    check "$kind messages both ways, over three queue pairs" measure "--tag=$kind" -s 4000 -n 300 --both --queue-pairs 3
    check "$kind: as many on each, and in the other direction" json "rows[0]['ops'] == 900 and rows[0]['ops_back'] >= 900 and r['queue_pairs'] == 3 and $all_right"
    check "$kind messages, one at a time" measure "--tag=$kind" --latency -n 50
    check "$kind: latencies are in order" json "rows[0]['ops'] == 50 and $all_right and $in_order"
    check "$kind messages of all sizes" measure "--tag=$kind" --all -n 3
    check "$kind: from 2 bytes to 8 MiB" json "[row['bytes'] for row in rows] == [2 << i for i in range(23)] and $all_right"
    check "$kind messages of a range of sizes, inline and not, sleeping" measure "--tag=$kind" -s 16:256 -n 100 --inline 64 --wait
    check "$kind: is doubled" json "[(row['bytes'], row['ops']) for row in rows] == [(size, 100) for size in (16, 32, 64, 128, 256)] and r['inline_bytes'] == 64 and $all_right"
    check "$kind messages, one at a time, sleeping" measure "--tag=$kind" --latency -n 20 --wait
    check "$kind messages for a time, of the least size" measure "--tag=$kind" -t 0.1 -s 1
    check "$kind: is that time" json "0.1 <= rows[0]['seconds'] < 20 and $all_right"
    # More than the device has buffers for, and more than it counts before it must hear that the program has looked.
    check "$kind messages, a deep queue, and more than 16384" measure "--tag=$kind" -q 500 -n 20000 -s 8
    check "$kind: loses nothing" json "$all_right and rows[0]['ops'] == 20000"
done
check "the longest that is inline behind a tag" measure --tag -s 496 -n 20 --inline 496
check "arrives" json "rows[0]['ops'] == 20 and $all_right"
check "a table for people" bash -c "timeout 60 '$perf' client --send --tag=unexpected -s 8k -n 2 $address:7477 > '$work/table' && grep -q '^send with tags that nobody expects by $driver on $device: 1 x 32 ops open$' '$work/table'"
check "with a row" grep -qE '^ +8192 +2 +[0-9.]+ [kMG]?B +[0-9.]+[kMG]? +[0-9.]+[mu]?s' "$work/table"

# What is stopped in the middle, and what goes wrong.
"$perf" client --tag "$address:7477" -t 300 --both --json --progress > "$work/json" 2> "$work/progress" &
client=$!
check "a client runs, and says how far it is" says "$work/progress" '^[1-9][0-9]* of 300 s  [0-9.]*[kMG]\? ops/s'
check_stops "and ends well on SIGTERM" $client
check "with its report" json "rows[0]['ops'] > 0 and $all_right"
"$perf" client --tag "$address:7477" -t 300 --progress > "$work/lost" 2>&1 &
client=$!
check "a client runs while" says "$work/lost" 'of 300 s'
check_stops "perf server --queues ends on SIGTERM" $server
check "whose client says that its queue was lost" says "$work/lost" 'a queue was lost: '
check "the server says what each client did" grep -qE '^client [0-9]+: send of 4.0 kB, 500 messages received, 0 sent, 0 wrong' "$work/server"
plan
